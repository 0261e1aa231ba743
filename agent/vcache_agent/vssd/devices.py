# SPDX-License-Identifier: Apache-2.0
"""The elastic SSDs of this host: find, create and remove them."""

import dataclasses
import errno
import re
from typing import Any

from vcache_agent import pools, sysfs
from vcache_agent.dm import HIDDEN, NAME_MAX, Dm, DmError, Info, KernelWords, Line
from vcache_agent.model import SECTOR_BYTES, DeviceNumber
from vcache_agent.pools import PoolError
from vcache_agent.store import Store
from vcache_agent.vssd.device import TARGET

#: Begin of the UUIDs of elastic SSDs that the commands have made.
UUID = "VCACHE-VSSD-"
_NAME = re.compile(rf"[A-Za-z0-9#+.:=@_-]{{1,{NAME_MAX - len(UUID)}}}")
# Highest volume number that is tried in the search for a free one.
_TRIES = 4096


@dataclasses.dataclass(frozen=True)
class Vssd:
    """An elastic SSD, as the kernel reports it; sizes in blocks, except `block_bytes`.

    :param pool: device number of its pool
    :param volume: its volume in the pool
    :param persist: its content is kept when the device is removed
    :param block_bytes: size of a block
    :param most: size of the disk
    :param quota: how many it may own
    :param owned: how many it owns
    :param mapped: how many of these have data
    :param ready: how many of these can take data at once
    :param taken: blocks that fail because they were taken
    :param errors: requests that failed
    :param refused: writes that failed because no chunk was left
    """

    info: Info
    pool: DeviceNumber
    volume: int
    persist: bool
    block_bytes: int
    most: int
    quota: int
    owned: int
    mapped: int
    ready: int
    taken: int
    errors: int
    refused: int

    @property
    def settled(self) -> bool:
        """Whether it has as many blocks as its quota, and all without data are ready."""
        return self.owned == self.quota and self.ready == self.owned - self.mapped


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An elastic SSD to make; sizes in bytes, rounded up to whole blocks.

    :param pool: name of its pool
    :param volume: its volume in the pool; None: the one that it had, or a free one
    """

    name: str
    pool: str
    most: int
    size: int
    persist: bool = False
    volume: int | None = None


def read(dm: Dm, info: Info) -> Vssd | None:
    """Return an elastic SSD; None if the device is none."""
    lines = dm.table(info.name) if info.active else ()
    if len(lines) != 1 or lines[0].target != TARGET:
        return None
    pool, volume, _quota, *options = lines[0].arguments.split()
    block, *counts = map(int, dm.status(info.name)[0].arguments.split())
    return Vssd(info, sysfs.number(pool), int(volume), "persist" in options,
                block * SECTOR_BYTES, *counts[:8])


def every(dm: Dm, pool: DeviceNumber | None = None) -> list[Vssd]:
    """Return all elastic SSDs.

    :param pool: only those of this pool
    """
    found = (read(dm, info) for info in pools.devices(dm))
    return [one for one in found if one is not None and pool in (None, one.pool)]


def find(dm: Dm, name: str) -> Vssd:
    """Return an elastic SSD by name or path.

    :raises PoolError: if there is none
    """
    try:
        found = read(dm, pools.find(dm, name))
    except PoolError:
        found = None
    if found is None:
        there = ", ".join(one.info.name for one in every(dm)) or "none"
        raise PoolError(f"{name} is not an elastic SSD; those of this host: {there}")
    return found


def row(dm: Dm, found: Vssd) -> dict[str, Any]:
    """Return an elastic SSD as plain values; sizes in bytes."""
    pool = dm.info(found.pool)
    return {
        "name": found.info.name, "device": str(found.info.number), "path": path_of(found.info.name),
        "pool": pool.name if pool else str(found.pool), "volume": found.volume,
        "persist": found.persist, "block_bytes": found.block_bytes,
        **{f"{name}_bytes": getattr(found, field) * found.block_bytes for name, field in (
            ("max", "most"), ("size", "quota"), ("owned", "owned"), ("used", "mapped"),
            ("taken", "taken"))},
        "settled": found.settled, "errors": found.errors, "refused": found.refused}


def path_of(name: str) -> str:
    """Return the path of an elastic SSD for the XML of a domain."""
    return f"/dev/mapper/{name}"


def blocks_of(size: int, block_bytes: int) -> int:
    """Return the number of blocks for a size in bytes."""
    return -(-size // block_bytes)


def create(dm: Dm, store: Store, wanted: Wanted) -> Vssd:
    """Make an elastic SSD, or return one that is there and equal.

    The size of one that is there may differ: the agent may have changed it.

    :raises PoolError: if that is not possible
    """
    if not _NAME.fullmatch(wanted.name):
        raise PoolError(f"the name {wanted.name!r} must have 1 to {NAME_MAX - len(UUID)} "
                        "characters: letters, digits and #+-.:=@_")
    pool = pools.pool(dm, wanted.pool)
    if pool.state != "ok":
        raise PoolError(f"pool {wanted.pool} is in state {pool.state}, must be ok")
    most = blocks_of(wanted.most, pool.chunk_bytes)
    size = blocks_of(wanted.size, pool.chunk_bytes)
    if not 0 <= size <= most or not most:
        raise PoolError(f"{wanted.name}: the size must be at most the maximum, and the maximum "
                        "greater than 0")
    there = dm.info(wanted.name)
    if there is not None:
        found = read(dm, there)
        if found and (found.pool, found.most, found.persist) == (pool.info.number, most,
                                                                 wanted.persist):
            return found
        if there.active or there.uuid != UUID + wanted.name:
            raise PoolError(f"a mapped device {wanted.name} already exists and is another one")
        dm.remove(wanted.name)  # left by a call that was killed
    volume = _volume(dm, store, pool, wanted)
    _make(dm, wanted, Line(0, most * pool.chunk_bytes // SECTOR_BYTES, TARGET, " ".join(
        [str(pool.info.number), str(volume), str(size), *(["1 persist"] if wanted.persist
                                                          else [])])))
    return find(dm, wanted.name)


def _volume(dm: Dm, store: Store, pool: pools.Pool, wanted: Wanted) -> int:
    """Choose a volume, and save it in the store: nobody else is to get its number."""
    known, identity = store.volumes(pool.info.name), UUID + wanted.name
    others = {volume for owner, volume in known.items() if owner != identity}
    taken = others | volumes(dm, pool)
    chosen = wanted.volume or known.get(identity)
    if chosen is not None and chosen in taken:
        raise PoolError(f"volume {chosen} of pool {wanted.pool} belongs to another device")
    if chosen is None:
        there = taken | {int(line.split()[0])
                         for line in dm.ask(pool.info.name, "labels").splitlines()}
        chosen = next((number for number in range(1, _TRIES) if number not in there), None)
    if chosen is None:
        raise PoolError(f"pool {wanted.pool} has no free volume number below {_TRIES}")
    store.remember_volume(pool.info.name, identity, chosen)
    return chosen


def volumes(dm: Dm, pool: pools.Pool) -> set[int]:
    """Return the volumes of a pool that devices use."""
    used = {member.mapping.volume for member in pools.members(dm, pool)}
    return used | {one.volume for one in every(dm, pool.info.number)}


def _make(dm: Dm, wanted: Wanted, line: Line) -> None:
    words = KernelWords()
    dm.create(wanted.name, UUID + wanted.name)
    try:
        dm.load(wanted.name, [line])
        # What a guest writes is nothing that udev of this host may look at.
        dm.resume(wanted.name, HIDDEN)
    except DmError as error:
        dm.remove(wanted.name)
        raise PoolError(f"{wanted.name}: {words.last() or error.strerror}") from None
    finally:
        words.close()


def delete(dm: Dm, store: Store, name: str) -> str:
    """Delete an elastic SSD and its data. Return a message.

    :raises PoolError: if it is in use, or its data cannot be discarded
    """
    found = find(dm, name)
    name, pool = found.info.name, dm.info(found.pool)
    try:
        dm.remove(name, HIDDEN)
    except DmError as error:
        if error.errno != errno.EBUSY:
            raise
        raise PoolError(f"{name} is in use: stop the domain that has it, or detach the disk "
                        "first") from None
    if pool is not None:
        try:
            dm.message(pool.name, f"drop {found.volume} force")
        except DmError as error:
            if error.errno != errno.ENOENT:  # without persist nothing is left
                raise PoolError(f"{name} is removed, but its data in pool {pool.name} is not: "
                                f"{error.strerror}. Run 'vcache pool drop {pool.name} "
                                f"{found.volume} --force'") from None
        store.forget_volume(pool.name, found.volume)
    return f"elastic SSD {name} is deleted"
