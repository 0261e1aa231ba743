# SPDX-License-Identifier: Apache-2.0
"""Stop pools and devices cleanly when the host stops.

The devices are removed, which writes out their buffers, and then the pools, which writes a
checkpoint: the next start replays nothing. Dirty data stays in the cache, except what can be
destaged in a short time. A device that is still in use is left as it is; that is like a power cut,
after which nothing is lost either.
"""

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path

from vcache_agent import attach, origin_stamp, owners, pools, sysfs
from vcache_agent.boot.clean_records import CleanRecords
from vcache_agent.dm import HIDDEN, Dm, DmError
from vcache_agent.pools import Member, PoolError
from vcache_agent.vssd import devices

#: Seconds for which dirty data of all devices together is destaged.
DRAIN_S = 10.0
# Seconds to wait until udev has closed a device.
_BUSY_S = 5.0
_LOOK = 0.1
# States of a cache in which a drain makes progress.
_GOES_ON = ("dirty", "draining")

Say = Callable[[str], None]


def stop(dm: Dm, state: Path, say: Say, drain_s: float = DRAIN_S, wait_s: float = 0.0) -> None:
    """Remove all devices and elastic SSDs that are not in use, and all pools that none uses.

    :param state: path of the agent's store
    :param drain_s: seconds for which dirty data is destaged
    :param wait_s: seconds to wait until devices are no longer in use
    """
    limit = time.monotonic() + wait_s
    while time.monotonic() < limit and _in_use(dm):
        time.sleep(_LOOK)
    found = []
    for member in pools.members(dm):
        if member.info.opened:
            say(f"{member.info.name} is in use and stays")
        else:
            found.append(member)
    _drain(dm, found, drain_s)
    records = CleanRecords(state)
    for member in found:
        try:
            _stop_device(dm, records, member, say)
        except (DmError, PoolError, OSError) as error:
            say(f"{member.info.name}: {error}")
    for info in (vssd.info for vssd in devices.every(dm)):
        if info.opened:
            say(f"{info.name} is in use and stays")
            continue
        # Without persist its content ends here.
        try:
            _remove(dm, info.name)
            say(f"elastic SSD {info.name} is stopped")
        except DmError as error:
            say(f"{info.name}: {error}")
    for pool in pools.pools(dm):
        if not pools.members(dm, pool) and not devices.every(dm, pool.info.number):
            try:
                _remove(dm, pool.info.name)
                say(f"pool {pool.info.name} is stopped")
            except DmError as error:
                say(f"pool {pool.info.name}: {error}")


def _in_use(dm: Dm) -> bool:
    return any(member.info.opened for member in pools.members(dm)) \
        or any(vssd.info.opened for vssd in devices.every(dm))


def _drain(dm: Dm, members: list[Member], seconds: float) -> None:
    """Write out buffers, and destage dirty data for a limited time."""
    pending = []
    limit = time.monotonic() + seconds
    for info in (member.info for member in members if member.mapping.pool):
        # What leaves the buffer becomes dirty.
        with contextlib.suppress(DmError, PoolError):
            attach.flush(info)
            cache = pools.cache_state(dm, info)
            if cache and cache.dirty:
                dm.message(info.name, "drain")
                pending.append(info)
    while pending and time.monotonic() < limit:
        time.sleep(_LOOK)
        pending = [info for info in pending
                   if (cache := pools.cache_state(dm, info)) and cache.state in _GOES_ON]


def _stop_device(dm: Dm, records: CleanRecords, member: Member, say: Say) -> None:
    info, mapping = member.info, member.mapping
    pool = dm.info(mapping.pool) if mapping.pool else None
    attach.flush(info)
    cache = pools.cache_state(dm, info)
    clean = cache is not None and cache.state == "clean"
    identity = pools.identity(info)
    hidden = attach.origin_of(dm, mapping)
    _remove(dm, info.name)
    if pool is not None and cache is not None and cache.state not in pools.FAILED:
        # From here on nobody writes to the origin.
        stamp = origin_stamp.stamp(hidden.path if hidden else sysfs.node(mapping.origin))
        with contextlib.suppress(DmError):
            owners.write_label(dm, pool.name, mapping.volume, identity, stamp)
        if clean:
            try:
                records.put(pool.name, identity)
            except OSError as error:
                # Such as /var on a file system that is not mounted any more.
                say(f"{info.name}: cannot record that it is clean: {error.strerror}")
    if hidden is not None:
        _remove(dm, hidden.name)
    say(f"{info.name} is stopped, its cache is {'clean' if clean else 'dirty'}")


def _remove(dm: Dm, name: str) -> None:
    """Remove a device, which udev may have open for a moment."""
    limit = time.monotonic() + _BUSY_S
    while True:
        try:
            return dm.remove(name, HIDDEN if name.endswith(attach.SUFFIX) else 0)
        except DmError as error:
            if error.errno != errno.EBUSY or time.monotonic() > limit:
                raise
        time.sleep(_LOOK)
