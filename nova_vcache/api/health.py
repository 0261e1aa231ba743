# SPDX-License-Identifier: Apache-2.0
"""The healthcheck: that of oslo.middleware, and whether the message bus answers."""

from collections.abc import Callable, Iterable
from typing import Any

from werkzeug.wrappers import Request, Response

from nova_vcache.api.backend import Backend

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Health:
    """Answers 503 if oslo.middleware's healthcheck succeeds, but the message bus is dead.

    :param inner: the healthcheck of oslo.middleware, with its options
    :param backend: has the connection to the message bus
    """

    def __init__(self, inner: Wsgi, backend: Backend) -> None:
        self._inner = inner
        self._backend = backend

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Process a request."""
        response = Response.from_app(self._inner, environ, buffered=True)
        problem = self._backend.bus_problem() if response.status_code == 200 else ""
        if problem:
            head = Request(environ).method == "HEAD"
            response = Response("" if head else problem, 503, content_type="text/plain")
        return response(environ, start)
