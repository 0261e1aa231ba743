# SPDX-License-Identifier: Apache-2.0
"""The program that looks up paths for the agent, because a look-up can block for ever.

Neither a thread nor a process that waits for a device or a server in the kernel can be
stopped. But a thread would keep the agent's process, with its lock and its sockets, and so
prevent a restart of the agent. A process of its own does not.

The program gets a socket (SOCK_SEQPACKET) as its first argument. It sends ``R`` when it is
ready. A request is a JSON list
of ``[path, extents]``. For each path in turn the program sends messages whose first byte
is their kind:

``P``
    no content: reading the extents makes progress
``E``
    a part of the extents: start and length of each, in sectors, 8 bytes each
``A``
    the answer, a JSON object, after which the next path follows

The program ends when the socket is closed.
"""

import json
import os
import socket
import stat
import sys
import time
from typing import Any

from vcache_agent import fiemap, inode

#: Largest size of a request, and of an answer's message.
REQUEST_BYTES = 64 << 10
MESSAGE_BYTES = 64 << 10
_PART_BYTES = 32 << 10
_PROGRESS_S = 0.1

# Nanoseconds after its last change during which the extents of a file may still change
# without a change of its times or blocks. A file system sets the time and allocates the
# blocks when a write begins, and marks the extents as written when it ends. The value is
# above the block layer's timeout of a request (30 s).
SETTLE_NS = 60 * 10**9

Json = dict[str, Any]


def serve(connection: socket.socket) -> None:
    """Answer requests until the socket is closed."""
    while request := connection.recv(REQUEST_BYTES):
        for path, extents in json.loads(request):
            try:
                answer = _look(connection, path, extents)
            except OSError as error:
                answer = {"errno": error.errno, "error": error.strerror}
            connection.send(b"A" + json.dumps(answer).encode())


def _look(connection: socket.socket, path: str, extents: bool) -> Json:
    # The path comes from libvirt, not from the guest, so symbolic links are followed.
    status = os.stat(path)
    # A block device need not be opened, and another kind of file must not be.
    if stat.S_ISBLK(status.st_mode):
        return {"block": [os.major(status.st_rdev), os.minor(status.st_rdev)]}
    if not stat.S_ISREG(status.st_mode):
        return {"other": True}
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return _file(connection, fd, extents)
    finally:
        os.close(fd)


def _file(connection: socket.socket, fd: int, extents: bool) -> Json:
    status = os.fstat(fd)
    now = time.time_ns()
    answer: Json = {
        "device": [os.major(status.st_dev), os.minor(status.st_dev)], "inode": status.st_ino,
        "generation": inode.generation(fd),
        # The first write to a preallocated extent changes neither size nor blocks, but it
        # changes the times.
        "status": [status.st_size, status.st_blocks, status.st_mtime_ns, status.st_ctime_ns]}
    if extents:
        began, told = time.process_time(), time.monotonic()

        def progress() -> None:
            nonlocal told
            if time.monotonic() - told > _PROGRESS_S:
                connection.send(b"P")
                told = time.monotonic()

        try:
            found, unwritten = fiemap.read(fd, progress)
        except fiemap.FiemapError as error:
            failed = isinstance(error, fiemap.FiemapFailed)
            return answer | {"extents_error": str(error), "failed": failed}
        for at in range(0, len(found), _PART_BYTES):
            connection.send(b"E" + found[at:at + _PART_BYTES])
        answer |= {
            "unwritten": unwritten, "cost": time.process_time() - began,
            "settled": now - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLE_NS}
    return answer


def main() -> int:
    """Serve the socket whose number is the first argument."""
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            connection.send(b"R")
            serve(connection)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the agent has closed it
    return 0


if __name__ == "__main__":
    sys.exit(main())
