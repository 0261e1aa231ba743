# SPDX-License-Identifier: Apache-2.0
"""A scenario: a stack of devices, tags, and the workers that write."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Target = Literal["vcache", "linear"]
FileSystem = Literal["ext4", "xfs"]

#: First file number of a worker that creates its own files.
FILES_OF_WORKER = 1000

#: If a load runs twice, the second run adds this to the numbers of workers.
SECOND_TIME = 20


@dataclass(frozen=True)
class Worker:
    """A process of the load.

    :param kind: "range": overwrites existing sectors; "files": creates,
        extends and deletes files
    :param cgroup: name of its cgroup; empty: the root cgroup
    :param file: the file of a range worker, 0 in volume mode
    :param first: first sector that it writes
    :param count: number of sectors that it writes; for a files worker, the limit of a file
    :param grain: alignment of its writes in sectors
    :param largest: largest write in sectors
    :param weights: relative frequencies of its operations
    :param behind: 0: it runs as long as the load; n: it does one operation, right
        after the n-th removal of a tag
    """

    id: int
    kind: Literal["range", "files"]
    cgroup: str
    count: int
    weights: dict[str, int]
    file: int = 0
    first: int = 0
    grain: int = 1
    largest: int = 64
    behind: int = 0


@dataclass(frozen=True)
class Tag:
    """A virtual disk: its tag, the image file, and the cgroups that use it.

    :param file: number of its image file
    :param sectors: size of that file
    :param cgroups: names of the cgroups
    :param growing: IDs of the files workers whose files are also extents of the
        tag, updated during the load
    :param removed: the tag is removed and created again during the load
    """

    id: int
    file: int
    sectors: int
    cgroups: list[str]
    growing: list[int] = field(default_factory=list)
    removed: bool = False


@dataclass(frozen=True)
class Scenario:
    """One recording.

    :param name: its name, also that of its folder
    :param fs: empty: the workers write to the device itself (volume mode)
    :param seed: seed of the load and of the cuts
    :param origin: whether the origin has a volatile cache and FUA, or no volatile cache
    :param module: path of dm-vcache.ko; empty with target "linear"
    :param megabytes: size of the origin
    :param seconds: maximum duration of the load
    :param ops: maximum number of operations of each worker
    :param disturb: during the load, the table is reloaded without a flush, and tags
        are removed and created again
    :param reload: whether the table is reloaded, or tags are only removed and created again
    :param discard: the file system discards the blocks that it frees
    :param buffer_mb: the target's write buffer
    :param age_ms: the target's age limit
    :param large_write_kib: writes of this size go to the log without a copy; 0: none
    :param cache_mb: size of the cache device of a pool, in front of the origin
        on the recorded device; 0: no pool
    :param cache_mode: mode of the volume
    :param chunk_kib: size of its chunks
    :param origin_delay_ms: delay of writes to the origin of a pool: live blocks
        have to be relocated in the cache
    :param reads: the load has many reads, so that blocks must have been promoted, and
        hot ones kept
    :param resizes: the pool shrinks and grows all the time
    :param swaps: the cached blocks of tags are listed, dropped and prefetched all the
        time
    :param lanes: the pool has four lanes, which are dedicated to changing tags, and blocks
        must have migrated between these and the shared ones
    :param crash: a crash in the middle: the target is cut off from the device, and set up again
        on its data, for more of the load
    :param restarts: in the middle, everything is shut down and set up again, for more of the load
    :param recover: program that recovers the pool on the host; empty: that of the
        present sources
    """

    name: str
    target: Target
    fs: Literal["", "ext4", "xfs"]
    seed: int
    workers: list[Worker]
    tags: list[Tag] = field(default_factory=list)
    origin: Literal["fua", "write-through"] = "fua"
    module: str = ""
    megabytes: int = 64
    seconds: float = 8
    ops: int = 1000000
    disturb: bool = True
    reload: bool = True
    discard: bool = True
    buffer_mb: int = 4
    age_ms: int = 500
    large_write_kib: int = 128
    cache_mb: int = 0
    cache_mode: Literal["writeback", "writethrough"] = "writeback"
    chunk_kib: int = 64
    origin_delay_ms: int = 0
    reads: bool = False
    resizes: bool = False
    swaps: bool = False
    lanes: bool = False
    crash: bool = False
    restarts: bool = False
    recover: str = ""

    @property
    def mode(self) -> str:
        """Scope of the target: volume or filesystem."""
        return "filesystem" if self.fs else "volume"

    @property
    def twice(self) -> bool:
        """Return whether the load runs a second time, on the existing data."""
        return self.crash or self.restarts

    @property
    def load_seconds(self) -> float:
        """Duration of the load: emptying half of a pool takes a while."""
        return 3 * self.seconds if self.resizes or self.lanes else self.seconds

    @property
    def pool_options(self) -> str:
        """The optional arguments of the table of the pool."""
        options = [f"chunk_kib {self.chunk_kib}"]
        options += [f"lane {self.cache_sectors // 4}"] * (3 * self.lanes)
        return f"{2 * len(options)} {' '.join(options)}"

    @property
    def sectors(self) -> int:
        """Size of the origin in sectors."""
        return self.megabytes * 2048

    @property
    def cache_sectors(self) -> int:
        """Size of the cache device in sectors."""
        return self.cache_mb * 2048

    @property
    def recorded_sectors(self) -> int:
        """Size of the recorded device: the cache device and the origin behind it."""
        return self.cache_sectors + self.sectors

    def cgroup_of(self, worker: int) -> str:
        """Return the cgroup of a worker, by its number; empty: unknown."""
        return next((w.cgroup for w in self.workers
                     if worker in (w.id, w.id + SECOND_TIME * self.twice)), "")

    def cgroups(self) -> list[str]:
        """Return the names of all cgroups, in order."""
        names = [w.cgroup for w in self.workers] + [c for t in self.tags for c in t.cgroups]
        return sorted({name for name in names if name})

    def save(self, path: Path) -> None:
        """Write the scenario for the box or a later replay."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def load(path: Path) -> Scenario:
    """Read a saved scenario."""
    values: dict[str, Any] = json.loads(path.read_text())
    values["workers"] = [Worker(**worker) for worker in values["workers"]]
    values["tags"] = [Tag(**tag) for tag in values["tags"]]
    return Scenario(**values)


