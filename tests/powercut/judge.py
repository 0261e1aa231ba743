# SPDX-License-Identifier: Apache-2.0
"""Replay a recording at many cuts, and compare the remaining data with the contract."""

import functools
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.powercut import crash, journal, logwrites, record, recovery, scenario, stamps
from tests.powercut.contract import Attribution
from tests.powercut.crash import Cut, Image, Origin, Replay
from tests.powercut.journal import Journal, Request
from tests.powercut.ledger import Ledger
from tests.powercut.logwrites import Flag
from tests.powercut.recovery import Recovered, Recoverer, RecoveryError
from tests.powercut.stamps import Ops, Sectors

# Maximum number of violations kept per cut; one wrong flush causes thousands.
_KEPT = 5

# Number of sectors assembled at a time.
_PIECE = 1 << 14

#: Name of the file with the log of dm-log-writes.
LOG = "log"


class RecordingError(Exception):
    """A recording cannot be judged."""


@dataclass(frozen=True)
class Place:
    """Place of a run of an image file's sectors on the origin."""

    file: int
    sector: int
    device: int
    count: int


@dataclass
class Finding:
    """A cut after which the contract is violated."""

    cut: Cut | None
    violations: list[str]
    count: int


@dataclass
class Verdict:
    """The results of all cuts of a recording."""

    cuts: int = 0
    findings: list[Finding] = field(default_factory=list)
    #: Sectors with a requirement of the contract, summed over the cuts.
    demands: int = 0

    def add(self, cut: Cut | None, violations: Sequence[object]) -> None:
        """Count a cut; keep the first of its violations."""
        self.cuts += cut is not None
        if violations:
            self.findings.append(
                Finding(cut, [str(v) for v in violations[:_KEPT]], len(violations)))

    @property
    def violations(self) -> int:
        """Number of cuts, or faults of the whole recording, that violate the contract."""
        return len(self.findings)


