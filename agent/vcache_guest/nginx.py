# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache-guest-nginx``: nginx's proxy cache on a part of the elastic SSD.

nginx was chosen because the size of its cache can change while it runs: after a reload with another
``max_size``, the index in shared memory stays, and only what is too much is evicted, the least
recently used first. Others cannot: memcached's extstore and varnish's file storage have the size
of their start, Apache Traffic Server reads its storage only then, and squid's rock store as well.

A shrink tells nginx the new limit, waits until it has evicted enough, shrinks the file system
(:mod:`vcache_guest.volume`), and gives the blocks up. What nginx still has stays.
"""

import argparse
import contextlib
import ctypes
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vcache_guest.app_server import SOCKET
from vcache_guest.blocks import Ranges, count
from vcache_guest.dm import Dm, DmError
from vcache_guest.libvssd import LIBRARY, Info, Vssd
from vcache_guest.protocol import Range
from vcache_guest.volume import FullError, Volume, VolumeError

LOG = logging.getLogger(__name__)

MIB = 1 << 20

#: The part of the file system that nginx may use; the rest is for metadata, and for what btrfs
#: needs to move data when it shrinks.
PART = 0.7

#: What nginx may keep in the folder itself while there is no file system, in MiB.
WITHOUT = 16

#: The part of a smaller file system that may be full when it shrinks.
FULL = 0.8

# How often it is looked whether nginx has evicted enough, in seconds.
_LOOK = 1.0
# After so many looks at which the file system was not emptier than before, nginx's limit is
# lowered by this factor. btrfs frees what was deleted some seconds later.
_STALLS, _LOWER = 5, 0.9
_PR_SET_PDEATHSIG = 1

_CONFIG = """\
# Written by vcache-guest-nginx. Use the cache by "proxy_cache {zone};".
proxy_cache_path {folder} levels=1:2 keys_zone={zone}:{keys}m max_size={size}m inactive={inactive}
    use_temp_path=off;
