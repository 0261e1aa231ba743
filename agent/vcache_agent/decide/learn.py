# SPDX-License-Identifier: Apache-2.0
"""What a survey adds to the history: curves of a period, times, loads, states of controllers."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vcache_agent import histogram
from vcache_agent.decide import rates, slo, throughput, times
from vcache_agent.decide.history import BUSY, History, Known, Load
from vcache_agent.decide.mrc import GRAINS
from vcache_agent.decide.tenant import BLOCK_BYTES, MIB, Tenant, Times
from vcache_agent.model import FLUSH_CAUSES, Curve, DeviceNumber, Stats, Tag
from vcache_agent.observe.activity import Counts, difference
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagKey

#: Weight of the periods before in a curve, and in the usual load.
KEEP = 0.9


def learn(history: History, sample: Sample, claims: Iterable[Claim],
          pools: Mapping[str, PoolSize]) -> History:
    """Return the history after a survey.

    A survey of another boot, or before the last one, begins anew.

    :param claims: of all tags
    :param pools: the pools by number
    """
    last = history.sample
    if last is None or sample.monotonic <= last.monotonic:
        return dataclasses.replace(history, sample=sample, tags=_first(history, sample))
    seconds = sample.monotonic - last.monotonic
    grown = {key: difference(tag.stats, last.by_key[key].stats)
             for key, tag in sample.by_key.items() if key in last.by_key}
    all_times = dict(history.times) | {
        device: found for device, found in _times(history.times, grown).items() if found}
    claimed = {claim.key: claim for claim in claims}
    curves = {(one.device, one.id): one.curve for one in sample.curves}
    suspects, tags = history.restraints.suspects, {}
    victims = history.restraints.victims
    disturbed = {device for device, _ in victims}
    pools_disturbed = {claimed[key].pool for key in victims if key in claimed}
    for key, tag in sample.by_key.items():
        known = history.tags.get(key, Known())
        if key not in grown:
            tags[key] = dataclasses.replace(Known(), curve=curves.get(key), quota=known.quota)
            continue
        claim = claimed.get(key)
        usual = known.usual
        known = _after(known, tag, _load(grown[key], seconds), _Window(
            curves.get(key), seconds, _grain(claim, pools)))
        near = key[0] in disturbed or (claim is not None and claim.pool in pools_disturbed)
        if key in suspects or (near and key not in victims and usual is not None):
            # A long burst must not become the usual load, or a device would be blamed for it.
            known = dataclasses.replace(known, usual=usual)
        tags[key] = known if claim is None else _control(known, tag, claim, all_times.get(key[0]))
    # Nor must the times of a device that a neighbour disturbs.
    usual_times = {**history.usual, **_slowly(history.usual, {
        device: found for device, found in history.times.items()
        if device not in disturbed})}
    return dataclasses.replace(history, sample=sample, tags=tags, times=all_times,
                               usual=usual_times)


def tenant(claim: Claim, known: Known, of_device: Times | None,
           quota: int | None = None) -> Tenant:
    """Return a tag as policies see it.

    :param quota: None: that of the last decision
    """
    return Tenant(
        claim.weight, claim.least, claim.most, known.quota if quota is None else quota,
        known.cached, known.rates,
        of_device or times.UNKNOWN, claim.writeback, max(known.load.depth, 1e-3),
        idle=known.quiet)


def _first(history: History, sample: Sample) -> dict[TagKey, Known]:
    """Return the tags of a first survey; quotas stay."""
    curves = {(one.device, one.id): one.curve for one in sample.curves}
    return {key: Known(curve=curves.get(key), quota=history.tags[key].quota
                       if key in history.tags else 0) for key in sample.by_key}


def _slowly(usual: Mapping[DeviceNumber, Times],
            before: Mapping[DeviceNumber, Times]) -> dict[DeviceNumber, Times]:
    """Return the usual times, with those before the last period."""
    return {device: times.mean(usual[device], new, KEEP) if device in usual else new
            for device, new in before.items()}


class _Window(NamedTuple):
    """The curve at the end of a period.

    :param grain: step of sizes in bytes that is fine enough
    """

    curve: Curve | None
    seconds: float
    grain: int


def _grain(claim: Claim | None, pools: Mapping[str, PoolSize]) -> int:
    """Return the step of sizes by which the tag's pool is divided, or less."""
    pool = pools.get(claim.pool) if claim is not None else None
    return max(MIB, pool.size // GRAINS) if pool is not None else MIB


def _after(known: Known, tag: Tag, load: Load, window: _Window) -> Known:
    """Return a tag after a period, without the states of its controllers."""
    new, found = window.curve, None
    if new is not None and known.curve is not None and new is not known.curve:
        # Points that the division cannot tell apart cost time only.
        step = 1
        while new.grain * step * 2 <= window.grain and step < 64:
            step *= 2
        found = rates.between(known.curve, new, window.seconds, step)
    quiet = load.idle if found is None else found.quiet
    learned = known.rates if found is None or quiet else rates.blended(known.rates, found, KEEP)
    return Known(
        new or known.curve, learned, found, load, _usual(known), tag.cached_bytes, quiet,
        known.correction, known.slo, known.quota, known.lanes, known.wanted, known.stable)


def _times(old: Mapping[DeviceNumber, Times],
           grown: Mapping[TagKey, Stats]) -> dict[DeviceNumber, Times | None]:
    """Return the times of each device: all its tags have one cache and one origin."""
    counts: dict[DeviceNumber, list[Counts]] = defaultdict(list)
    total: dict[DeviceNumber, int] = defaultdict(int)
    hits: dict[DeviceNumber, int] = defaultdict(int)
    for (device, _), stats in grown.items():
        if stats.read_bytes and stats.read_hist:
            counts[device].append(stats.read_hist)
            total[device] += stats.read_bytes
            hits[device] += stats.read_hit_bytes + stats.cache_hit_bytes
    return {device: times.learn(old.get(device), times.Reads(
        [sum(each) for each in zip(*hists, strict=True)],
        max(0.0, 1 - hits[device] / total[device]))) for device, hists in counts.items()}


def _load(grown: Stats, seconds: float) -> Load:
    fetched = max(0, grown.read_bytes - grown.read_hit_bytes - grown.cache_hit_bytes)
    read_p99 = histogram.percentile(grown.read_hist, 0.99)
    flush_p99 = histogram.percentile(grown.flush_hist, 0.99)
    waits = {cause: getattr(grown, f"flush_{cause}_ns") for cause in FLUSH_CAUSES}
    longest = max(waits, key=lambda cause: waits[cause])
    waited = waits[longest]
    return Load(
        blocks=(grown.read_bytes + grown.write_bytes) / BLOCK_BYTES / seconds,
        requests=(grown.reads + grown.writes) / seconds, flushes=grown.flushes / seconds,
        depth=(grown.read_ns + grown.flush_ns + grown.wait_ns) / 1e9 / seconds,
        missed=fetched / grown.read_bytes if grown.read_bytes else None,
        read_p99=None if read_p99 is None else read_p99 / 1e9,
        flush_p99=None if flush_p99 is None else flush_p99 / 1e9,
        flush_wait=longest if waited else "",
        flush_wait_part=waited / sum(waits.values()) if waited else 0.0,
        waited=grown.wait_ns / 1e9 / seconds, written=grown.write_bytes / seconds,
        fetched=fetched / seconds, destaged=grown.writeout_bytes / seconds)


def _usual(known: Known) -> Load | None:
    """Return the moving averages, with the last period before this one."""
    if known.load.idle:
        return known.usual
    if known.usual is None:
        return known.load
    old, new = known.usual, known.load

    def mean(was: float, now: float) -> float:
        return KEEP * was + (1 - KEEP) * now

    return Load(
        blocks=mean(old.blocks, new.blocks), requests=mean(old.requests, new.requests),
        depth=mean(old.depth, new.depth), waited=mean(old.waited, new.waited),
        written=mean(old.written, new.written), fetched=mean(old.fetched, new.fetched),
        destaged=mean(old.destaged, new.destaged))


def _control(known: Known, tag: Tag, claim: Claim, of_device: Times | None) -> Known:
    """Return a tag with the states of its controllers after the period."""
    # What a tag really has may differ from its quota, which is only a lower bound.
    was = tenant(claim, known, of_device, quota=tag.cached_bytes)
    expected = throughput.predicted(was, tag.cached_bytes, known.correction)
    correction = throughput.corrected(known.correction, known.load.blocks, expected)
    if not (claim.read_s or claim.iops):
        return known if correction == known.correction else \
            dataclasses.replace(known, correction=correction)
    level = slo.Level(claim.read_s or None, claim.iops or None)
    return dataclasses.replace(known, correction=correction, slo=slo.step(
        was, level, known.slo, known.load.read_p99,
        known.load.requests if known.load.depth >= BUSY else None))
