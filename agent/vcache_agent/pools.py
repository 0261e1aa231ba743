# SPDX-License-Identifier: Apache-2.0
"""Pools on cache devices.

A volume is the data of one device in a pool. owners.py assigns their numbers.
"""

import dataclasses
import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vcache_agent import sysfs
from vcache_agent.dm import NAME_MAX, Dm, DmError, Info, KernelWords, Line, block_number
from vcache_agent.model import SECTOR_BYTES, DeviceNumber
from vcache_agent.store import Store

POOL_TARGET, TARGET = "vcache-pool", "vcache"
CHUNK_KIB = (64, 16384)
PERCENT = (0, 100)
VOLUME_MAX = 2**32 - 1
LANES_MAX = 64
# Seconds between two checks of a pool that shrinks.
RESIZE_LOOK_S = 1.0

_NAME = re.compile(rf"[A-Za-z0-9#+.:=@_-]{{1,{NAME_MAX}}}")
_POOL_UUID = "VCACHE-POOL-"


#: Lane sizes in bytes, or the number of lanes of equal size.
Lanes = Sequence[int] | int


#: Options that can change while a pool is in use; each is from 0 to 100 (:class:`Pool`).
TUNABLE = ("reads_percent", "hot_percent")


#: Limits of destage that a table line may have, and their defaults (reference/target).
LIMITS = {"destage_mib": 0, "destage_low": 25, "destage_high": 75}


class PoolError(Exception):
    """The operation is not possible; the text names the reason and the allowed values."""


@dataclasses.dataclass(frozen=True)
class Mapping:
    """The parsed table line of a vcache device.

    :param length: sectors
    :param origin: device number of the origin
    :param scope: ``volume <tag>`` or ``filesystem``
    :param age_ms: option age_ms of the target in ms; None: its default
    :param pool: device number of the pool; None: no cache
    :param volume: volume number in the pool
    :param limits: limits of destage that differ from :data:`LIMITS`, in this order
    """

    length: int
    mode: str
    origin: DeviceNumber
    scope: str
    age_ms: int | None = None
    pool: DeviceNumber | None = None
    volume: int = 0
    limits: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, line: Line) -> "Mapping":
        """Parse a table line as the kernel prints it."""
        mode, origin, *rest = line.arguments.split()
        scope = "filesystem" if rest[0] == "filesystem" else f"volume {rest[1]}"
        options = rest[2 if scope == "filesystem" else 3:]
        age_ms = pool = None
        volume = 0
        limits: dict[str, int] = {}
        while options:
            if options[0] == "age_ms":
                age_ms, options = int(options[1]), options[2:]
            elif options[0] in LIMITS:
                limits[options[0]], options = int(options[1]), options[2:]
            else:
                pool, volume, options = sysfs.number(options[1]), int(options[2]), options[3:]
        return cls(line.length, mode, sysfs.number(origin), scope, age_ms, pool, volume,
                   tuple((name, limits[name]) for name in LIMITS if name in limits))

    def line(self) -> Line:
        """Return the mapping as a table line."""
        options: list[object] = []
        if self.age_ms is not None:
            options += ["age_ms", self.age_ms]
        options += [word for limit in self.limits for word in limit]
        if self.pool is not None:
            options += ["pool", self.pool, self.volume]
        if options:
            options.insert(0, len(options))
        return Line(0, self.length, TARGET, " ".join(
            map(str, [self.mode, self.origin, self.scope, *options])))

    def plain(self) -> "Mapping":
        """Return the same mapping without a cache, in mode flush-only."""
        return dataclasses.replace(self, mode="flush-only", pool=None, volume=0, limits=())

    def bypass(self) -> Line:
        """Return the table line of the origin without the target."""
        return Line(0, self.length, "linear", f"{self.origin} 0")


