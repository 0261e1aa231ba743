# SPDX-License-Identifier: Apache-2.0
"""Set up pools, devices and elastic SSDs after a start of the host, as ``setup.conf`` says.

A device that appears late is waited for. If a cache device is missing, a device without dirty data
in it continues in mode ``flush-only``, with a warning. A device with dirty data is not made
available, because its origin has older data: what mounts it fails.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vcache_agent import above, attach, owners, pools
from vcache_agent.boot.clean_records import CleanRecords
from vcache_agent.boot.generator import attach_unit
from vcache_agent.boot.setup_file import NO_POOL, AttachLine, PoolLine, VssdLine
from vcache_agent.dm import Dm, DmError, block_number
from vcache_agent.pools import PoolError
from vcache_agent.store import Store
from vcache_agent.vssd import devices

_LOOK = 0.2
_BLOCK = 4096

Say = Callable[[str], None]
#: Opens the store and takes the lock of the commands that change devices; waits for it.
OpenStore = Callable[[], contextlib.AbstractContextManager[Store]]


def wait_for(path: str, seconds: float) -> bool:
    """Wait until a block device exists.

    :return: whether it does
    """
    limit = time.monotonic() + seconds
    while block_number(path) is None:
        if time.monotonic() > limit:
            return False
        time.sleep(_LOOK)
    return True


def start_pool(dm: Dm, line: PoolLine) -> str:
    """Activate a pool. Return a message.

    :raises PoolError: if its device is missing, or has no pool
    """
    if dm.info(line.name) is None:
        if not wait_for(line.device, line.timeout):
            raise PoolError(f"pool {line.name}: its cache device {line.device} did not appear "
                            f"within {line.timeout} s")
        _check_has_pool(line)
    return pools.create(dm, line.name, line.device, None, dict(line.percents), line.lanes)


def _check_has_pool(line: PoolLine) -> None:
    """Refuse an empty device, on which a new pool would be created.

    :raises PoolError: if it is empty, or cannot be read
    """
    try:
        with open(line.device, "rb", buffering=0) as file:
            empty = not any(file.read(_BLOCK))
    except OSError as error:
        raise PoolError(f"pool {line.name}: {line.device}: {error.strerror}") from None
    if empty:
        raise PoolError(f"pool {line.name}: there is no pool on {line.device}. If this is a new "
                        f"cache device, run 'vcache pool create {line.name} {line.device}'")


def start_vssd(dm: Dm, open_store: OpenStore, line: VssdLine) -> str:
    """Make an elastic SSD. Return a message.

    :raises PoolError: if its pool is not active, or it cannot be made
    """
    with open_store() as store:
        devices.create(dm, store, devices.Wanted(line.name, line.pool, line.most, line.size,
                                                 line.persist, line.volume))
    return f"elastic SSD {line.name} is active"


class Devices:
    """Sets up attached devices.

    :param state: path of the agent's store
    :param say: called with warnings
    """

    def __init__(self, dm: Dm, state: Path, open_store: OpenStore, say: Say) -> None:
        self._dm = dm
        self._records = CleanRecords(state)
        self._open_store = open_store
        self._say = say

    def start(self, line: AttachLine, *, without_cache: bool = False) -> str:
        """Attach a device. Return a message.

        :param without_cache: do not use its pool, and accept the older data of the origin
        :raises PoolError: if that is not possible
        """
        if not wait_for(line.device, line.timeout):
            raise PoolError(f"{line.device} did not appear within {line.timeout} s")
        with self._open_store() as store:
            if line.pool == NO_POOL:
                return self._plain(line)
            identity = self._identity(line)
            missing = "--without-cache was given" if without_cache else \
                self._missing(store, line, identity)
            if not missing:
                return self._cached(store, line, identity)
            return self._continue(store, line, identity, missing, accept=without_cache)

    def _identity(self, line: AttachLine) -> str:
        if line.above:
            return above.identity(self._dm, line.device)
        return pools.identity(pools.find(self._dm, line.device))

    def _missing(self, store: Store, line: AttachLine, identity: str) -> str:
        """Return what is wrong with the pool of a device; empty: nothing."""
        info = self._dm.info(line.pool)
        if info is None or not info.active:
            return f"pool {line.pool} is not active"
        found = pools.pool(self._dm, line.pool)
        if found.state != "ok":
            return f"pool {line.pool} is in state {found.state}"
        volume = store.volumes(line.pool).get(identity)
        if volume is not None and not self._records.has(line.pool, identity):
            with contextlib.suppress(DmError):
                # An older module cannot list them.
                there = {int(text.split()[0])
                         for text in self._dm.ask(line.pool, "labels").splitlines()}
                if volume not in there:
                    return f"pool {line.pool} has no volume {volume}, as if it were a new pool"
        return ""

    def _cached(self, store: Store, line: AttachLine, identity: str) -> str:
        clean = self._records.has(line.pool, identity)
        with self._no_record(line, identity, clean):
            try:
                return self._attach(store, line)
            except owners.OriginChanged as error:
                volume = store.volumes(line.pool).get(identity)
                if volume is None or not (clean or line.mode == "writethrough"):
                    raise
                self._say(f"WARNING: {error} Its cached data is clean and was discarded")
                owners.outdate(store, line.pool, identity, volume, clean=True)
                return self._attach(store, line)

    @contextlib.contextmanager
    def _no_record(self, line: AttachLine, identity: str, clean: bool) -> Iterator[None]:
        """Remove the record that a device is clean; restore it if the attach fails."""
        try:
            self._records.remove(line.pool, identity)
            yield
        except PoolError:
            if clean:
                self._records.put(line.pool, identity)
            raise
        except OSError as error:
            raise PoolError(f"the record that {line.device} is clean cannot be removed: "
                            f"{error.strerror}") from None

    def _attach(self, store: Store, line: AttachLine) -> str:
        function = above.attach_above if line.above else attach.attach
        return function(self._dm, store, line.device, line.pool, mode=line.mode,
                        scope=None if self._is_ours(line) else line.scope)

    def _is_ours(self, line: AttachLine) -> bool:
        """Return True if the device has the target already: its scope stays."""
        if line.above:
            return False
        info = pools.find(self._dm, line.device)
        return pools.mapping_of(self._dm, info) is not None

    def _plain(self, line: AttachLine) -> str:
        if line.above:
            return above.plain_above(self._dm, line.device, line.scope)
        return attach.attach_plain(self._dm, line.device, line.scope)

    def _continue(self, store: Store, line: AttachLine, identity: str, missing: str, *,
                  accept: bool) -> str:
        """Set up a device without its cache, if that loses nothing."""
        clean = line.mode == "writethrough" or self._records.has(line.pool, identity)
        if not clean and not accept:
            unit = attach_unit(line.device)
            raise PoolError(
                f"{line.device} is not made available: {missing}, and the cache has, or may have, "
                f"data that {line.device} does not have. Connect the cache device, then run "
                f"'systemctl start {unit}'. If it is lost, run 'vcache setup start {line.device} "
                "--without-cache': the data that only the cache has is lost then")
        volume = store.volumes(line.pool).get(identity)
        if volume is not None:
            owners.outdate(store, line.pool, identity, volume, clean=clean)
        done = self._plain(line)
        self._say(f"WARNING: {line.device} continues WITHOUT ITS CACHE: {missing}. "
                  + ("No data is lost" if clean else "Data that only the cache had is lost"))
        return done

