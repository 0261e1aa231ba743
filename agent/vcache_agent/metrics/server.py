# SPDX-License-Identifier: Apache-2.0
"""The HTTP listener for Prometheus."""

import re
import socket
import socketserver
import threading
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from oslo_log import log as logging
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.registry import Collector

LOG = logging.getLogger(__name__)

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


class AddressError(ValueError):
    """The option ``[metrics] listen`` is not an address with a port."""


# A client that sends nothing must not keep a thread for ever.
_CLIENT_SECONDS = 10.0


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, *_: object) -> None:
        """Log no requests."""


def parse(text: str) -> tuple[str, int]:
    """Return (address, port) of a text such as ``127.0.0.1:9587`` or ``[::1]:9587``.

    :raises AddressError: if it is neither
    """
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535:
        raise AddressError(f"[metrics] listen {text[:60]!r} must be an address and a port from 0 "
                           "to 65535, such as 127.0.0.1:9587 or [::1]:9587, or empty")
    return found["six"] or found["host"], int(found["port"])


class MetricsServer:
    """Serves the metrics by HTTP.

    :param listen: address and port; empty: serve nothing
    :param collector: the agent's metrics
    :raises AddressError: if `listen` is not valid
    """

    def __init__(self, listen: str, collector: Collector) -> None:
        self._address = parse(listen) if listen else None
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._running: tuple[WSGIServer, threading.Thread] | None = None

    @property
    def port(self) -> int | None:
        """The port; None: it serves nothing."""
        return self._running[0].server_port if self._running else None

    def start(self) -> None:
        """Start to serve. An address in use is an error in the log: the agent works without."""
        if self._address is None:
            return
        address, port = self._address
        # start_http_server() of prometheus_client before 0.20 cannot be stopped.
        try:
            kind = _Server6 if ":" in address else _Server
            server = make_server(address, port, make_wsgi_app(self._registry), kind, _Handler)
        except OSError as error:
            LOG.error("metrics: cannot listen on %s port %d: %s; there are no metrics", address,
                      port, error.strerror or error)
            return
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        self._running = server, thread

    def stop(self) -> None:
        """Stop to serve."""
        if self._running is not None:
            server, thread = self._running
            server.shutdown()
            server.server_close()
            thread.join()
            self._running = None