#: States of a cache that has failed with dirty data. In the second one, tags without dirty data
#: continue without the cache.
LOST = ("lost", "partly-lost")
#: States of a cache that has failed.
FAILED = ("bypassed", *LOST)
#: States in which the origin may have newer data than the cache.
OUTDATED = ("bypassed", "partly-lost")


@dataclasses.dataclass(frozen=True)
class CacheState:
    """The cache part of a device's status line; sizes in bytes.

    :param state: ``clean``, ``dirty``, ``draining``, ``failing``, ``bypassed``, ``lost`` or
        ``partly-lost``
    :param errors: number of I/O errors of the cache
    :param paused: for how long destage is paused, in s; None: the loaded module, which is older,
        cannot pause it
    """

    volume: int
    state: str
    dirty: int
    destaged: int
    errors: int
    paused: int | None = None


@dataclasses.dataclass(frozen=True)
class Member:
    """A device that uses a pool."""

    info: Info
    mapping: Mapping
    cache: CacheState | None


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool; sizes in chunks, except `chunk_bytes` and `lanes`.

    Fields that are None are not reported by the loaded module, which is older.

    :param reads: used chunks that are read chunks
    :param reads_percent: the pool reclaims read chunks of a disk first if they are more than
        this percentage of its chunks
    :param hot_percent: if more than this percentage of a disk's data in shared lanes is hot,
        the pool exchanges it with colder data in its dedicated lanes
    :param leaving: chunks that are still in use beyond the new end of a pool that shrinks
    :param lanes: size of each lane in bytes; the first lane includes the metadata
    """

    info: Info
    cache: DeviceNumber
    state: str
    chunk_bytes: int = 0
    chunks: int = 0
    free: int = 0
    used: int = 0
    dirty: int = 0
    volumes: int = 0
    attached: int = 0
    reads: int | None = None
    reads_percent: int | None = None
    hot_percent: int | None = None
    leaving: int | None = None
    lanes: tuple[int, ...] = ()


def mapping_of(dm: Dm, info: Info) -> Mapping | None:
    """Return the active table of a vcache device; None for another device."""
    lines = dm.table(info.name) if info.active else ()
    if len(lines) != 1 or lines[0].target != TARGET:
        return None
    return Mapping.parse(lines[0])


def cache_state(dm: Dm, info: Info) -> CacheState | None:
    """Return the state of a device's cache; None if it has no cache."""
    words = dm.status(info.name)[0].arguments.split()
    if "cache" not in words:
        return None
    volume, state, dirty, destaged, errors, *more = words[words.index("cache") + 1:]
    return CacheState(int(volume), state, int(dirty) * SECTOR_BYTES, int(destaged) * SECTOR_BYTES,
                      int(errors), int(more[2]) if len(more) > 2 else None)


def buffered(dm: Dm, info: Info) -> int:
    """Return the bytes of a device that are only in the write buffer."""
    return int(dm.status(info.name)[0].arguments.split()[3]) * SECTOR_BYTES


def find(dm: Dm, device: str) -> Info:
    """Return a mapped device by path or name.

    :raises PoolError: if there is none
    """
    at = block_number(device) or (device if "/" not in device else None)
    info = dm.info(at) if at is not None else None
    if info is None:
        raise PoolError(f"{device} is not a mapped device, must be the path or name of a logical "
                        "volume or another device of device mapper")
    return info


def devices(dm: Dm) -> Iterator[Info]:
    """Return all mapped devices."""
    for name in dm.names():
        info = dm.info(name)
        if info is not None:
            yield info


def pools(dm: Dm) -> list[Pool]:
    """Return all pools."""
    return [found for info in devices(dm) if (found := _pool(dm, info)) is not None]


