# SPDX-License-Identifier: Apache-2.0
"""Convert the agent's answer into the formats of Placement, the scheduler and the API.

Pure functions of the agent's answer to ``{"op": "host"}`` (vcache_agent/report.py). Of an older
agent some figures are missing. The module imports only the standard library.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vcache.extra_specs import Mode
from nova_vcache.host.objectives import objectives
from nova_vcache.placement import names
from nova_vcache.placement.capacity import Allocations, Capacity, guaranteed_mb
from nova_vcache.rpc.report import (
    MET,
    MISSED,
    DiskReport,
    HostReport,
    InstanceReport,
    LaneReport,
    ObjectiveReport,
    PoolReport,
)
from nova_vcache.summary import HostSummary

Json = Mapping[str, Any]

_MIB = 1 << 20
_CACHED = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH})


class HostView:
    """One answer of an agent.

    :param node: name of the compute node
    :param answer: the agent's
    """

    def __init__(self, node: str, answer: Json) -> None:
        self._node = node
        self._answer = answer
        self._disks: dict[str, list[Json]] = {}
        for disk in answer["disks"]:
            self._disks.setdefault(disk["uuid"], []).append(disk)
        self._domains = {item["uuid"]: item for item in answer["domains"]}
        # A pool in another state accepts no new data.
        self._pools = [item for item in answer["pools"] if item["state"] == "ok"]
        self._guaranteed = self._guarantees()
        self._elastic_ssds = list(self._elastic_promises())

    @property
    def draining(self) -> bool:
        """The host accepts no more instances."""
        return bool(self._answer["draining"])

    @property
    def instances(self) -> frozenset[str]:
        """UUIDs of the domains that run or are about to."""
        return frozenset(self._domains)

    def capacity(self, allocations: Allocations) -> Capacity:
        """Return the capacity for Placement.

        An instance can run without an allocation of the host's provider, because its
        flavor has no guarantee or does not request it from Placement. The resources of
        such an instance are reserved. During a migration, Nova moves the allocation to
        the migration as consumer. The instance then counts twice for a moment, but the
        free capacity is never too large.

        :param allocations: allocations of the host's provider
        """
        sizes = [guaranteed_mb(item["size_bytes"]) for item in self._pools]
        tags, cache = int(self._answer["tags_max"]), sum(sizes)
        reserved = min(tags, self._tags_reserved(allocations))
        due = Counter(self._guaranteed)
        for uuid, _, mib in self._elastic_ssds:
            due[uuid] += mib
        promised = min(cache, sum(
            max(0, mib - allocations.get(uuid, {}).get(names.CACHE_MB, 0))
            for uuid, mib in due.items()))
        return Capacity(
            tags=tags, tags_reserved=reserved, cache_mb=cache,
            largest_mb=max(sizes, default=0), cache_reserved_mb=promised,
            flush_isolation=self._isolates, elastic=self._elastic,
            tagged_ssd=any(item["isolation"] == "tagged" for item in self._answer["devices"]),
            modes=self._modes, closed=self.draining)

    @property
    def drain_left_bytes(self) -> int | None:
        """Bytes that a draining host still has to write to the origins; None: it does not drain.

        The pools also count data of stopped instances.
        """
        if not self.draining:
            return None
        return sum(item["dirty_bytes"] for item in self._answer["pools"]) + sum(
            disk["dirty_bytes"] or 0 for disk in self._answer["disks"])

    def report(self, age_s: float, problem: str = "",
               drain_total_bytes: int | None = None) -> HostReport:
        """Return the report for the API.

        :param age_s: seconds since the agent's answer
        :param problem: why there is no newer answer, or empty
        :param drain_total_bytes: see :class:`.HostReport`
        """
        return HostReport(
            summary=self._summary(age_s), problem=problem or self.problem,
            policy=self._answer["policy"]["name"], draining=self.draining,
            dirty_bytes=sum(sum(filter(None, (disk["dirty_bytes"], disk["cache_dirty_bytes"])))
                            for disk in self._answer["disks"]),
            drain_left_bytes=self.drain_left_bytes,
            drain_total_bytes=drain_total_bytes if self.draining else None,
            pools=tuple(self._pool(item) for item in self._answer["pools"]),
            instances=tuple(self._instance(item) for item in self._domains.values()))

    @property
    def problem(self) -> str:
        """Why the agent's answer is not complete, or empty."""
        return str(self._answer["agent"]["problem"] or self._answer["pools_problem"])

    @property
    def _isolates(self) -> bool:
        return all(item["isolation"] != "degraded" for item in self._answer["devices"])

    @property
    def _elastic(self) -> bool:
        return bool(self._pools) and self._answer["policy"]["name"] != "static"

    @property
    def _modes(self) -> frozenset[Mode]:
        """The modes that disks can have on the host now."""
        if self.problem:
            return frozenset()
        served = {Mode.WRITEBACK} if self._pools else set()
        for item in self._answer["devices"]:
            # A device whose cache fails still isolates flushes.
            if not item["broken"] and item["mode"] != Mode.NONE:
                broken = item["cache"] is not None and item["cache"]["broken"]
                served.add(Mode.FLUSH_ONLY if broken else Mode(item["mode"]))
        # On a device in mode writeback, each tag can have any mode.
        return frozenset(served | _CACHED | {Mode.FLUSH_ONLY} if Mode.WRITEBACK in served
                         else served)

    def _tags_reserved(self, allocations: Allocations) -> int:
        """Return the number of used tags that are not covered by allocations."""
        taken: Counter[str] = Counter(self._answer["tags_of"])
        counted = sum(1 for uuid in taken if allocations.get(uuid, {}).get(names.TAG))
        return sum(taken.values()) - counted

    def _guarantees(self) -> dict[str, int]:
        """Return the guaranteed MiB of each instance that has a cache.

        Dedicated lanes count completely, because no other instance can use them.
        """
        found = {uuid: max(int(item["specs"]["min_mb"]), self._lanes_mb(uuid))
                 for uuid, item in self._domains.items() if self._pool_of(uuid)}
        return {uuid: mib for uuid, mib in found.items() if mib}

    def _elastic_promises(self) -> Iterator[tuple[str, str, int]]:
        """Yield the instance, the pool and the guaranteed MiB of each elastic SSD.

        One that belongs to no flavor's instance, because an operator has made it, counts with the
        size that it has now, for an instance without a name.
        """
        for row in self._answer.get("vssds", ()):
            specs = self._domains.get(row["uuid"] or "", {}).get("specs", {})
            if specs.get("vssd_max_mb") is None:
                yield "", row["pool"], row["size_bytes"] // _MIB
            else:
                yield row["uuid"], row["pool"], int(specs["vssd_mb"])

    def _lanes_mb(self, uuid: str) -> int:
        return sum(disk["lanes_bytes"] for disk in self._disks.get(uuid, ())) // _MIB

    def _pool_of(self, uuid: str) -> str | None:
        """Return the pool of an instance's cached disks; None if it has none."""
        return next((disk["pool"] for disk in self._disks.get(uuid, ())
                     if disk["pool"] and disk["mode"] in _CACHED), None)

    def _of_pool(self, device: str) -> int:
        """Return the guaranteed MiB of a pool."""
        return sum(mib for uuid, mib in self._guaranteed.items() if self._pool_of(uuid) == device) \
            + sum(mib for _, pool, mib in self._elastic_ssds if pool == device)

    def _summary(self, age_s: float) -> HostSummary:
        """Return the summary for the scheduler; a draining host has no free resources."""
        free = [max(0, guaranteed_mb(item["size_bytes"]) - self._of_pool(item["device"]))
                for item in self._pools]
        tags = max(0, int(self._answer["tags_max"]) - sum(self._answer["tags_of"].values()))
        # By tag: the states of its objectives.
        slo: dict[tuple[str, str], set[str]] = {}
        for uuid, item in self._domains.items():
            for one in self._objectives(uuid, item):
                slo.setdefault((uuid, one.disk), set()).add(one.state)
        p99 = self._answer["flush_p99_us"]
        closed = self.draining or bool(self.problem)
        return HostSummary(
            node=self._node, age_s=age_s, modes=frozenset() if closed else self._modes,
            flush_isolation=self._isolates and not self.problem,
            tags_free=0 if closed else tags,
            cache_mb=sum(guaranteed_mb(item["size_bytes"]) for item in self._pools),
            cache_free_mb=0 if closed else sum(free),
            largest_free_mb=0 if closed else max(free, default=0),
            weight=sum(int(item["specs"]["weight"]) for uuid, item in self._domains.items()
                       if self._pool_of(uuid)),
            idle_mb=sum(max(0, (disk["cache_share_bytes"] or 0) - (disk["cached_bytes"] or 0))
                        for disk in self._answer["disks"] if disk["pool"]) // _MIB,
            lanes_free=0 if closed else sum(item["lanes_free"] for item in self._pools),
            loss_per_gb=self._answer["loss_per_gb"],
            flush_p99_ms=None if p99 is None else p99 / 1000,
            read_p99_us=self._answer["read_p99_us"],
            slo_tags=len(slo), slo_missed=sum(MISSED in states for states in slo.values()))

    def _objectives(self, uuid: str, item: Json) -> list[ObjectiveReport]:
        """Return the objectives of an instance's disks."""
        return [found for disk in self._disks.get(uuid, ())
                for found in objectives(item["specs"], disk)]

    def _instance(self, item: Json) -> InstanceReport:
        found = self._objectives(item["uuid"], item)
        states = {one.state for one in found}
        return InstanceReport(
            uuid=item["uuid"], name=item["name"], project=item["project"], phase=item["phase"],
            problem=item["problem"], specs=dict(item["specs"]), flavor=dict(item["flavor"]),
            override=dict(item["override"]),
            slo_missed=MISSED in states if states & {MET, MISSED} else None,
            disks=tuple(_disk(disk) for disk in self._disks.get(item["uuid"], ())),
            objectives=tuple(found), flush_p50_us=item.get("flush_p50_us"),
            flush_p99_us=item.get("flush_p99_us"), hit_ratio=item.get("hit_ratio"))

    def _pool(self, item: Json) -> PoolReport:
        return PoolReport(
            name=item["name"], device=item["device"], state=item["state"],
            chunk_bytes=item["chunk_bytes"], size_bytes=item["size_bytes"],
            free_bytes=item["free_bytes"], used_bytes=item["used_bytes"],
            dirty_bytes=item["dirty_bytes"], volumes=item["volumes"],
            guaranteed_bytes=self._of_pool(item["device"]) * _MIB,
            reads_percent=item["reads_percent"], hot_percent=item["hot_percent"],
            lanes=tuple(LaneReport(lane["size_bytes"], lane["free_bytes"], lane["dedicated"],
                                   lane["uuid"]) for lane in item.get("lanes", ())))


def silent(node: str, problem: str) -> HostReport:
    """Return the report of a host whose agent has never answered."""
    return HostReport(HostSummary(node=node), problem=problem)


def _disk(item: Json) -> DiskReport:
    dirty = [item["dirty_bytes"], item["cache_dirty_bytes"]]
    return DiskReport(
        disk=item["disk"], mode=item["mode"], state=item["state"], note=item["note"],
        tag=item["tag"], pool=item["pool"], cached_bytes=item["cached_bytes"],
        share_bytes=item["cache_share_bytes"],
        dirty_bytes=None if None in dirty else sum(dirty), flush_p99_us=item["flush_p99_us"],
        read_p99_us=item["read_p99_us"], flush_p50_us=item.get("flush_p50_us"),
        hit_ratio=item.get("hit_ratio"), requests_per_s=item.get("requests_per_s"))