"""


class Server(Protocol):
    """What is used of :class:`Nginx`."""

    def limit(self, mib: int) -> None:
        """Change the size of its cache."""


class Nginx:
    """nginx's configuration of one cache.

    :param config: file for it, which nginx includes
    :param pid: file with the number of nginx's process
    :param folder: of the cache
    :param zone: name of the cache
    :param keys: size of its index in MiB; 1 MiB has about 8000 entries
    :param inactive: after that, what nobody has asked for is removed
    """

    def __init__(self, config: str, pid: str, folder: str, *, zone: str = "vcache", keys: int = 16,
                 inactive: str = "30d") -> None:
        self._config, self._pid = Path(config), Path(pid)
        self._values = {"folder": folder, "zone": zone, "keys": keys, "inactive": inactive}

    def limit(self, mib: int) -> None:
        """Change the size of its cache.

        :param mib: in MiB, at least 1
        :raises OSError: if its configuration cannot be written
        """
        new = self._config.with_name(f"{self._config.name}.new")
        new.write_text(_CONFIG.format(**self._values, size=mib))
        new.replace(self._config)
        # If it does not run, it reads the file when it is started.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int(self._pid.read_text()), signal.SIGHUP)


class WebCache:
    """The application: follows grants and requests.

    :param volume: the file system
    :param server: whose cache is on it
    :param clock: seconds
    """

    def __init__(self, volume: Volume, server: Server,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._volume, self._server, self._clock = volume, server, clock
        #: Gives up blocks; set when connected.
        self.give: Callable[[Ranges], None] = lambda _: None
        # How many blocks are asked for, and how many MiB nginx was told.
        self._asked = self._limit = self._block_bytes = 0
        # What may be in use for the next attempt to shrink, in bytes; None: there was none.
        self._most: int | None = None
        # When to look again, how full it was at the last look, and for how many looks.
        self._next, self._used, self._stalls = 0.0, 0, 0

    @property
    def busy(self) -> bool:
        """Whether :meth:`step` has something to do."""
        return self._asked > 0

    def ready(self, info: Info) -> None:
        """The disk is known."""
        self._volume.disk(info.path, info.block_bytes)
        self._block_bytes = info.block_bytes

    def grant(self, ranges: tuple[Range, ...]) -> None:
        """Use more blocks."""
        try:
            self._volume.grow(ranges)
        except VolumeError as error:
            LOG.error("%s", error)
        self._begin()

    def _begin(self) -> None:
        # Also if the size is the same: nginx gives a new folder to its user when it is reloaded.
        self._limit = 0
        self._tell(self._capacity(self._volume.size))

    def reclaim(self, blocks: int, seconds: float | None) -> None:
        """Begin to give up blocks."""
        LOG.info("%d blocks are asked for", blocks)
        self._asked, self._next, self._stalls = blocks, 0.0, 0
        # When nothing is asked for any more, the limit grows again.
        self._tell(self._capacity(self._volume.size - blocks))
        self.step()

    def forced(self, ranges: tuple[Range, ...]) -> None:
        """Begin with an empty cache on the blocks that are left.

        :raises VolumeError: if the file system may still write to the lost blocks
        """
        lost = count(ranges)
        LOG.warning("%d blocks were taken; the cache is empty now", lost)
        self._asked = max(self._asked - lost, 0)
        self._volume.lose(ranges)
        self._begin()

    def step(self) -> None:
        """Go on with what is asked for: shrink as soon as nginx has evicted enough."""
        if not self._asked or self._clock() < self._next:
            return
        rest = self._volume.size - self._asked
        if self._volume.mounted and rest >= self._volume.least and \
                self._volume.used() > rest * self._block_bytes * FULL:
            self._wait()
            return
        try:
            given = self._volume.shrink(self._asked)
        except FullError as error:
            LOG.info("%s", error)
            self._wait()
            return
        except VolumeError as error:
            # The blocks are taken at the deadline.
            LOG.error("%s", error)
            self._asked = 0
            return
        self._asked = 0
        self.give(given)
        self._tell(self._capacity(self._volume.size))

    def _wait(self) -> None:
        """Look again later. If nginx does not evict any more, it has to have less."""
        self._next = self._clock() + _LOOK
        used = self._volume.used()
        self._stalls = 0 if used < self._used else self._stalls + 1
        self._used = used
        if self._stalls >= _STALLS:
            self._stalls = 0
            self._tell(max(int(self._limit * _LOWER), 1))

    def _lower(self) -> None:
        """Have nginx evict more, and wait until half of that has had an effect."""
        used = self._volume.used()
        limit = max(int(min(self._limit, used // MIB) * _LOWER), 1)
        self._most = used - (used - limit * MIB) // 2
        self._tell(limit)

    def close(self) -> None:
        """Stop using all blocks.

        :raises VolumeError: if that is not possible
        """
        self._asked = 0
        self._volume.destroy()
        self._volume.order = []
        self._tell(WITHOUT)

    def _capacity(self, blocks: int) -> int:
        """Return what nginx may use of so many blocks, in MiB."""
        if not self._volume.mounted or blocks < self._volume.least:
            return WITHOUT
        return max(int(blocks * self._block_bytes * PART) // MIB, 1)

    def _tell(self, mib: int) -> None:
        if mib != self._limit:
            try:
                self._server.limit(mib)
            except OSError as error:
                LOG.error("nginx: %s", error)
                return
            self._limit = mib


def serve(vssd: Vssd, web: WebCache, stop: int) -> int:
    """Follow vcache-guest until there is something to read at `stop`. Return the exit status."""
    web.give = vssd.give
    poll = select.poll()
    for fd in vssd.fileno(), stop:
        poll.register(fd, select.POLLIN)
    try:
        while True:
            ready = [fd for fd, _ in poll.poll(_LOOK * 500 if web.busy else None)]
            if stop in ready:
                return 0
            if ready:
                vssd.dispatch()
            web.step()
    except VolumeError as error:
        LOG.error("%s", error)
        return 1
    except OSError as error:
        LOG.error("vcache-guest: %s", error)
        return 1
    finally:
        web.close()


def _signals() -> int:
    reader, writer = os.pipe()
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: os.write(writer, b"\0"))
    return reader


def _worker(vssd: Vssd, web: WebCache, parent: int) -> int:
    """Run in a process of its own, which ends with its parent."""
    stop = _signals()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        web.close()
        return 1
    return serve(vssd, web, stop)


def guarded(vssd: Vssd, web: WebCache, volume: Volume) -> int:
    """Serve in a child process, and clean up after it however it ends.

    vcache-guest gives the blocks to others when the connection ends. That is when both processes
    have closed it: so even a child that is killed leaves no file system that writes to them.
    """
    parent = os.getpid()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = _worker(vssd, web, parent)
        except (VolumeError, DmError, OSError) as error:
            LOG.error("%s", error)
        finally:
            os._exit(status)
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Not before the file system is gone.
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, signal.SIG_IGN)
    _clean(volume)
    return status if status >= 0 else 1


def _clean(volume: Volume) -> None:
    """Remove what the child has left, however long that takes: others get the blocks then."""
    said = ""
    while True:
        try:
            volume.clean()
        except VolumeError as error:
            if str(error) != said:
                said = str(error)
                LOG.error("%s; trying again until nothing uses the blocks", said)
            time.sleep(_LOOK)
        else:
            return


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vcache-guest-nginx", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="/var/cache/vcache-nginx",
                        help="where the cache is mounted (%(default)s)")
    parser.add_argument("--config", default="/etc/nginx/conf.d/vcache.conf",
                        help="file to write that nginx includes (%(default)s)")
    parser.add_argument("--pid", default="/run/nginx.pid",
                        help="file with the number of nginx's process (%(default)s)")
    parser.add_argument("--zone", default="vcache", help="name of the cache (%(default)s)")
    parser.add_argument("--weight", type=int, default=100, help="1 to 1000 (%(default)s)")
    parser.add_argument("--min", type=int, default=0, metavar="BLOCKS",
                        help="minimum in blocks (%(default)s)")
    parser.add_argument("--name", default="nginx", help="name of the application (%(default)s)")
    parser.add_argument("--socket", default=SOCKET, help="of vcache-guest (%(default)s)")
    parser.add_argument("--library", default=LIBRARY, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run until a signal, or until vcache-guest ends. Return the exit status."""
    options = _arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        volume = Volume(Dm(), f"vcache-{options.name}", options.folder)
        volume.clean()
        # Sites may refer to the cache at once.
        web = WebCache(volume, Nginx(options.config, options.pid, options.folder,
                                     zone=options.zone))
        web.close()
        vssd = Vssd(web, options.socket, options.library)
        vssd.register(options.name, options.weight, options.min)
        return guarded(vssd, web, volume)
    except (OSError, VolumeError) as error:
        LOG.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
