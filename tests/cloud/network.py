# SPDX-License-Identifier: Apache-2.0
"""A Network service without networks, for Nova.

uWSGI serves it in place of Neutron, for instances created with ``--nic none``. It cannot
create anything, so a request that needs a network fails.
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
    """The WSGI application."""
    status, document = answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
    body = json.dumps(document).encode()
    start_response(status, [("Content-Type", "application/json"),
                            ("Content-Length", str(len(body)))])
    return [body]
