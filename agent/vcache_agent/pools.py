# SPDX-License-Identifier: Apache-2.0
"""Pools on cache devices, and the numbers of the volumes in them.

A number stands for the data of one device. Which device has which is in the
agent's store, by the UUID of the mapped device; the pool itself only knows
numbers. So one is given anew only when no device is noted for it and the pool
says that nothing is lost with what it has of it.
"""

import dataclasses
import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vcache_agent.dm import NAME_MAX, Dm, DmError, Info, KernelWords, Line, block_number
from vcache_agent.model import SECTOR_BYTES, DeviceNumber
from vcache_agent.store import Store

POOL_TARGET, TARGET = "vcache-pool", "vcache"
CHUNK_KIB = (64, 16384)
PERCENT = (0, 100)
VOLUME_MAX = 2**32 - 1
LANES_MAX = 64
# How often a pool that shrinks is looked at.
RESIZE_LOOK_S = 1.0

_NAME = re.compile(rf"[A-Za-z0-9#+.:=@_-]{{1,{NAME_MAX}}}")
_POOL_UUID = "VCACHE-POOL-"
# Most volumes of a pool that are tried when a free number is looked for.
_TRIES = 4096


#: Sizes in bytes, or how many equal ones.
Lanes = Sequence[int] | int


#: What can be changed of a pool while it is used; each is from 0 to 100 (:class:`Pool`).
TUNABLE = ("reads_percent", "hot_percent")