def _pool(dm: Dm, info: Info) -> Pool | None:
    lines = dm.table(info.name) if info.active else ()
    if len(lines) != 1 or lines[0].target != POOL_TARGET:
        return None
    cache = sysfs.number(lines[0].arguments.split()[0])
    words = dm.status(info.name)[0].arguments.split()
    if len(words) < 8:
        return Pool(info, cache, words[0] if words else "unknown")
    chunk, chunks, free, used, dirty, volumes, attached = map(int, words[1:8])
    found = Pool(info, cache, words[0], chunk * SECTOR_BYTES, chunks, free, used, dirty, volumes,
                 attached)
    if len(words) < 14:
        return found
    return dataclasses.replace(
        found, reads=int(words[11]), reads_percent=int(words[13]),
        leaving=int(words[14]) if len(words) > 14 else None,
        lanes=_lanes(lines[0], found, int(words[15])) if len(words) > 15 else (),
        hot_percent=int(words[17]) if len(words) > 17 else None)


def _lanes(line: Line, found: Pool, count: int) -> tuple[int, ...]:
    """Return the sizes of a pool's lanes in bytes; for the last lane a lower bound.

    :param count: number of lanes; the last one is not in the table if it is the rest
    """
    words = line.arguments.split()
    given = [int(size) * SECTOR_BYTES // found.chunk_bytes * found.chunk_bytes
             for word, size in itertools.pairwise(words) if word == "lane"]
    rest = found.chunks * found.chunk_bytes - sum(given[:count - 1])
    return (*given[:count - 1], max(rest, 0))


def pool(dm: Dm, name: str) -> Pool:
    """Return a pool by its name or path.

    :raises PoolError: if there is none
    """
    at = block_number(name)
    info = dm.info(at or name)
    found = _pool(dm, info) if info else None
    if found is None:
        there = ", ".join(item.info.name for item in pools(dm)) or "none"
        raise PoolError(f"{name} is not a pool; pools of this host: {there}")
    return found


def by_number(dm: Dm, wanted: Iterable[str]) -> dict[str, Pool]:
    """Return pools by device number ``major:minor``; omit those whose size is unknown."""
    infos = {at: dm.info(sysfs.number(at)) for at in wanted}
    return {at: found for at, info in infos.items()
            if info and (found := _pool(dm, info)) is not None and found.chunks}


def members(dm: Dm, of: Pool | None = None) -> list[Member]:
    """Return the devices that use a pool; None: those that use any pool."""
    found = []
    for info in devices(dm):
        mapping = mapping_of(dm, info)
        if mapping is None or mapping.pool is None or (of and mapping.pool != of.info.number):
            continue
        found.append(Member(info, mapping, cache_state(dm, info)))
    return found


def row(pool: Pool, members: list[Member]) -> dict[str, Any]:
    """Return a pool and its members as plain values; sizes in bytes."""
    return {
        "name": pool.info.name, "device": str(pool.info.number),
        "cache_device": sysfs.name(pool.cache), "state": pool.state,
        "chunk_bytes": pool.chunk_bytes, "size_bytes": pool.chunks * pool.chunk_bytes,
        "free_bytes": pool.free * pool.chunk_bytes, "used_bytes": pool.used * pool.chunk_bytes,
        "dirty_bytes": pool.dirty * pool.chunk_bytes, "lanes_bytes": list(pool.lanes),
        "read_bytes": None if pool.reads is None else pool.reads * pool.chunk_bytes,
        "reads_percent": pool.reads_percent, "hot_percent": pool.hot_percent,
        "leaving_bytes": None if pool.leaving is None else pool.leaving * pool.chunk_bytes,
        "volumes": pool.volumes,
        "members": [{
            "name": member.info.name, "device": str(member.info.number),
            "volume": member.mapping.volume, "mode": member.mapping.mode,
            "state": member.cache.state if member.cache else "unknown",
            "dirty_bytes": member.cache.dirty if member.cache else None,
            "cache_errors": member.cache.errors if member.cache else None}
            for member in members]}


