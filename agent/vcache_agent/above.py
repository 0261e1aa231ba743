# SPDX-License-Identifier: Apache-2.0
"""Add a cache above a device whose own table cannot move to a second device.

Such devices are those of multipath, whose daemon owns their table, of dm-crypt, whose key
may not be readable, and RBD images of krbd, which have no table. A new mapped device,
``<name>-vcache``, gets a table of the target with the present one as its origin. So the
path changes, and nothing may use the present device meanwhile.

If a call is killed, the new device does not exist, has no table, or is complete. The next
call continues.
"""

import contextlib
import dataclasses
import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from vcache_agent import attach, owners, pools, sysfs
from vcache_agent.dm import NAME_MAX, Dm, DmError, Info, KernelWords, block_number
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import Mapping, Pool, PoolError
from vcache_agent.store import Store

SUFFIX = "-vcache"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9#+.:=@_-]")
_UUID_MAX = 128
_PROC = Path("/proc")


class Origin(NamedTuple):
    """A device that gets a cache above it.

    :param path: as the caller names it
    :param number: its number
    :param name: a name that stays the same over restarts
    :param identity: what distinguishes it from all other devices of the host, for ever
    :param sectors: its size
    """

    path: str
    number: DeviceNumber
    name: str
    identity: str
    sectors: int


def attach_above(dm: Dm, store: Store, device: str, pool: str, *, mode: str = "writeback",
                 volume: int | None = None, scope: str | None = None,
                 recover: bool = False, force: bool = False) -> str:
    """Add a cache above a device. Return a message, which names the new device.

    The parameters are those of :func:`attach.attach`.

    :raises PoolError: if that is not possible; there is no new device then
    """
    found, origin = pools.pool(dm, pool), _origin(dm, device)
    name, uuid = origin.name + SUFFIX, identity(dm, device)
    if len(name) > NAME_MAX:
        raise PoolError(f"the name {origin.name} is too long, must have at most "
                        f"{NAME_MAX - len(SUFFIX)} characters")
    there = dm.info(name)
    if there is not None and there.uuid != uuid:
        raise PoolError(f"a mapped device {name} already exists and is not above {device}")
    if there is not None and there.active:
        done = attach.attach(dm, store, name, pool, mode=mode, volume=volume, scope=scope,
                             recover=recover, force=force)
        return f"{done}, above {device}"
    if there is not None:
        dm.remove(name)  # left by a call that was killed
    _check(dm, origin, found)
    chosen = _create(dm, store, origin, found, Mapping(
        origin.sectors, mode, origin.number, attach.scope_of(dm, None, name, scope),
        pool=found.info.number, volume=volume or 0), name, uuid, recover=recover, force=force)
    return (f"{name} is volume {chosen} of pool {found.info.name}, mode {mode}; use "
            f"/dev/mapper/{name} instead of {device}")


def identity(dm: Dm, device: str) -> str:
    """Return the identity that the device above another one has in the store.

    :raises PoolError: if there cannot be one
    """
    return (attach.ABOVE_UUID + _origin(dm, device).identity)[:_UUID_MAX]


def origin_path(dm: Dm, info: Info) -> str | None:
    """Return the path of the device below one that was created above it; None for another one."""
    mapping = pools.mapping_of(dm, info)
    if mapping is None or not info.uuid.startswith(attach.ABOVE_UUID):
        return None
    lower = dm.info(mapping.origin) if sysfs.is_mapped(mapping.origin) else None
    return f"/dev/mapper/{lower.name}" if lower else sysfs.node(mapping.origin)


def plain_above(dm: Dm, device: str, scope: str | None) -> str:
    """Create a device in mode flush-only above a device. Return a message.

    :param scope: ``volume <tag>`` or ``filesystem``
    :raises PoolError: if that is not possible
    """
    origin = _origin(dm, device)
    name, uuid = origin.name + SUFFIX, identity(dm, device)
    there = dm.info(name)
    if there is not None and (there.uuid != uuid or there.active):
        if there.uuid == uuid:
            return f"{name} is there already"
        raise PoolError(f"a mapped device {name} already exists and is not above {device}")
    if there is not None:
        dm.remove(name)  # left by a call that was killed
    _check_unused(dm, origin)
    words = KernelWords()
    dm.create(name, uuid)
    try:
        dm.load(name, [Mapping(origin.sectors, "flush-only", origin.number,
                               attach.scope_of(dm, None, name, scope)).line()])
        dm.resume(name)
    except (DmError, PoolError) as error:
        dm.remove(name)
        raise PoolError(f"no device above {device}: {words.last() or error}") from None
    finally:
        words.close()
    return f"{name} is in mode flush-only, without a cache"


