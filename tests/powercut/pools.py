# SPDX-License-Identifier: Apache-2.0
"""Checks for pools, in addition to the cuts of all recordings."""

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tests.powercut import stamps
from tests.powercut.crash import Cut
from tests.powercut.journal import Request
from tests.powercut.judge import Recording, Verdict
from tests.powercut.recovery import RecoveryError

# Blocks of the metadata of a pool without the chunk table, and chunks per block of the table.
_METADATA_BLOCKS = 65
_CHUNKS_PER_BLOCK = 254

# Sectors at the end of a chunk with both copies of its seal.
_SEAL = 16


def in_place(recording: Recording) -> list[Request]:
    """Return the writes that overwrite data of a pool in place, in the order of submission.

    These are writes of metadata and seals. If torn, they must not destroy other data.
    """
    s = recording.scenario
    if not s.cache_mb:
        return []
    size = s.chunk_kib * 2
    start = recording.journal.marks["start"]
    metadata = _METADATA_BLOCKS + -(-s.cache_sectors // size // _CHUNKS_PER_BLOCK)
    first = 2 * (-(-metadata * 8 // size) * size)
    return sorted((r for r in recording.journal.requests
                   if r.data and r.sector < s.cache_sectors and r.submit >= start
                   and (r.sector % size >= size - _SEAL or r.sector < first)),
                  key=lambda r: r.submit)


def chunk_uses(recording: Recording) -> float:
    """Return the mean number of times that chunks were written from their beginning."""
    s = recording.scenario
    if not s.cache_mb:
        return 0
    size = s.chunk_kib * 2
    begun = [r.sector // size for r in recording.journal.requests
             if r.data and r.sector < s.cache_sectors and not r.sector % size]
    return round(len(begun) / max(1, len(set(begun))), 1)


def judge_recovery(recording: Recording, cuts: Iterable[Cut]) -> Verdict:
    """Cut the power again at each write of the recovery: the result must be the same."""
    verdict = Verdict()
    replay = recording.replay()
    cache = recording.scenario.cache_sectors
    for cut in sorted(cuts):
        replay.advance(cut.time)
        image = replay.image(cut)
        try:
            verdict.add(cut, [])
            first = recording.recover(image)
            wanted = first.content(image[:cache], image[cache:])
            for torn in (0, 1 + cut.time % 7):
                for number, (again, used) in enumerate(first.interrupted(image[:cache], torn)):
                    got = recording.recover(again, used).content(again, image[cache:])
                    other = np.flatnonzero(got != wanted)
                    verdict.add(cut, [f"sector {other[0]} and {len(other) - 1} others: another "
                                      f"content after a cut at write {number} of the recovery"]
                                if len(other) else [])
        except RecoveryError as error:
            verdict.add(cut, [f"cut in the recovery: {error}"])
    return verdict


def wrongly_changed(before: stamps.Ops, after: stamps.Ops,
                    discarding: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return the watched sectors whose content has changed although it must not.

    The origin discards before the cache does. If the chunk with the data is reclaimed in
    between, the data becomes zeroes, and nothing else.

    :param discarding: sectors for which a discard is in progress
    """
    return np.flatnonzero((after != before) & ~(discarding & (after == stamps.ZERO)))


def judge_in_place(recording: Recording, count: int) -> Verdict:
    """Cut the power during writes that overwrite data in place.

    No such write changes the content of the volume: the data of a reclaimed chunk is also on
    the origin, and a seal repeats the valid entries of the records. Only data being discarded
    may become zeroes: see wrongly_changed().

    :param count: number of writes
    """
    verdict = Verdict()
    draw = random.Random(recording.scenario.seed)  # noqa: S311 - repeatable, not secret
    writes = in_place(recording)
    chosen = {id(w) for w in draw.sample(writes, min(count, len(writes)))}
    replay, ledger = recording.replay(), recording.ledger()
    for write in writes:
        if id(write) not in chosen:
            continue
        replay.advance(write.submit)
        ledger.advance(write.submit)
        cut = Cut(write.submit)
        image = replay.image(cut)
        try:
            before = recording.found(recording.content(image))
            torn = draw.randrange(1, write.count)
            for first, last in ((0, torn), (torn, write.count), (0, write.count)):
                partly = image.copy()
                partly[write.sector + first:write.sector + last] = np.arange(
                    write.data + first, write.data + last)
                other = wrongly_changed(before, recording.found(recording.content(partly)),
                                        ledger.discarding())
                verdict.add(cut, [f"what {len(other)} sectors hold changes with sectors {first} to "
                                  f"{last} of the write of {write.sector}"] if len(other) else [])
        except RecoveryError as error:
            verdict.add(cut, [f"cut in the write of {write.sector}: {error}"])
    return verdict