def create(dm: Dm, name: str, device: str, chunk_kib: int | None,
           percents: dict[str, int] | None = None, lanes: Lanes = ()) -> str:
    """Create a pool on a cache device, or activate the pool on it. Return a message.

    :param chunk_kib: chunk size in KiB of a new pool; None: the default
    :param percents: values of options in :data:`TUNABLE`
    :param lanes: sizes in bytes, the rest is one more lane; or the number of equal lanes
    :raises PoolError: if that is not possible
    """
    if not _NAME.fullmatch(name):
        raise PoolError(f"the name {name!r} must have 1 to {NAME_MAX} characters: letters, "
                        "digits and #+-.:=@_")
    cache = block_number(device)
    if cache is None:
        mapped = dm.info(device) if "/" not in device else None
        if mapped is None:
            raise PoolError(f"{device} is not a block device")
        cache = mapped.number
    there = dm.info(name)
    if there is not None:
        found = _pool(dm, there)
        if found is not None and found.cache == cache:
            return f"pool {name} is already active"
        if there.active or there.uuid != _POOL_UUID + name:
            raise PoolError(f"a mapped device {name} already exists and is not this pool")
        dm.remove(name)  # left by a call that was killed
    size = _check_cache(dm, cache, device)
    given = {"chunk_kib": chunk_kib, **(percents or {})}
    options = "".join(f" {key} {value}" for key, value in given.items() if value is not None)
    options += "".join(f" lane {sectors}" for sectors in _lane_sectors(lanes, size))
    options = options and f" {len(options.split())}{options}"
    words = KernelWords()
    dm.create(name, _POOL_UUID + name)
    try:
        dm.load(name, [Line(0, size, POOL_TARGET, f"{cache}{options}")])
        dm.resume(name)
    except DmError as error:
        problem = (f"no pool on {device}: {words.last() or error.strerror}; the device "
                   "must have a pool, or begin with 4 KiB of zeroes (blkdiscard -z)")
        try:
            dm.remove(name)
        except DmError as second:
            problem += (f"; removing the empty device {name} also failed: {second.strerror}; "
                        "the next 'pool create' removes it")
        raise PoolError(problem) from None
    finally:
        words.close()
    made = pool(dm, name)
    return f"pool {name}: {made.chunks} chunks of {made.chunk_bytes >> 10} KiB, " \
           f"{made.volumes} volumes"