class PoolError(Exception):
    """It cannot be done; the text says why, and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Mapping:
    """What the table line of the target says.

    :param origin: ``major:minor``
    :param scope: ``volume <tag>`` or ``filesystem``
    :param pool: ``major:minor``, or empty
    """

    length: int
    mode: str
    origin: DeviceNumber
    scope: str
    age_ms: int | None = None
    pool: DeviceNumber | None = None
    volume: int = 0

    @classmethod
    def parse(cls, line: Line) -> "Mapping":
        """Read a line as the kernel shows it."""
        mode, origin, *rest = line.arguments.split()
        scope = "filesystem" if rest[0] == "filesystem" else f"volume {rest[1]}"
        options = rest[2 if scope == "filesystem" else 3:]
        age_ms = pool = None
        volume = 0
        while options:
            if options[0] == "age_ms":
                age_ms, options = int(options[1]), options[2:]
            else:
                pool, volume, options = number(options[1]), int(options[2]), options[3:]
        return cls(line.length, mode, number(origin), scope, age_ms, pool, volume)

    def line(self) -> Line:
        """Return the table line."""
        options: list[object] = []
        if self.age_ms is not None:
            options += ["age_ms", self.age_ms]
        if self.pool is not None:
            options += ["pool", self.pool, self.volume]
        if options:
            options.insert(0, len(options))
        return Line(0, self.length, TARGET, " ".join(
            map(str, [self.mode, self.origin, self.scope, *options])))

    def plain(self) -> "Mapping":
        """Return the same without a cache."""
        return dataclasses.replace(self, mode="flush-only", pool=None, volume=0)


@dataclasses.dataclass(frozen=True)
class CacheState:
    """What the status line of a device says of its cache; sizes in bytes."""

    volume: int
    state: str
    dirty: int
    destaged: int
    errors: int


@dataclasses.dataclass(frozen=True)
class Member:
    """A device that uses a pool."""

    info: Info
    mapping: Mapping
    cache: CacheState | None


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool; sizes in chunks but for the chunk's.

    :param reads: of the used ones, those with what was read; None: the module does not say
    :param reads_percent: what was read goes first where it is more of what a disk has; likewise
    :param hot_percent: hot and cold blocks change lanes where more than this of what a tag has in
        shared ones is hot; likewise
    :param leaving: chunks behind the end of a pool that shrinks, which have still to go; likewise
    :param lanes: bytes of each lane, of which the first has the metadata, too
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


def number(text: str) -> DeviceNumber:
    """Return a device number of a table."""
    major, _, minor = text.partition(":")
    return DeviceNumber(int(major), int(minor))


def mapping_of(dm: Dm, info: Info) -> Mapping | None:
    """Return what the table in force says, if it is one of the target."""
    lines = dm.table(info.name) if info.active else ()
    if len(lines) != 1 or lines[0].target != TARGET:
        return None
    return Mapping.parse(lines[0])


def cache_state(dm: Dm, info: Info) -> CacheState | None:
    """Return how the cache of a device is; None when it has none in use."""
    words = dm.status(info.name)[0].arguments.split()
    if "cache" not in words:
        return None
    volume, state, *counts = words[words.index("cache") + 1:][:5]
    dirty, destaged, errors = map(int, counts)
    return CacheState(int(volume), state, dirty * SECTOR_BYTES, destaged * SECTOR_BYTES, errors)


def buffered(dm: Dm, info: Info) -> int:
    """Return how many bytes of a device are in memory only."""
    return int(dm.status(info.name)[0].arguments.split()[3]) * SECTOR_BYTES


def find(dm: Dm, device: str) -> Info:
    """Return a mapped device by path or name."""
    at = block_number(device) or (device if "/" not in device else None)
    info = dm.info(at) if at is not None else None
    if info is None:
        raise PoolError(f"{device} is not a mapped device (dm): a logical volume or another "
                        "device of device mapper is allowed, by path or name")
    return info


def devices(dm: Dm) -> Iterator[Info]:
    """Return all mapped devices that are there."""
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
    cache = number(lines[0].arguments.split()[0])
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
    """Return the sizes of a pool's lanes; of the last one what it has at least.

    :param count: how many there are: what the table does not name is one more
    """
    words = line.arguments.split()
    given = [int(size) * SECTOR_BYTES // found.chunk_bytes * found.chunk_bytes
             for word, size in itertools.pairwise(words) if word == "lane"]
    rest = found.chunks * found.chunk_bytes - sum(given[:count - 1])
    return (*given[:count - 1], max(rest, 0))


def pool(dm: Dm, name: str) -> Pool:
    """Return a pool by its name or path."""
    at = block_number(name)
    info = dm.info(at or name)
    found = _pool(dm, info) if info else None
    if found is None:
        there = ", ".join(item.info.name for item in pools(dm)) or "none"
        raise PoolError(f"{name} is not a pool; pools of this host: {there}")
    return found


def by_number(dm: Dm, wanted: Iterable[str]) -> dict[str, Pool]:
    """Return those pools, of given numbers, that are in use and have been loaded."""
    infos = {at: dm.info(number(at)) for at in wanted}
    return {at: found for at, info in infos.items()
            if info and (found := _pool(dm, info)) is not None and found.chunks}


def members(dm: Dm, of: Pool | None = None) -> list[Member]:
    """Return the devices that use a pool, or any."""
    found = []
    for info in devices(dm):
        mapping = mapping_of(dm, info)
        if mapping is None or mapping.pool is None or (of and mapping.pool != of.info.number):
            continue
        found.append(Member(info, mapping, cache_state(dm, info)))
    return found


def row(pool: Pool, members: list[Member]) -> dict[str, Any]:
    """Return a pool as plain values, for programs."""
    return {
        "name": pool.info.name, "device": str(pool.info.number),
        "cache_device": device_name(pool.cache), "state": pool.state,
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


def device_name(at: DeviceNumber) -> str:
    """Return how the kernel calls a block device."""
    try:
        return (Path("/sys/dev/block") / str(at)).resolve().name
    except OSError:
        return str(at)


def create(dm: Dm, name: str, device: str, chunk_kib: int | None,
           percents: dict[str, int] | None = None, lanes: Lanes = ()) -> str:
    """Make a pool on a cache device, or find the one that is on it; return what was done.

    :param percents: what the pool is not to have by default
    :param lanes: sizes in bytes, what they leave is one more; or a number of equal ones
    """
    if not _NAME.fullmatch(name):
        raise PoolError(f"{name!r} is not allowed as a name: 1 to {NAME_MAX} letters, digits and "
                        "#+-.:=@_")
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
            return f"pool {name} is there already"
        if there.active or there.uuid != _POOL_UUID + name:
            raise PoolError(f"a mapped device {name} exists already, and is not this pool")
        dm.remove(name)  # of a call that was killed
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
        problem = (f"no pool on {device}: {words.last() or error.strerror}; a device that "
                   "begins with 4 KiB of zeroes (blkdiscard -z), or one that has a pool, is "
                   "allowed")
        try:
            dm.remove(name)
        except DmError as second:
            problem += (f"; removing the empty device {name} also failed: {second.strerror}; "
                        "the next call removes it")
        raise PoolError(problem) from None
    finally:
        words.close()
    made = pool(dm, name)
    return f"pool {name}: {made.chunks} chunks of {made.chunk_bytes >> 10} KiB, " \
           f"{made.volumes} volumes"


def _lane_sectors(lanes: Lanes, size: int) -> list[int]:
    """Return the lanes that a table is to name.

    :param size: of the cache device in sectors
    """
    if isinstance(lanes, int):
        # Of equal ones the last is what is left.
        return [size // lanes] * (lanes - 1)
    return [lane // SECTOR_BYTES for lane in lanes]


def _check_cache(dm: Dm, cache: DeviceNumber, device: str) -> int:
    """Return the size of a cache device in sectors, if nobody uses it."""
    for other in pools(dm):
        if other.cache == cache:
            raise PoolError(f"{device} is the cache device of pool {other.info.name} already")
    try:
        fd = os.open(f"/dev/block/{cache}" if "/" not in device else device,
                     os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise PoolError(f"{device} cannot be used: {error.strerror}; it must not be mounted or "
                        "in use otherwise") from None
    try:
        return os.lseek(fd, 0, os.SEEK_END) // SECTOR_BYTES
    finally:
        os.close(fd)


def _tell(dm: Dm, found: Pool, text: str) -> None:
    """Send a message to a pool; what it refuses, the kernel says why."""
    words = KernelWords()
    try:
        dm.message(found.info.name, text)
    except DmError as error:
        raise PoolError(f"pool {found.info.name}: {words.last() or error.strerror}") from None
    finally:
        words.close()


def tune(dm: Dm, name: str, percents: dict[str, int]) -> str:
    """Change what is given, while a pool is used; return what was changed.

    What this module cannot change is found before any of it is.
    """
    found = pool(dm, name)
    was = {key: getattr(found, key) for key in percents}
    if unknown := [key for key, value in was.items() if value is None]:
        raise PoolError(f"pool {name}: the module in the kernel is too old to change "
                        f"{' and '.join(unknown)}")
    for key, value in percents.items():
        _tell(dm, found, f"{key} {value}")
    changes = (f"{key} {value}, was {was[key]}" for key, value in percents.items())
    return f"pool {name}: {'; '.join(changes)}"


def resize(dm: Dm, name: str, size: int | None, say: Callable[[str], None], *,
           wait: bool = True) -> str:
    """Have a pool use so much of its cache device, while it is used.

    :param size: bytes, metadata included; None: all of the device
    :param say: told now and then how far a pool is that shrinks
    :param wait: return when it has its size; else it goes on by itself
    """
    before = pool(dm, name)
    if before.leaving is None:
        raise PoolError(f"pool {name}: the module in the kernel is too old to resize it")
    if size is not None and size < SECTOR_BYTES:
        raise PoolError(f"{size} bytes: at least a sector")
    _tell(dm, before, f"resize {(size or 0) // SECTOR_BYTES}")
    now = pool(dm, name)
    left = None
    while wait and now.leaving:
        if now.leaving != left:
            left = now.leaving
            say(f"pool {name}: {left} chunks have to go; what is dirty goes to the origins first"
                + _stuck(now))
        time.sleep(RESIZE_LOOK_S)
        now = pool(dm, name)
    return (f"pool {name}: {now.chunks} chunks of {now.chunk_bytes >> 10} KiB, "
            f"was {before.chunks}" + (f"; {now.leaving} have still to go" if now.leaving else ""))


def _stuck(found: Pool) -> str:
    """Say what can keep a pool from shrinking that only an operator can change."""
    if found.attached == found.volumes:
        return ""
    return (f"; what {found.volumes - found.attached} volumes that are not in use have only "
            "there goes when they are attached")


def remove(dm: Dm, name: str) -> str:
    """Take a pool out of use; what is on its cache device stays there."""
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
        raise PoolError(f"pool {name} is open; nobody may use it") from None
    if found.dirty:
        return (f"pool {name} is removed; its cache device {device_name(found.cache)} still has "
                "data that no origin has: make the pool again before the device is used "
                "otherwise")
    return f"pool {name} is removed, its cache device {device_name(found.cache)} is as it was"


def drop(dm: Dm, store: Store, name: str, volume: int, *, force: bool) -> str:
    """Forget a volume of a pool that no device uses."""
    found = pool(dm, name)
    words = KernelWords()
    try:
        dm.message(found.info.name, f"drop {volume}{' force' if force else ''}")
    except DmError as error:
        if error.errno != errno.ENOENT:
            hint = "" if force else "; --force drops it all the same"
            raise PoolError(f"volume {volume} of pool {name}: "
                            f"{words.last() or error.strerror}{hint}") from None
        store.forget_volume(found.info.name, volume)
        raise PoolError(f"pool {name} has no volume {volume}") from None
    finally:
        words.close()
    store.forget_volume(found.info.name, volume)
    return f"volume {volume} of pool {name} is dropped"


def _try_drop(dm: Dm, found: Pool, volume: int) -> bool:
    """Make sure that a volume has nothing in the pool, if that loses nothing."""
    try:
        dm.message(found.info.name, f"drop {volume}")
    except DmError as error:
        return error.errno == errno.ENOENT
    return True


def disown_bypassed(dm: Dm, store: Store) -> list[tuple[str, str, int]]:
    """Note that what failed caches have of devices that go on without them is nobody's.

    Should the cache come back, it is older than the devices are. The kernel tells it so,
    if it still takes a write.

    :returns: device, pool and volume of those that are so since the last call
    """
    found = []
    for member in members(dm):
        over = member.mapping.pool and dm.info(member.mapping.pool)
        if not over or member.cache is None or member.cache.state != "bypassed":
            continue
        if member.mapping.volume in store.volumes(over.name).values():
            store.forget_volume(over.name, member.mapping.volume)
            found.append((member.info.name, over.name, member.mapping.volume))
    return found


def identity(info: Info) -> str:
    """Return by what a device is known over restarts."""
    return info.uuid or f"name:{info.name}"


def allocate(dm: Dm, store: Store, found: Pool, info: Info, wanted: int | None, *,
             recover: bool) -> int:
    """Return the number of a device's volume, and note it.

    :param recover: what the pool has of the wanted volume is this device's
    """
    noted = store.volumes(found.info.name)
    mine = noted.get(identity(info))
    others = {volume: device for device, volume in noted.items() if device != identity(info)}
    attached = {member.mapping.volume: member.info.name for member in members(dm, found)}
    chosen = wanted or mine
    if wanted and mine and wanted != mine and not recover:
        raise PoolError(f"{info.name} has volume {mine} of pool {found.info.name} already; leave "
                        f"--volume out, or drop that one first: 'vcache pool drop "
                        f"{found.info.name} {mine}'")
    if chosen is None:
        chosen = next((volume for volume in range(1, _TRIES + 1)
                       if volume not in others and volume not in attached
                       and _try_drop(dm, found, volume)), None)
        if chosen is None:
            raise PoolError(f"pool {found.info.name} has no free volume number below {_TRIES}")
    elif chosen in attached:
        raise PoolError(f"volume {chosen} of pool {found.info.name} is used by "
                        f"{attached[chosen]}")
    elif chosen in others and not recover:
        raise PoolError(f"volume {chosen} of pool {found.info.name} is noted for "
                        f"{others[chosen]}; leave --volume out for a free one")
    elif not recover:
        _check_content(dm, found, info, chosen, known=chosen == mine)
    store.forget_volume(found.info.name, chosen)
    store.remember_volume(found.info.name, identity(info), chosen)
    return chosen


def _check_content(dm: Dm, found: Pool, info: Info, volume: int, *, known: bool) -> None:
    """Refuse what may be another device's data, or older than what the device has."""
    if known and not info.opened:
        return  # as after a start of the host: it goes on with its cache
    if _try_drop(dm, found, volume):
        return
    why = (f"{info.name} is in use and may have been written without it: attach it while nobody "
           "has it open") if known else "whose data that is, is not known"
    raise PoolError(f"volume {volume} of pool {found.info.name} may have data that is only in "
                    f"the cache, and {why}; --recover takes it as {info.name}'s, 'vcache pool "
                    f"drop {found.info.name} {volume} --force' throws it away")