_RANGE = {"write": 40, "aio": 12, "dsync": 4, "fdatasync": 6, "aiosync": 3}
_FILES = {"append": 30, "hole": 6, "prealloc": 6, "write": 20, "dsync": 4, "discard": 5,
          "fdatasync": 8, "aiosync": 4, "replace": 3}


def volume(name: str, seed: int, **settings: Any) -> Scenario:
    """One volume: private ranges, a range that all workers write, zeroes and discards."""
    part = 12 * 2048
    private = {**_RANGE, "read": 8, "discard": 3, "zero": 3}
    workers = [
        Worker(1, "range", "a", part, private, first=0, largest=256),
        Worker(2, "range", "b", part, private, first=part, grain=8, largest=2048),
        Worker(3, "range", "a", 2048, _RANGE, first=2 * part, largest=16),
        Worker(4, "range", "", 2048, {**_RANGE, "discard": 2}, first=2 * part, largest=16),
    ]
    return Scenario(name, "vcache", "", seed, workers, [Tag(7, 0, 32 * 2048, ["a"])], **settings)


def filesystem(name: str, fs: FileSystem, seed: int, **settings: Any) -> Scenario:
    """Images of three virtual machines, and files that are created and deleted.

    VM a has two disks (tags 1 and 2), b one (3), and a and c share one (4).
    Workers of other cgroups and of the root cgroup write to the images of a and b.
    """
    size = 3 * 2048
    shared = 1024
    rare = {**_RANGE, "fdatasync": 2, "aiosync": 1, "dsync": 1}
    never = {"write": 40, "aio": 10}
    workers = [
        Worker(1, "range", "a", size // 2 - shared, {**_RANGE, "read": 5}, file=1, first=shared,
               largest=256),
        Worker(2, "range", "a", size, never, file=2, grain=8, largest=2048),
        Worker(3, "range", "b", size // 2, {**rare, "read": 5}, file=3, largest=256),
        Worker(4, "range", "c", size, rare, file=4),
        # Untagged: the second halves of the images of a and b.
        Worker(5, "range", "b", size // 2, rare, file=1, first=size // 2),
        Worker(6, "range", "", size // 2, {**never, "fdatasync": 1}, file=3, first=size // 2),
        # The same sectors from two cgroups.
        Worker(7, "range", "c", shared, {**never, "fdatasync": 2}, file=1, grain=8, largest=32),
        Worker(10, "range", "a", shared, {**never, "fdatasync": 2}, file=1, largest=32),
        Worker(8, "files", "a", 2048, _FILES, file=8 * FILES_OF_WORKER, grain=8, largest=512),
        Worker(9, "files", "b", 2048, _FILES, file=9 * FILES_OF_WORKER, grain=8, largest=512),
    ]
    tags = [Tag(1, 1, size, ["a"], [8]), Tag(2, 2, size, ["a"], removed=True),
            Tag(3, 3, size, ["b"], [9]), Tag(4, 4, size, ["a", "c"])]
    settings.setdefault("megabytes", 96 if fs == "ext4" else 320)
    return Scenario(name, "vcache", fs, seed, workers, tags, **settings)


def hot(name: str, seed: int, **settings: Any) -> Scenario:
    """A few pages of a volume, always dirty, in write-out and overwritten."""
    weights = {"write": 40, "dsync": 4, "fdatasync": 15}
    workers = [Worker(id, "range", "a", 128, weights, largest=8) for id in (1, 2, 3)]
    return Scenario(name, "vcache", "", seed, workers, [Tag(7, 0, 128, ["a"])], megabytes=16,
                    age_ms=5000, **settings)


def tags(name: str, seed: int, size: int = 512, **settings: Any) -> Scenario:
    """Small images that stay dirty until the right flush.

    The second image of a is written and never flushed. c overwrites data of a in the buffer. A
    worker without a tag writes to the image of b. Flushes of everything are rare.

    :param size: size of an image, in sectors
    """
    workers = [
        Worker(1, "range", "a", size, {"write": 40, "fdatasync": 1}, file=1, largest=8),
        Worker(2, "range", "a", size, {"write": 1}, file=2, largest=8),
        Worker(3, "range", "b", size, {"write": 10, "fdatasync": 10}, file=3, largest=8),
        Worker(4, "range", "c", size, {"write": 10, "fdatasync": 5}, file=1, largest=8),
        Worker(5, "range", "", size, {"write": 1}, file=3, largest=8),
        Worker(6, "range", "b", size, {"write": 60, "aiosync": 1}, file=3, largest=8),
    ]
    disks = [Tag(1, 1, size, ["a"]), Tag(2, 2, size, ["a"]), Tag(3, 3, size, ["b"]),
             Tag(4, 4, size, ["c"])]
    return Scenario(name, "vcache", "ext4", seed, workers, disks, megabytes=32, age_ms=5000,
                    **settings)


def removed(name: str, seed: int, **settings: Any) -> Scenario:
    """An image is written and never flushed while its tag is removed and created.

    It is large, and fits into the buffer, so that most of its data is still in the buffer when
    the flush of another tag comes, right after the removal. No flush is in progress at the
    removal, since it would cover everything. Loading a table would write out the data of the
    removed tag, so no table is loaded.
    """
    size = 8192
    workers = [
        Worker(1, "range", "a", size, {"write": 1}, file=1, largest=8),
        Worker(2, "range", "b", 512, {"write": 1}, file=2, largest=8),
        *(Worker(2 + nth, "range", "b", 512, {"fdatasync": 1}, file=2, behind=nth)
          for nth in range(1, 9)),
    ]
    disks = [Tag(1, 1, size, ["a"], removed=True), Tag(2, 2, 512, ["b"])]
    return Scenario(name, "vcache", "ext4", seed, workers, disks, megabytes=32, age_ms=5000,
                    buffer_mb=32, reload=False, **settings)


def pooled(scenario: Scenario, **settings: Any) -> Scenario:
    """Return the same load on a volume of a pool that is much smaller than its writes.

    Its chunks are filled, destaged, reclaimed and reused all the time.
    """
    changed = {"name": f"pool-{scenario.name}", "cache_mb": 4, "large_write_kib": 8,
               "age_ms": min(scenario.age_ms, 200), **settings}
    return dataclasses.replace(scenario, **changed)


def pool_volume(name: str, seed: int, **settings: Any) -> Scenario:
    """A volume of a pool, with discards; reads are checked."""
    return pooled(volume(name, seed), name=name, **settings)


def pool_through(name: str, seed: int, **settings: Any) -> Scenario:
    """A volume in write-through mode, with copies in the cache."""
    return pool_volume(name, seed, cache_mode="writethrough", **settings)


def pool_hot(name: str, seed: int, **settings: Any) -> Scenario:
    """Small records, in few chunks, of a few pages."""
    return pooled(hot(name, seed), name=name, **{"cache_mb": 3, **settings})


def pool_tags(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others."""
    return pooled(tags(name, seed), name=name, **settings)


def pool_wide(name: str, seed: int, **settings: Any) -> Scenario:
    """The same in chunks whose seals have more than one sector.

    The images are so large that most of the entries lost in a seal are on the origin,
    and not in another chunk, when that seal is written again.
    """
    return pooled(tags(name, seed, size=4096), name=name, chunk_kib=256,
                  **{"cache_mb": 8, **settings})


def pool_crashed(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others, a crash, and more of the same load."""
    return pooled(tags(name, seed), name=name, crash=True, disturb=False, **settings)


def pool_relocated(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others, and a slow origin."""
    return pooled(tags(name, seed), name=name, origin_delay_ms=1000, disturb=False,
                  **{"cache_mb": 3, **settings})


def pool_relocated_volume(name: str, seed: int, **settings: Any) -> Scenario:
    """A small volume, much of it in flight, and a slow origin."""
    busy = {"write": 30, "dsync": 20, "fdatasync": 10, "aiosync": 5}
    workers = [
        Worker(1, "range", "a", 384, busy, first=0, largest=16),
        Worker(2, "range", "b", 384, {**busy, "read": 8}, first=384, grain=8, largest=16),
        Worker(3, "range", "a", 256, busy, first=768, largest=16),
        # A discard waits for the origin.
        Worker(4, "range", "", 256, {**busy, "discard": 3}, first=768, largest=16),
    ]
    return pooled(Scenario(name, "vcache", "", seed, workers, [Tag(7, 0, 1024, ["a"])],
                           megabytes=16), name=name, origin_delay_ms=1000, disturb=False,
                  **{"cache_mb": 2, **settings})


def pool_read(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others; blocks are promoted, and kept when hot."""
    load = tags(name, seed, size=2048)
    workers = [dataclasses.replace(w, weights={**w.weights, "look": 80}) for w in load.workers]
    return pooled(dataclasses.replace(load, workers=workers), name=name, reads=True,
                  disturb=False, **settings)


def pool_warm(name: str, seed: int, **settings: Any) -> Scenario:
    """The same, shut down in the middle: promoted blocks become part of the logs."""
    return pool_read(name, seed, restarts=True, **settings)


def pool_resize(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others in a pool that shrinks and grows.

    Its chunk table has more than one block, so that chunks are removed and added again.
    """
    return pooled(tags(name, seed, size=2048), name=name, resizes=True,
                  **{"cache_mb": 17, "disturb": False, **settings})


def pool_swap(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others, which are dropped and prefetched."""
    load = tags(name, seed, size=2048)
    workers = [dataclasses.replace(w, weights={**w.weights, "look": 40}) for w in load.workers]
    return pooled(dataclasses.replace(load, workers=workers), name=name, swaps=True,
                  **{"disturb": False, **settings})


def pool_lanes(name: str, seed: int, **settings: Any) -> Scenario:
    """Logs that overwrite the blocks of others, with reads, in lanes that are reassigned.

    A lane holds less than its tag writes and reads, so that other lanes hold some of it.
    """
    return pool_read(name, seed, lanes=True, **settings)


#: Loads that exercise few rules each; mutations are recorded with them.
FOCUSED: Mapping[str, Callable[..., Scenario]] = {
    "hot": hot, "tags": tags, "removed": removed, "pool-volume": pool_volume,
    "pool-hot": pool_hot, "pool-tags": pool_tags, "pool-wide": pool_wide,
    "pool-crashed": pool_crashed, "pool-relocated": pool_relocated,
    "pool-relocated-volume": pool_relocated_volume, "pool-read": pool_read,
    "pool-warm": pool_warm, "pool-resize": pool_resize, "pool-swap": pool_swap,
    "pool-lanes": pool_lanes}


def linear(scenario: Scenario, name: str) -> Scenario:
    """Return the same load without the target: the harness must find no violation."""
    return dataclasses.replace(scenario, name=name, target="linear", module="",
                               cache_mb=0)