def _lane_sectors(lanes: Lanes, size: int) -> list[int]:
    """Return the sizes of the lanes in the table, in sectors.

    :param size: size of the cache device in sectors
    """
    if isinstance(lanes, int):
        # The last of N equal lanes is the rest of the device.
        return [size // lanes] * (lanes - 1)
    return [lane // SECTOR_BYTES for lane in lanes]


def _check_cache(dm: Dm, cache: DeviceNumber, device: str) -> int:
    """Return the size of a cache device in sectors.

    :raises PoolError: if the device is in use
    """
    for other in pools(dm):
        if other.cache == cache:
            raise PoolError(f"{device} is already the cache device of pool {other.info.name}")
    try:
        fd = os.open(f"/dev/block/{cache}" if "/" not in device else device,
                     os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise PoolError(f"cannot use {device}: {error.strerror}; it must not be mounted or "
                        "otherwise in use") from None
    try:
        return os.lseek(fd, 0, os.SEEK_END) // SECTOR_BYTES
    finally:
        os.close(fd)


def _tell(dm: Dm, found: Pool, text: str) -> None:
    """Send a message to a pool.

    :raises PoolError: if the pool refuses it, with the reason from the kernel's log
    """
    words = KernelWords()
    try:
        dm.message(found.info.name, text)
    except DmError as error:
        raise PoolError(f"pool {found.info.name}: {words.last() or error.strerror}") from None
    finally:
        words.close()


def tune(dm: Dm, name: str, percents: dict[str, int]) -> str:
    """Change options of a pool while it is in use. Return a message.

    If the loaded module does not support one of the options, nothing is changed.

    :param percents: new values by name, from :data:`TUNABLE`
    :raises PoolError: if that is not possible
    """
    found = pool(dm, name)
    was = {key: getattr(found, key) for key in percents}
    if unknown := [key for key, value in was.items() if value is None]:
        raise PoolError(f"pool {name}: the loaded kernel module is too old to change "
                        f"{' and '.join(unknown)}")
    for key, value in percents.items():
        _tell(dm, found, f"{key} {value}")
    changes = (f"{key} {value}, was {was[key]}" for key, value in percents.items())
    return f"pool {name}: {'; '.join(changes)}"


def resize(dm: Dm, name: str, size: int | None, say: Callable[[str], None], *,
           wait: bool = True) -> str:
    """Change how much of its cache device a pool uses, while it is in use. Return a message.

    :param size: bytes, with metadata; None: the whole device
    :param say: called with progress messages while the pool shrinks
    :param wait: wait until the pool has the new size; otherwise the kernel continues
    :raises PoolError: if that is not possible
    """
    before = pool(dm, name)
    if before.leaving is None:
        raise PoolError(f"pool {name}: the loaded kernel module is too old to resize it")
    if size is not None and size < SECTOR_BYTES:
        raise PoolError(f"size {size} must be at least {SECTOR_BYTES} bytes")
    _tell(dm, before, f"resize {(size or 0) // SECTOR_BYTES}")
    now = pool(dm, name)
    left = None
    while wait and now.leaving:
        if now.leaving != left:
            left = now.leaving
            say(f"pool {name}: {left} chunks left to reclaim; dirty data is destaged first"
                + _stuck(now))
        time.sleep(RESIZE_LOOK_S)
        now = pool(dm, name)
    return (f"pool {name}: {now.chunks} chunks of {now.chunk_bytes >> 10} KiB, "
            f"was {before.chunks}" + (f"; {now.leaving} left to reclaim" if now.leaving else ""))


def _stuck(found: Pool) -> str:
    """Return a hint if unattached volumes can keep the pool from shrinking, or nothing."""
    if found.attached == found.volumes:
        return ""
    return (f"; dirty data of {found.volumes - found.attached} unattached volumes remains until "
            "they are attached")


def remove(dm: Dm, name: str) -> str:
    """Deactivate a pool; the data on its cache device is kept. Return a message.

    :raises PoolError: if devices use the pool
    """
    found = pool(dm, name)
    users = members(dm, found)
    if users:
        raise PoolError(f"pool {name} is used by {', '.join(user.info.name for user in users)}: "
                        "detach them first")
    try:
        dm.remove(found.info.name)
    except DmError as error:
        if error.errno != errno.EBUSY:
            raise
        raise PoolError(f"pool {name} is open in another program") from None
    if found.dirty:
        return (f"pool {name} is removed; its cache device {sysfs.name(found.cache)} still has "
                "dirty data: run 'vcache pool create' again before you use the device otherwise")
    return f"pool {name} is removed; the data on {sysfs.name(found.cache)} is kept"


def drop(dm: Dm, store: Store, name: str, volume: int, *, force: bool) -> str:
    """Discard the data of a volume that no device uses. Return a message.

    :param force: discard dirty data, too
    :raises PoolError: if the volume is in use, does not exist, or has dirty data
    """
    found = pool(dm, name)
    words = KernelWords()
    try:
        dm.message(found.info.name, f"drop {volume}{' force' if force else ''}")
    except DmError as error:
        if error.errno != errno.ENOENT:
            hint = "" if force else "; --force drops it nevertheless"
            raise PoolError(f"volume {volume} of pool {name}: "
                            f"{words.last() or error.strerror}{hint}") from None
        store.forget_volume(found.info.name, volume)
        raise PoolError(f"pool {name} has no volume {volume}") from None
    finally:
        words.close()
    store.forget_volume(found.info.name, volume)
    return f"volume {volume} of pool {name} is dropped"


def identity(info: Info) -> str:
    """Return the identity of a device in the store, which stays the same over restarts."""
    return info.uuid or f"name:{info.name}"