class Recording:
    """The recording of the box, read and joined.

    :param folder: with scenario.json, trace.txt, extents.json and LOG
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenario = scenario.load(folder / "scenario.json")
        with open(folder / "trace.txt", errors="replace") as lines:
            self.journal: Journal = journal.read(lines)
        parsed = logwrites.read(folder / LOG)
        journal.join(self.journal, parsed)
        self.data: Sectors = parsed.sectors
        extents = json.loads((folder / "extents.json").read_text())
        self.places = _places(self.scenario, extents)
        self._ops, self._files, self._sectors = _contents(self.journal.requests, self.data)
        for name in ("start", "end"):
            if name not in self.journal.marks:
                raise RecordingError(f"{folder}: the load did not {name}")
        if self.scenario.cache_mb:
            # Include the shutdown of the pool: seals, and the clean flag.
            self.journal.marks["end"] = max(r.complete for r in self.journal.requests)
        self._look_up()

    def _look_up(self) -> None:
        """Prepare to read all watched sectors at once."""
        self._device = np.concatenate(
            [np.arange(p.device, p.device + p.count) for p in self.places])
        self._file = np.concatenate([np.full(p.count, p.file) for p in self.places])
        self._sector = np.concatenate(
            [np.arange(p.sector, p.sector + p.count) for p in self.places])
        order = np.lexsort((self._sector, self._file))
        self._device, self._file, self._sector = (
            part[order] for part in (self._device, self._file, self._sector))

    @functools.cached_property
    def _recoverer(self) -> Recoverer:
        s = self.scenario
        program = Path(s.recover) if s.recover else recovery.build()
        return Recoverer(program, self.folder / LOG, len(self.data), s.cache_sectors, s.sectors,
                         record.VOLUME)

    def recover(self, image: Image, used: int = 0) -> Recovered:
        """Recover the pool from its cache device after a cut.

        :param used: sectors that an earlier recovery wrote, which are in the image
        :raises RecoveryError: if the pool cannot be recovered completely
        """
        recovered = self._recoverer.recover(image[:self.scenario.cache_sectors], used)
        if recovered.errors:
            raise RecoveryError(f"{recovered.errors} chunks or entries cannot be used")
        return recovered

    def content(self, image: Image) -> Image:
        """Return the content of the volume after a cut.

        :param image: image of the recorded device
        :raises RecoveryError: if its pool cannot be recovered completely
        """
        cache = self.scenario.cache_sectors
        if not cache:
            return image
        return self.recover(image).content(image[:cache], image[cache:])

    def watched(self, image: Image) -> Image:
        """Return the watched sectors of an image of the volume."""
        return image[self._device]

    def found(self, image: Image) -> Ops:
        """Return for each watched sector the operation whose data it holds.

        :param image: image of the volume
        """
        source = self.watched(image)
        ops = self._ops[source].copy()
        stamped = (ops != stamps.ZERO) & (ops != stamps.TORN)
        misplaced = stamped & ((self._files[source] != self._file)
                               | (self._sectors[source] != self._sector))
        ops[misplaced] = stamps.FOREIGN
        return ops

    def replay(self, origin: Origin | None = None) -> Replay:
        """Return the state of the origin at the beginning.

        :param origin: another one than was recorded with
        """
        honest = Origin(volatile=self.scenario.origin != "write-through")
        return Replay(self.journal.requests, self.scenario.recorded_sectors, origin or honest)

    def ledger(self) -> Ledger:
        """Return the requirements of the contract for the watched sectors."""
        rule = Attribution(self.scenario, self.journal.ops)
        files = {f: rule.images[f] for f in sorted(rule.images)}
        # A file system discards its own blocks only when they are unused.
        forget = bool(self.scenario.cache_mb) and not self.scenario.fs
        return Ledger(files, self.journal.ops, rule.covers, discards_forget=forget,
                      alive=self.journal.marks.get("alive", journal.NEVER))

    def bytes_of(self, image: Image) -> Iterator[tuple[int, bytes]]:
        """Yield (sector, data) of all non-zero parts of an image."""
        written = np.flatnonzero(image)
        if not len(written):
            return
        for run in np.split(written, np.flatnonzero(np.diff(written) != 1) + 1):
            yield int(run[0]), self.data[image[run]].tobytes()

    def checksum(self, image: Image) -> int | None:
        """Return the CRC of the volume after a cut.

        :return: None: it is no volume of a pool, or cannot be recovered
        """
        if not self.scenario.cache_mb:
            return None
        try:
            content = self.content(image)
        except RecoveryError:
            return None
        crc = 0
        for part in np.split(content, range(_PIECE, len(content), _PIECE)):
            crc = zlib.crc32(self.data[part].tobytes(), crc)
        return crc

    def faults(self) -> list[str]:
        """Find violations that do not depend on the moment of the cut."""
        found = [f"a read saw old content: {text}" for text in self.journal.misreads]
        torn = {int(s) for s in np.flatnonzero(self._ops == np.uint64(stamps.TORN))}
        if torn:
            found.append(f"{len(torn)} sectors were torn when they were written to the origin")
        if self.scenario.target == "vcache":
            found += self._races()
        if self.scenario.cache_mb:
            found += self._backwards()
        return found

    def _backwards(self) -> list[str]:
        """Find writes to the origin of a pool that were older than its content.

        A cut detects this only when the newer version has left the cache.
        """
        cache = self.scenario.cache_sectors
        newest = np.zeros(self.scenario.recorded_sectors, np.int64)
        ops = sorted((op for op in self.journal.ops if op.kind == "W"), key=lambda op: op.number)
        numbers = np.array([op.number for op in ops] or [0], np.uint64)
        submits, completes = (np.array(times or [0], np.int64) for times in (
            [op.submit for op in ops], [op.complete for op in ops]))
        found = []
        for write in sorted(self.journal.requests, key=lambda r: r.submit):
            if write.sector < cache or not write.data:
                continue
            there = self._ops_at(write, write.sector, write.count)
            which = np.searchsorted(numbers, there)
            which[which == len(numbers)] = 0
            known = numbers[which] == there
            at = slice(write.sector, write.sector + write.count)
            if (known & (completes[which] < newest[at])).any():
                found.append(f"sectors {write.sector - cache} + {write.count}: an older version "
                             f"was sent to the origin at {write.submit}")
            newest[at] = np.where(known, np.maximum(newest[at], submits[which]), newest[at])
        return found

    def _races(self) -> list[str]:
        """Find sequential writes of the load that were at the origin at the same time."""
        ops = {op.number: op for op in self.journal.ops}
        found = []
        for a, b in crash.overlapping(self.journal.requests):
            if not a.data or not b.data:
                continue
            start = max(a.sector, b.sector)
            count = min(a.sector + a.count, b.sector + b.count) - start
            pairs = {(int(x), int(y)) for x, y in zip(
                self._ops_at(a, start, count), self._ops_at(b, start, count), strict=True)}
            for first, second in ((ops.get(x), ops.get(y)) for x, y in pairs if x != y):
                if first and second and (first.complete < second.submit
                                         or second.complete < first.submit):
                    found.append(f"sectors {start} + {count}: ops {first} and {second} at the "
                                 "origin at once")
        return found

    def _ops_at(self, write: Request, start: int, count: int) -> Ops:
        at = write.data + start - write.sector
        return self._ops[at:at + count]


def _places(s: scenario.Scenario, extents: dict[str, list[list[int]]]) -> list[Place]:
    if not s.fs:
        return [Place(0, 0, 0, s.tags[0].sectors)]
    places = [Place(int(file), *extent) for file, runs in extents.items() for extent in runs]
    for tag in s.tags:
        have = sum(p.count for p in places if p.file == tag.file)
        if have != tag.sectors:
            raise RecordingError(f"file {tag.file}: {have} of {tag.sectors} sectors are mapped")
    return places


def _contents(requests: Iterable[Request], data: Sectors
              ) -> tuple[Ops, npt.NDArray[np.uint32], Ops]:
    """Decode the sectors of the log that are data; the others belong to no operation."""
    is_data = np.zeros(len(data), bool)
    for request in requests:
        if request.data:
            is_data[request.data:request.data + request.count] = True
    ops = np.full(len(data), stamps.FOREIGN, np.uint64)
    files = np.zeros(len(data), np.uint32)
    sectors = np.zeros(len(data), np.uint64)
    is_data[0] = True  # represents zeroes
    ops[is_data], files[is_data], sectors[is_data] = stamps.decode(data[is_data])
    return ops, files, sectors


def moments(j: Journal) -> list[int]:
    """Return the moments at which data has just become, or should have become, durable."""
    start, end = j.marks["start"], j.marks["end"]
    times = [r.complete for r in j.requests if r.flags & (Flag.FUA | Flag.FLUSH)]
    times += [op.complete for op in j.ops if op.kind == "F" or op.detail == "D"]
    return sorted({t for t in times if start <= t <= end})


def choose(j: Journal, seed: int, count: int | None, also: Sequence[int] = ()) -> list[Cut]:
    """Draw the cuts of a recording.

    :param count: number of cuts; None: at every moment of moments(), and as many
        again at random
    :param also: further moments, for a part of the cuts
    """
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    at = moments(j)
    if not at:
        raise RecordingError("nothing was made durable during the load")
    between = (j.marks["start"], max(at[-1], j.marks["end"]))
    if count is None:
        cuts = {Cut(time) for time in at}
        count = 2 * len(cuts)
    else:
        cuts = {Cut(time) for time in draw.sample(at, min(len(at), count // 2))}
    while len(cuts) < count:
        time = draw.choice(at) if draw.randrange(2) else draw.randint(*between)
        if also and not draw.randrange(3):
            time = draw.choice(also)
        survives: crash.Survives = "all" if not draw.randrange(5) else "some"
        cuts.add(Cut(time, survives, draw.getrandbits(32)))
    return sorted(cuts)


def check(recording: Recording, ledger: Ledger, image: Image) -> Sequence[object]:
    """Compare the data after a cut with the requirements; return the violations.

    :param image: image of the recorded device
    """
    s = recording.scenario
    if not s.cache_mb:
        return ledger.check(recording.found(recording.content(image)))
    try:
        recovered = recording.recover(image)
    except RecoveryError as error:
        return [str(error)]
    found = recording.found(recovered.content(image[:s.cache_sectors], image[s.cache_sectors:]))
    wrong: list[object] = [*ledger.check(found)]
    if not s.fs:
        wrong += [f"{v}, discarded, is in the cache again" for v in
                  ledger.check_cache(found, recording.watched(recovered.map) >= 0)]
    return wrong


def every_write(j: Journal, seed: int) -> list[Cut]:
    """Return cuts before and after the completion of each request of a load."""
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    start, end = j.marks["start"], j.marks["end"]
    times = sorted({time for r in j.requests for time in (r.submit, r.complete)
                    if start <= time <= end})
    survives: tuple[crash.Survives, ...] = ("none", "all", "some")
    return [Cut(time, kind, draw.getrandbits(32)) for time in times for kind in survives]


def judge(recording: Recording, cuts: Iterable[Cut], origin: Origin | None = None,
          enough: int | None = None) -> Verdict:
    """Replay the cuts in order, and check each.

    :param origin: another one than was recorded with
    :param enough: stop at this number of violations
    """
    verdict = Verdict()
    replay = recording.replay(origin)
    ledger = recording.ledger()
    faults = recording.faults()
    if faults:
        verdict.add(None, faults)
    for cut in sorted(cuts):
        replay.advance(cut.time)
        ledger.advance(cut.time)
        verdict.demands += int(ledger.must_mask().sum())
        verdict.add(cut, check(recording, ledger, replay.image(cut)))
        if enough and verdict.violations >= enough:
            break
    return verdict
