# SPDX-License-Identifier: Apache-2.0
"""The state of the whole host as plain values, for vcache-host.

It is the answer to ``{"op": "host"}`` on the admin socket; see admin_server.py. Sizes
are in bytes. The unit of a time is at the end of its name.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nova_vcache import extra_specs
from nova_vcache.extra_specs import Isolation
from vcache_agent import histogram, lanes, marginal, pools, recent, view
from vcache_agent.admission import specs_of
from vcache_agent.decide.blame import Verdict
from vcache_agent.dm import Dm, DmError
from vcache_agent.model import Curve, Device, Lane, Owner, Tag, lanes_of
from vcache_agent.netlink import spec
from vcache_agent.observe.activity import Counts
from vcache_agent.observe.sample import TagKey
from vcache_agent.overrides import NONE, Adjust
from vcache_agent.recent import Lately
from vcache_agent.vssd import devices as vssd_devices

if TYPE_CHECKING:
    from vcache_agent.store import Store
    from vcache_agent.worker import Outcome

Json = dict[str, Any]


def host(outcome: "Outcome", store: "Store", devices: list[Device], tags: list[Tag],
         lately: Mapping[TagKey, Lately], curves: Mapping[TagKey, Curve],
         lanes_now: Iterable[Lane] = (), guests: Mapping[str, Json] | None = None) -> Json:
    """Return devices, pools, domains and their disks.

    :param lanes_now: the lanes of the newest sample
    :param guests: what is known about the guests of elastic SSDs, by name
    """
    found, vssds, problem = _pools(guests or {})
    domains = _domains(outcome, store)
    disks = _disks(outcome, devices, tags, lately, {row["device"]: row["lanes_bytes"]
                                                    for row in found})
    lenders = _lenders(store, domains, disks)
    lanes_now = list(lanes_now)
    for pool in found:
        pool["lanes_free"] = _lanes_free(pool, devices, tags, lenders)
        pool["lanes"] = _lanes(pool, devices, tags, disks, lanes_now)
    for domain in domains:
        domain |= _figures(domain["uuid"], disks, lately)
    return {
        "draining": store.draining(),
        "tags_max": spec.TAG_MAX,
        "tags_of": _tags_of(store),
        "flush_p99_us": _p99_us(recent.merged(item.flushes for item in lately.values())),
        "read_p99_us": _p99_us(recent.merged(item.reads for item in lately.values())),
        "loss_per_gb": _loss_per_gb(tags, lately, curves),
        "devices": [view.device(item) for item in devices],
        "pools": found, "pools_problem": problem, "vssds": vssds,
        "domains": domains, "disks": disks}


def _tags_of(store: "Store") -> dict[str, int]:
    """Return the number of tags by UUID of the domain; shared layers are under an empty text."""
    found = Counter(disk.domain for disk in store.disks())
    shared = sum(row.tag is not None for row in store.layers().values())
    return dict(found) | ({"": shared} if shared else {})


def _pools(guests: Mapping[str, Json]) -> tuple[list[Json], list[Json], str]:
    """Return the pools, the elastic SSDs, and the problem with them."""
    try:
        with Dm() as dm:
            rows = [pools.row(pool, pools.members(dm, pool)) for pool in pools.pools(dm)]
            vssds = [{"name": one.info.name, "pool": str(one.pool),
                      "uuid": guests.get(one.info.name, {}).get("uuid"),
                      "size_bytes": one.quota * one.block_bytes,
                      "max_bytes": one.most * one.block_bytes,
                      "used_bytes": one.mapped * one.block_bytes} for one in vssd_devices.every(dm)]
            return rows, vssds, ""
    except DmError as error:
        return [], [], f"cannot list the pools: {error.strerror}"


def _lenders(store: "Store", domains: list[Json], disks: list[Json]) -> set[tuple[str, int]]:
    """Return the tags whose lanes a tag with isolation ``dedicated`` may take (lanes.py)."""
    by_hand = {row.tag for row in store.disks().values() if row.lanes is not None}
    auto = {row["uuid"] for row in domains if row["specs"]["isolation"] == Isolation.AUTO}
    return {(row["device"], row["tag"]) for row in disks
            if row["uuid"] in auto and row["tag"] is not None and row["tag"] not in by_hand}


def _lanes_free(pool: Json, devices: list[Device], tags: list[Tag],
                lenders: set[tuple[str, int]]) -> int:
    """Return how many lanes of a pool can be dedicated to another instance."""
    inside = {item.number for item in devices if item.pool == pool["device"]}
    held = {lane for tag in tags if tag.device in inside
            and (str(tag.device), tag.id) not in lenders for lane in lanes_of(tag.cache_lanes)}
    # Lane 0 is always shared.
    return len(set(range(1, len(pool["lanes_bytes"]))) - held)


def _lanes(pool: Json, devices: list[Device], tags: list[Tag], disks: list[Json],
           lanes_now: Iterable[Lane]) -> list[Json]:
    """Return the lanes of a pool: sizes, and the instance that has a lane for itself."""
    inside = {item.number for item in devices if item.pool == pool["device"]}
    owners = {(row["device"], row["tag"]): row["uuid"] for row in disks}
    holders = {lane: owners.get((str(tag.device), tag.id), "") for tag in tags
               if tag.device in inside for lane in lanes_of(tag.cache_lanes)}
    free = {item.lane: item.free_bytes for item in lanes_now if str(item.pool) == pool["device"]}
    return [{"size_bytes": size, "free_bytes": free.get(number),
             "dedicated": number in holders, "uuid": holders.get(number, "")}
            for number, size in enumerate(pool["lanes_bytes"])]


def _figures(uuid: str, disks: list[Json], lately: Mapping[TagKey, Lately]) -> Json:
    """Return the figures of all disks of a domain together, in about the last minute."""
    by_text = {(str(device), tag): item for (device, tag), item in lately.items()}
    found = [by_text[key] for row in disks if row["uuid"] == uuid
             if (key := (row["device"], row["tag"])) in by_text]
    flushes = recent.merged(item.flushes for item in found)
    return {"hit_ratio": _ratio(found), "flush_p50_us": _us(flushes, 0.5),
            "flush_p99_us": _us(flushes, 0.99)}


def _domains(outcome: "Outcome", store: "Store") -> list[Json]:
    overrides = store.overrides()
    adjust = Adjust(overrides, store.draining())
    rows = []
    for entry in outcome.snapshot.entries:
        domain = entry.domain
        if domain.owner is Owner.VOLUME:
            continue
        flavor, problem = specs_of(domain.extra_specs)
        rows.append({
            "uuid": domain.uuid, "name": domain.name, "project": domain.project,
            "phase": str(entry.phase),
            "problem": problem or extra_specs.warning(domain.extra_specs),
            "specs": dataclasses.asdict(adjust.specs(domain.uuid, flavor)),
            "flavor": dataclasses.asdict(flavor),
            "override": overrides.get(domain.uuid, NONE).given})
    return rows


def _disks(outcome: "Outcome", devices: list[Device], tags: list[Tag],
           lately: Mapping[TagKey, Lately], lane_sizes: Mapping[str, list[int]]) -> list[Json]:
    """Return the disks as ``vcache disks --json`` prints them, with more about the cache.

    :param lane_sizes: sizes of the pools' lanes in bytes, by device number of the pool
    """
    pool_of = {str(item.number): item.pool for item in devices}
    found = {(str(item.device), item.id): item for item in tags}
    found_lately = {(str(number), tag): item for (number, tag), item in lately.items()}
    rows = [row for row in view.disks(outcome, tags) if row["owner"] == Owner.INSTANCE]
    missed = outcome.plan.pools.history.missed if outcome.plan else {}
    verdicts = {(str(device), tag): item for (device, tag), item in missed.items()}
    for row in rows:
        del row["owner"]
        key = (row["device"], row["tag"])
        tag, of = found.get(key), found_lately.get(key)
        # A guest waits for reads of a shared layer as for those of its own.
        also = [found_lately[other] for item in row["also_read"]
                if (other := (item["device"], item["tag"])) in found_lately]
        pool = pool_of.get(row["device"] or "", "")
        row |= {"pool": pool or None,
                "cache_share_bytes": tag.cache_share_bytes if tag else None,
                "lanes_bytes": lanes.capacity(lane_sizes.get(pool, ()), tag.cache_lanes)
                if tag else 0,
                "missed": [_verdict(one) for one in verdicts.get(key, ())],
                "requests_per_s": of.requests_per_s if of else None,
                "hit_ratio": _ratio([of] if of else []),
                "flush_p50_us": _us(of.flushes, 0.5) if of else None,
                "flush_p99_us": _p99_us(of.flushes) if of else None,
                "read_p99_us": _p99_us(recent.merged(
                    item.reads for item in ([of] if of else []) + also))}
    return rows


def _loss_per_gb(tags: list[Tag], lately: Mapping[TagKey, Lately],
                 curves: Mapping[TagKey, Curve]) -> float | None:
    """Return the additional read misses per second with 1 GiB less cache.

    New tags do not count yet, because their read rate is unknown.

    :return: None if the read rates of all tags are unknown
    """
    cached = [tag for tag in tags if tag.cached_bytes]
    rates = {(tag.device, tag.id): lately[tag.device, tag.id].reads_per_s for tag in cached}
    if cached and set(rates.values()) == {None}:
        return None
    return round(marginal.loss_per_gb(
        marginal.User(curves[key], tag.cached_bytes, rate) for tag in cached
        if (rate := rates[key := (tag.device, tag.id)]) is not None and key in curves), 3)


# The extra spec of an objective, and its unit in those of a verdict.
_OBJECTIVES = {"flush": ("slo_flush_ms", 1e3), "read": ("slo_read_us", 1e6),
               "iops": ("slo_iops", 1.0)}


def _verdict(found: Verdict) -> Json:
    """Return why an objective was missed in the last control period, in the unit of its key."""
    name, scale = _OBJECTIVES[found.objective]
    return {"objective": name, "cause": str(found.cause), "text": found.text,
            "measured": round(found.measured * scale, 3),
            "promised": round(found.promised * scale, 3)}


def _ratio(items: Iterable[Lately]) -> float | None:
    found = recent.hit_ratio(items)
    return None if found is None else round(found, 4)


def _p99_us(counts: Counts) -> float | None:
    return _us(counts, 0.99)


def _us(counts: Counts, part: float) -> float | None:
    found = histogram.percentile(counts, part)
    return None if found is None else round(found / 1000, 3)