def _create(dm: Dm, store: Store, origin: Origin, found: Pool, wanted: Mapping, name: str,
            uuid: str, *, recover: bool, force: bool) -> int:
    """Create the new device; return its volume number.

    :raises PoolError: if that is not possible; there is no new device then
    """
    words = KernelWords()
    dm.create(name, uuid)
    try:
        made = dm.info(name)
        assert made is not None  # noqa: S101 - it was made just now
        chosen = owners.allocate(dm, store, found, made, wanted.volume or None,
                                  origin=sysfs.node(origin.number), recover=recover, force=force)
        dm.load(name, [dataclasses.replace(wanted, volume=chosen).line()])
        dm.resume(name)
    except BaseException as error:
        with contextlib.suppress(DmError):
            dm.remove(name)
        if isinstance(error, DmError):
            raise PoolError(f"no cache above {origin.path}: {words.last() or error.strerror}") \
                from None
        raise
    finally:
        words.close()
    return chosen


def _origin(dm: Dm, device: str) -> Origin:
    """Return the device that gets a cache.

    :raises PoolError: if it cannot get one above it
    """
    number = block_number(device)
    info = dm.info(number or device) if number or "/" not in device else None
    if info is not None:
        return _mapped(dm, device, info)
    image = sysfs.rbd(number) if number else None
    if number is None or image is None:
        raise PoolError(f"{device} is neither a mapped device nor an RBD image of krbd; the name "
                        "of a plain disk, such as sda, may be another disk's after a restart")
    return Origin(device, number, _NOT_IN_NAMES.sub("_", f"rbd-{image.pool}-{image.name}"),
                  f"RBD-{image.identity}", sysfs.sectors(number))


def _mapped(dm: Dm, device: str, info: Info) -> Origin:
    lines = dm.table(info.name)
    targets = {line.target for line in lines}
    if not lines or info.readonly:
        raise PoolError(f"{info.name} must be writable and have a table")
    if targets & {pools.TARGET, pools.POOL_TARGET}:
        raise PoolError(f"{info.name} is a device of the target {pools.TARGET} itself; omit "
                        "--above")
    if targets <= set(attach.TWICE):
        raise PoolError(f"{info.name} has dm target {', '.join(sorted(targets))}, so its path can "
                        "stay: omit --above")
    return Origin(device, info.number, info.name, pools.identity(info), attach.length_of(lines))


def _check(dm: Dm, origin: Origin, found: Pool) -> None:
    """Refuse a pool that does not work, and a device that is below the pool or in use."""
    if found.state != "ok":
        raise PoolError(f"pool {found.info.name} is in state {found.state}, must be in state ok")
    if origin.number in sysfs.below([found.info.number, found.cache]):
        raise PoolError(f"pool {found.info.name} is itself on {origin.path}")
    _check_unused(dm, origin)


def _check_unused(dm: Dm, origin: Origin) -> None:
    """Refuse a device that is in use."""
    info = dm.info(origin.number)
    if (info is not None and info.opened) or _claimed(origin) or _opened(origin.number):
        raise PoolError(f"{origin.path} is in use: stop what uses it first. What writes to it "
                        "beside the cache destroys its data")


def _claimed(origin: Origin) -> bool:
    """Return True if a file system or another device uses a device."""
    try:
        os.close(os.open(sysfs.node(origin.number), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise PoolError(f"cannot use {origin.path}: {error.strerror}") from None
        return True
    return False


def _opened(number: DeviceNumber) -> bool:
    """Return True if a process has a device open."""
    for entry in _PROC.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            # Only a device's node is looked up: a look-up of another file might hang.
            if os.readlink(entry).startswith("/dev/"):
                status = entry.stat()
                if (os.major(status.st_rdev), os.minor(status.st_rdev)) == number:
                    return True
    return False
