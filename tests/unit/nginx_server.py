# SPDX-License-Identifier: Apache-2.0
"""A real nginx with a proxy cache in front of an origin, for tests."""

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.limits import Deadline
from vcache_guest.nginx import Nginx

_CONFIG = """\
daemon off;
master_process on;
pid {root}/nginx.pid;
error_log {root}/error.log;
worker_processes 1;
user root;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    include {root}/vcache.conf;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{origin};
            proxy_cache vcache;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
        }}
    }}
}}
"""

#: Size of an object in bytes.
OBJECT = 1 << 20


def body(path: str) -> bytes:
    """Return the object with a path."""
    return path.encode().ljust(64, b".") * (OBJECT // 64)


class _Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(OBJECT))
        self.end_headers()
        self.wfile.write(body(self.path))

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def need_nginx() -> str:
    """Return the path of nginx; skip a test if it is not installed."""
    path = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        pytest.skip("nginx is not installed (Debian: nginx-light)")
    return path


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Web:
    """nginx and its origin.

    :param root: folder for its files
    :param folder: of the cache
    """

    def __init__(self, root: Path, folder: Path, port: int) -> None:
        self.root, self.folder, self._port = root, folder, port
        self.nginx = Nginx(str(root / "vcache.conf"), str(root / "nginx.pid"), str(folder))

    def get(self, number: int) -> str:
        """Fetch an object, check it, and return how the cache was used: HIT, MISS, ..."""
        with urllib.request.urlopen(  # noqa: S310 - our own server
                f"http://127.0.0.1:{self._port}/{number}", timeout=60) as answer:
            assert answer.read() == body(f"/{number}")
            return str(answer.headers["X-Cache"])

    def files(self) -> int:
        """Return how many objects the cache has."""
        return sum(len(files) for _, _, files in os.walk(self.folder))

    def hits(self, numbers: range) -> int:
        """Return how many objects come from the cache."""
        return sum(self.get(number) == "HIT" for number in numbers)


@contextlib.contextmanager
def web(root: Path, folder: Path, limit: int) -> Iterator[Web]:
    """Run nginx with a cache of some MiB."""
    program = need_nginx()
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    made = Web(root, folder, _port())
    made.nginx.limit(limit)
    (root / "nginx.conf").write_text(_CONFIG.format(root=root, port=made._port,
                                                    origin=origin.server_port))
    process = subprocess.Popen([program, "-p", str(root), "-c", str(root / "nginx.conf"),
                                "-e", str(root / "error.log")])
    try:
        deadline = Deadline(60)
        while True:
            with contextlib.suppress(OSError), socket.create_connection(
                    ("127.0.0.1", made._port), 1):
                break
            assert process.poll() is None, (root / "error.log").read_text()
            assert not deadline.passed()
            time.sleep(0.05)
        yield made
    finally:
        process.terminate()
        process.wait()
        origin.shutdown()
        origin.server_close()
