# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache-guest``: keeps a cache on the elastic SSD of this instance.

It serves one origin. Start it before the file systems on the device it makes are mounted: that
device is there at once, and gets a cache when the host answers.
"""

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vcache_guest.app_server import SOCKET, AppServer
from vcache_guest.cache import Cache, CacheError
from vcache_guest.dm import Dm, DmError
from vcache_guest.guest import Guest
from vcache_guest.protocol import PREAMBLE, Decoder, encode
from vcache_guest.shared import Disk, Shared, SharedGuest
from vcache_guest.shares import WEIGHT, WEIGHTS, Claim

LOG = logging.getLogger(__name__)

#: The port of the channel, by the name that the host gives it.
PORT = "/dev/virtio-ports/org.nova-vcache.vssd"

#: How often the guest says hello until the host answers, in seconds.
HELLO_EVERY = 5.0

_CHUNK = 1 << 16
# Seconds before the port is used again after the host has disconnected.
_AGAIN = 1.0


def find_disk(serial: str, root: Path = Path("/sys/block")) -> str:
    """Return the path of the disk with a serial number.

    :raises CacheError: if there is none
    """
    for disk in sorted(root.iterdir()):
        try:
            text = (disk / "serial").read_text()
        except OSError:
            continue
        if text.strip() == serial:
            return f"/dev/{disk.name}"
    raise CacheError(f"no disk has the serial number {serial!r}")


def wait(fds: Sequence[int], seconds: float) -> list[int]:
    """Return which files can be read; wait up to some seconds for one."""
    return select.select(fds, [], [], seconds)[0]


class _Stopped(Exception):
    """The daemon has to stop."""


class Daemon:
    """The guest at its end of the channel.

    A virtio-serial port has no connections: while nothing is connected on the host, reads return
    nothing and writes wait.

    :param guest: what to do
    :param fd: the channel, which is read and written as a stream
    :param waits: as :func:`wait`; may do other work meanwhile
    """

    def __init__(self, guest: Guest, fd: int,
                 waits: Callable[[Sequence[int], float], list[int]] = wait) -> None:
        self._guest, self._fd, self._waits, self._stop = guest, fd, waits, -1
        self._decoder = Decoder()
        os.set_blocking(fd, False)

    def run(self, stop: int = -1) -> bool:
        """Serve until the host disconnects, or until there is something to read at `stop`.

        :return: whether the host has disconnected
        """
        self._stop, self._decoder = stop, Decoder()
        try:
            # Bytes of a frame that an earlier daemon has begun.
            self._write(PREAMBLE)
            self._hello()
            while self._wait(HELLO_EVERY):
                pass
        except _Stopped:
            return False
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait for the host, and handle what it says. Return False if it has disconnected."""
        ready = self._waits([self._fd, *self._stops()], seconds)
        if self._stop in ready:
            raise _Stopped
        if ready:
            return self._read()
        if not self._guest.welcome:
            self._hello()
        return True

    def _stops(self) -> list[int]:
        return [self._stop] if self._stop >= 0 else []

    def _hello(self) -> None:
        self._write(encode(self._guest.hello()))

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return True
        for message in self._decoder.feed(data):
            LOG.info("host: %s", message)
            for answer in self._guest.received(message):
                self._write(encode(answer))
        return bool(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view):]
            except BlockingIOError:
                if select.select(self._stops(), [self._fd], [])[0]:
                    raise _Stopped from None


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vcache-guest", description=__doc__.splitlines()[0])
    parser.add_argument("--origin", help="the slow disk, which nobody else uses; without one, "
                        "there is no cache, and applications have all")
    parser.add_argument("--name", default="vcache", help="name of the device to make (%(default)s)")
    parser.add_argument("--port", default=PORT, help="channel to the host (%(default)s)")
    parser.add_argument("--disk", help="the elastic SSD; default: by the serial number from the "
                        "host")
    parser.add_argument("--writeback", action="store_true",
                        help="keep written data in the cache only; blocks that the host takes by "
                        "force are lost then")
    parser.add_argument("--socket", default=SOCKET, help="where applications connect that share "
                        "the elastic SSD (%(default)s); empty: none can")
    parser.add_argument("--group", help="who may connect beside root; default: nobody")
    parser.add_argument("--weight", type=int, default=WEIGHT,
                        help="weight of the cache among the applications, 1 to 1000 (%(default)s)")
    parser.add_argument("--min", type=int, default=0, metavar="BLOCKS",
                        help="minimum of the cache in blocks (%(default)s)")
    options = parser.parse_args(words)
    if not WEIGHTS[0] <= options.weight <= WEIGHTS[1]:
        parser.error(f"--weight {options.weight}, must be {WEIGHTS[0]} to {WEIGHTS[1]}")
    if options.min < 0:
        parser.error(f"--min {options.min}, must be 0 or more")
    if not options.origin and not options.socket:
        parser.error("without --origin and --socket, nobody could use the elastic SSD")
    return options


def _consumers(options: argparse.Namespace) -> tuple[Guest, AppServer | None]:
    """Set up the users of the elastic SSD.

    :raises OSError: if that is not possible
    """
    cache, boot = None, os.urandom(16)
    if options.origin:
        cache = Cache(Dm(), options.name, options.origin, writeback=options.writeback)
        cache.open()

    def find(serial: str) -> str:
        return options.disk or find_disk(serial)

    if cache is not None and not options.socket:
        return Guest(cache, find, boot), None
    shared = Shared(cache, Claim(options.weight, options.min), Disk())
    return SharedGuest(shared, find, boot), AppServer(shared, options.socket, options.group)


def main(words: Sequence[str] | None = None) -> int:
    """Run the daemon until a signal. Return the exit status.

    The cache stays: file systems may be mounted on it.
    """
    options = _arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        guest, server = _consumers(options)
        channel = os.open(options.port, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, LookupError) as error:
        LOG.error("%s", error)
        return 1
    waits = server.wait if server else wait
    reader, writer = os.pipe()
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: os.write(writer, b"\0"))
    try:
        daemon = Daemon(guest, channel, waits)
        while daemon.run(reader):
            guest.ended()
            LOG.info("the host has disconnected")
            if waits([reader], _AGAIN):
                break
    except (OSError, DmError) as error:
        LOG.error("%s: %s", options.port, error)
        return 1
    finally:
        if server:
            server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
