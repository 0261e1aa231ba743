# SPDX-License-Identifier: Apache-2.0
"""In the box, in virtual time: run all measurements, write the results to the given file."""

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import inside as boxed
from bench.lanes import settings
from bench.lanes.settings import Phase
from bench.loads import Stack, busy_all
from tests.box.inside import progress
from tests.box.steps import at_end, explained, step
from vcache_agent.dm import Line

_MIB = 1 << 20
_BLOCK = 4096
# Tags, and lanes in the order of the device.
_OWNER, _NEIGHBOUR = 1, 2
_SHARED, _OWN = "shared", "own"

_READS: dict[str, object] = {"ioengine": "psync", "rw": "randread", "bs": "4k", "time_based": 1}
_SYNCS: dict[str, object] = {"ioengine": "psync", "rw": "randwrite", "bs": "4k", "fsync": 1,
                             "rate_iops": settings.SYNCS_PER_S, "time_based": 1}


class Ssd:
    """The cache device: an SSD for each lane.

    :param layers: removes the devices at its end
    """

    def __init__(self, layers: ExitStack) -> None:
        self.sizes = {_SHARED: settings.SHARED_MB, _OWN: settings.OWN_MB}
        self.parts = {name: layers.enter_context(boxed.ssd(name, size, settings.SSD_US, 1))
                      for name, size in self.sizes.items()}
        self.megabytes = sum(self.sizes.values())

    def lines(self) -> list[Line]:
        """Return the table that concatenates both."""
        found, start = [], 0
        for name, path in self.parts.items():
            length = boxed.sectors(self.sizes[name])
            found.append(Line(start, length, "linear", f"{path} 0"))
            start += length
        return found

    def moved(self, lane: str) -> tuple[int, int]:
        """Return the bytes read from a lane and written to it."""
        words = Path(f"/sys/block/{Path(self.parts[lane]).name}/stat").read_text().split()
        return int(words[2]) * 512, int(words[6]) * 512


class Run:
    """A pool with two tags: one with a dedicated lane, one without.

    :param layers: removes the devices at its end
    :param watermark: watermark of the pool
    """

    def __init__(self, layers: ExitStack, watermark: int) -> None:
        enter = layers.enter_context
        self.ssd, self.stack = Ssd(layers), Stack(layers)
        self.stack.dm.create("cache")
        layers.enter_context(at_end(self.stack.dm.remove, "cache"))
        self.stack.dm.load("cache", self.ssd.lines())
        self.stack.dm.resume("cache")
        cache = self.stack.dm.info("cache")
        assert cache is not None  # noqa: S101
        enter(boxed.pool(cache.path, self.ssd.megabytes, "chunk_kib", settings.CHUNK_KIB,
                         "hot_percent", watermark,
                         "lane", boxed.sectors(settings.SHARED_MB)))
        sizes = {_OWNER: settings.DISK_MB, _NEIGHBOUR: settings.NEIGHBOUR_MB}
        self.paths = {number: self.stack.add(number, enter(boxed.slow_disk(
            f"slow{number}", size + settings.SYNCED_MB, settings.SLOW_US)),
            size + settings.SYNCED_MB) for number, size in sizes.items()}
        self.synced = {number: {"offset": f"{size}m", "size": f"{settings.SYNCED_MB}m"}
                       for number, size in sizes.items()}
        self.start = time.monotonic()
        self.over: list[dict[str, float]] = []

    def fill(self) -> None:
        """Load the initial data of both tags."""
        self.stack.change(_OWNER, cache_lanes=1 << 1)
        self.stack.prefetch(_NEIGHBOUR, 0, settings.NEIGHBOUR_MB)
        self.stack.prefetch(_OWNER, 0, settings.OWN_FILL_MB)
        self.stack.prefetch(_OWNER, settings.OWN_FILL_MB, settings.SHARED_FILL_MB)
        self.start = time.monotonic()

    def sample(self) -> None:
        """Record the placement of blocks and the number of hot ones."""
        noted = {"at": time.monotonic() - self.start}
        for number, name in ((_OWNER, "owner"), (_NEIGHBOUR, "neighbour")):
            tag = self.stack.tag(number)
            noted |= {f"{name}_shared": tag.cached_bytes - tag.cache_own_bytes,
                      f"{name}_hot": tag.cache_hot_bytes, f"{name}_own": tag.cache_own_bytes,
                      f"{name}_read": tag.stats.read_bytes,
                      f"{name}_hits": tag.stats.cache_hit_bytes,
                      f"{name}_migrated": tag.stats.migrated_blocks * _BLOCK}
        for lane in (_SHARED, _OWN):
            noted[f"{lane}_lane_read"], noted[f"{lane}_lane_written"] = self.ssd.moved(lane)
        self.over.append(noted)

    def hot(self) -> dict[str, int]:
        """Return the number of the owner's hot blocks, and of those in its dedicated lane."""
        everywhere = sum(run.len * 512 // _BLOCK for run in self.stack.cached(_OWNER)
                         if run.heat >= settings.HOT)
        shared = self.stack.tag(_OWNER).cache_hot_bytes // _BLOCK
        return {"hot": everywhere, "hot_own": everywhere - shared}

    def phase(self, what: Phase) -> dict[str, Any]:
        """Run the load of a phase and that of the neighbour; return their latencies."""
        found: dict[str, Any] = {"name": what.name}
        loads: dict[str, tuple[str, dict[str, object]]] = {
            "owner": (self.paths[_OWNER], {
                **_READS, "offset": f"{what.first_mb}m", "size": f"{what.megabytes}m",
                **dict(what.options)}),
            "neighbour": (self.paths[_NEIGHBOUR], {
                **_READS, "size": f"{settings.NEIGHBOUR_MB}m"}),
            "owner_fsync": (self.paths[_OWNER], {**_SYNCS, **self.synced[_OWNER]}),
            "neighbour_fsync": (self.paths[_NEIGHBOUR], {
                **_SYNCS, **self.synced[_NEIGHBOUR]})}
        with busy_all(loads, found):
            self.sample()
            found["from"], end = len(self.over) - 1, time.monotonic() + what.seconds
            while time.monotonic() < end:
                time.sleep(settings.SAMPLE_S)
                self.sample()
            found["to"] = len(self.over) - 1
        return found | self.hot()


def run(load: str, watermark: int) -> dict[str, Any]:
    """Run all phases of a load."""
    with step(f"{load}, watermark {watermark} %"), ExitStack() as layers:
        it = Run(layers, watermark)
        it.fill()
        phases = [it.phase(what) for what in settings.LOADS[load]]
        found = {"load": load, "watermark": watermark, "phases": phases, "over": it.over}
    last = it.over[-1]
    progress(f"{load}, watermark {watermark} %: {last['owner_hot'] / last['owner_shared']:.0%} "
             f"hot, {last['owner_migrated'] / _MIB:.0f} MiB migrated")
    return found


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench.lanes.inside", description=__doc__)
    parser.add_argument("out", type=Path, help="file for the results")
    parser.add_argument("loads", nargs="*", help="loads to run, by default all")
    arguments = parser.parse_args()
    with explained("bench-lanes"):
        boxed.prepare()
        found = [run(load, watermark) for load in arguments.loads or settings.LOADS
                 for watermark in (settings.WATERMARK, settings.NEVER)]
        arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
