# SPDX-License-Identifier: Apache-2.0
"""What Nova asks of a Network service where no instance has a network: that it has nothing.

Served by uWSGI in the place of Neutron, for instances that are made with ``--nic none``. It
can make nothing, so whatever would need a network fails.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any


def answer(method: str, path: str) -> tuple[str, dict[str, Any]]:
    """Return status and document of a request."""
    parts = path.strip("/").removesuffix(".json").split("/")
    if method == "GET" and parts in ([""], ["v2.0"]):
        return "200 OK", {"versions": [{"id": "v2.0", "status": "CURRENT", "links": []}]}
    if method == "GET" and len(parts) == 2:
        return "200 OK", {parts[1].replace("-", "_"): []}
    return "404 Not Found", {"NeutronError": {
        "type": "NotFound", "message": f"{method} {path}: there is no network", "detail": ""}}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer, as WSGI has it."""
    status, document = answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
    body = json.dumps(document).encode()
    start_response(status, [("Content-Type", "application/json"),
                            ("Content-Length", str(len(body)))])
    return [body]
