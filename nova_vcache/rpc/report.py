# SPDX-License-Identifier: Apache-2.0
"""The report of a host for vcache-api, sent periodically and after important changes.

It is the argument of the casts ``report`` and ``beat``; see api_side.py. As in the summary, a
reader ignores unknown fields and uses the default for absent ones, so that either side may be
newer. The module imports only the standard library.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeVar

from nova_vcache.summary import BadSummary, HostSummary, parse_host

T = TypeVar("T")


#: States of an objective, and of all objectives of an instance; NONE: it has no objective.
MET, MISSED, UNKNOWN, NONE = "met", "missed", "unknown", "none"

_OBJECTIVES = ("slo_flush_ms", "slo_read_us", "slo_iops")


class BadReport(ValueError):
    """The document is not a valid report; the text names the part and the field."""


@dataclasses.dataclass(frozen=True, slots=True)
class DiskReport:
    """One disk of an instance.

    :param disk: its name in the instance, such as ``vda``
    :param mode: its effective mode
    :param state: its state, as in ``vcache disks``
    :param note: why it does not get what its flavor requests, or empty
    :param tag: its tag on the host; None: it has no tag
    :param pool: device number of the pool; None: no cache
    :param cached_bytes: its data in the cache
    :param share_bytes: its share of the cache
    :param dirty_bytes: dirty data in the write buffer and in the cache
    :param flush_p99_us: p99 of the flush latency in the last minute; None: no flush
    :param read_p99_us: p99 of the read latency in the last minute; None: no read
    :param flush_p50_us: median of the flush latency in the last minute; None: no flush
    :param hit_ratio: part of the bytes that it read in the last minute that did not come from
        its origin; None: no read
    :param requests_per_s: reads and writes per second in the last minute; None: not known yet
    """

    disk: str
    mode: str = "none"
    state: str = "untagged"
    note: str = ""
    tag: int | None = None
    pool: str | None = None
    cached_bytes: int | None = None
    share_bytes: int | None = None
    dirty_bytes: int | None = None
    flush_p99_us: float | None = None
    read_p99_us: float | None = None
    flush_p50_us: float | None = None
    hit_ratio: float | None = None
    requests_per_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectiveReport:
    """One service-level objective of a disk.

    :param disk: name of the disk in the instance
    :param objective: name of the extra spec without prefix, such as ``slo_flush_ms``
    :param promised: the objective, in the unit of the extra spec
    :param measured: the same; None: there were no requests
    :param state: ``met``, ``missed``, or ``unknown`` if too little was measured
    :param cause: why it is missed or unknown, as in vcache_agent/decide/blame.py; ``unknown``: it
        is missed, but the agent has found no cause; else empty
    :param text: the cause as a sentence for operators, which may name another tag, or empty
    """

    disk: str
    objective: str
    promised: float
    measured: float | None = None
    state: str = UNKNOWN
    cause: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LaneReport:
    """One lane of a pool; sizes in bytes.

    :param free_bytes: free space; None: the module does not report it
    :param dedicated: only one disk uses it
    :param instance: UUID of that disk's instance; empty: none, or it is not running
    """

    size_bytes: int
    free_bytes: int | None = None
    dedicated: bool = False
    instance: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceReport:
    """One instance that runs on the host or is about to.

    :param uuid: UUID of the instance
    :param name: name of its libvirt domain
    :param project: project that owns it; empty: unknown, so only administrators see it
    :param phase: ``preparing`` or ``running``
    :param problem: problem with its flavor's extra specs, or empty
    :param specs: effective extra specs, by name without prefix; ``mode`` is the requested one
    :param flavor: extra specs of its flavor, by name without prefix
    :param override: values that override the flavor, by name without prefix
    :param slo_missed: it misses an objective now; None: it has none, or none was measured
    :param disks: its disks
    :param objectives: the objectives of its disks; empty: none, or an older host
    :param flush_p50_us: median of the flush latency of all its disks in the last minute
    :param flush_p99_us: p99 of the same
    :param hit_ratio: that of all its disks
    """

    uuid: str
    name: str = ""
    project: str = ""
    phase: str = ""
    problem: str = ""
    specs: dict[str, Any] = dataclasses.field(default_factory=dict)
    flavor: dict[str, Any] = dataclasses.field(default_factory=dict)
    override: dict[str, Any] = dataclasses.field(default_factory=dict)
    slo_missed: bool | None = None
    disks: tuple[DiskReport, ...] = ()
    objectives: tuple[ObjectiveReport, ...] = ()
    flush_p50_us: float | None = None
    flush_p99_us: float | None = None
    hit_ratio: float | None = None

    @property
    def slo_state(self) -> str:
        """State of its objectives: missed if one is, else met if one is."""
        found = {item.state for item in self.objectives}
        if not found and any(self.specs.get(name) for name in _OBJECTIVES):
            # From an older host, or no disk has a tag.
            found = {UNKNOWN if self.slo_missed is None else MISSED if self.slo_missed else MET}
        return next((state for state in (MISSED, MET, UNKNOWN) if state in found), NONE)


@dataclasses.dataclass(frozen=True, slots=True)
class PoolReport:
    """One pool of the host; sizes in bytes.

    :param device: device number of the pool
    :param guaranteed_bytes: sum of the guarantees of its instances
    :param reads_percent: option of the pool; None: the module does not report it
    :param hot_percent: option of the pool; None: the module does not report it
    :param lanes: its lanes; empty: an older host
    """

    name: str
    device: str = ""
    state: str = "unknown"
    chunk_bytes: int = 0
    size_bytes: int = 0
    free_bytes: int = 0
    used_bytes: int = 0
    dirty_bytes: int = 0
    volumes: int = 0
    guaranteed_bytes: int = 0
    reads_percent: int | None = None
    hot_percent: int | None = None
    lanes: tuple[LaneReport, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """One host.

    :param summary: summary for the scheduler; its ``age_s`` is the age of the agent's last
        answer when the report was sent; None: the agent has never answered
    :param problem: why the agent or the kernel has not answered, or empty
    :param policy: name of the policy that divides its pools
    :param draining: it accepts no more instances, and its caches must not have dirty data
    :param pools: its pools
    :param instances: its instances
    :param dirty_bytes: data of its instances that is not on the origins yet; None: an older version
    :param drain_left_bytes: dirty data that a draining host still has to write; None: it does
        not drain, or an older version
    :param drain_total_bytes: the largest such amount since vcache-host knows of the drain
    :param details: it has instances; otherwise they are those of an earlier report
    :param base: sequence of the last report with details that this process has sent to all
    :param boot_id: identifies the process of vcache-host that has sent the report; empty: an
        older version
    :param sequence: number of the report, which increases as long as the boot id is the same
    :param sent_at: time of day when it was sent, in seconds since 1970, by the host's clock;
        None: an older version
    """

    summary: HostSummary
    problem: str = ""
    policy: str = ""
    draining: bool = False
    pools: tuple[PoolReport, ...] = ()
    instances: tuple[InstanceReport, ...] = ()
    dirty_bytes: int | None = None
    drain_left_bytes: int | None = None
    drain_total_bytes: int | None = None
    details: bool = True
    base: int = 0
    boot_id: str = ""
    sequence: int = 0
    sent_at: float | None = None

    @property
    def node(self) -> str:
        """Name of the compute node."""
        return self.summary.node

    def without_details(self) -> "HostReport":
        """Return the report without instances, which is small."""
        return dataclasses.replace(self, details=False, instances=())

    def with_details_of(self, other: "HostReport") -> "HostReport":
        """Return the report with the instances of another one of the same host."""
        return dataclasses.replace(self, details=True, instances=other.instances)

    def precedes(self, other: "HostReport") -> bool:
        """Return True if this report is certainly older than another one of the same host."""
        if self.boot_id and self.boot_id == other.boot_id:
            return self.sequence < other.sequence
        # Another process on the same host, so both times are of the same clock.
        if self.sent_at is None or other.sent_at is None:
            return False
        return self.sent_at < other.sent_at

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"summary": self.summary.to_json(), "problem": self.problem,
                "policy": self.policy, "draining": self.draining, "boot_id": self.boot_id,
                "sequence": self.sequence, "sent_at": self.sent_at,
                "dirty_bytes": self.dirty_bytes, "details": self.details, "base": self.base,
                "drain_left_bytes": self.drain_left_bytes,
                "drain_total_bytes": self.drain_total_bytes,
                "pools": [dataclasses.asdict(item) for item in self.pools],
                "instances": [dataclasses.asdict(item) for item in self.instances]}

    @classmethod
    def parse(cls, document: Any) -> "HostReport":
        """Parse a document.

        :raises BadReport: if any part of it is invalid
        """
        if not isinstance(document, dict):
            raise BadReport("the report is not an object")
        try:
            summary = parse_host("summary", document.get("summary"))
        except BadSummary as error:
            raise BadReport(str(error)) from None
        where = f"host {summary.node!r}"
        parts = {
            "summary": summary,
            "pools": tuple(_pool(item, f"{where}: pool")
                           for item in _list(document, "pools", where)),
            "instances": tuple(_instance(item, where)
                               for item in _list(document, "instances", where))}
        return _read(cls, document, where, parts)


def _pool(item: Any, where: str) -> PoolReport:
    return _read(PoolReport, item, where, {
        "lanes": tuple(_read(LaneReport, lane, f"{where}: lane")
                       for lane in _list(item, "lanes", where))})


def _instance(item: Any, where: str) -> InstanceReport:
    name = item.get("uuid") if isinstance(item, dict) else None
    where = f"{where}: instance {name!r}"
    return _read(InstanceReport, item, where, {
        "disks": tuple(_read(DiskReport, disk, f"{where}: disk")
                       for disk in _list(item, "disks", where)),
        "objectives": tuple(_read(ObjectiveReport, one, f"{where}: objective")
                            for one in _list(item, "objectives", where))})


def _list(item: Any, name: str, where: str) -> list[Any]:
    found = item.get(name, []) if isinstance(item, dict) else []
    if not isinstance(found, list | tuple):
        raise BadReport(f"{where}: {name} is not a list")
    return list(found)


# JSON types of the fields. In Python a boolean is an int, in JSON it is not.
_KINDS: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: (int,), float: (int, float), dict[str, Any]: (dict,),
    str | None: (str, types.NoneType), bool | None: (bool, types.NoneType),
    int | None: (int, types.NoneType),
    float | None: (int, float, types.NoneType)}


def _read(cls: type[T], item: Any, where: str, parts: Mapping[str, Any] | None = None) -> T:
    """Return an object of a class from the fields in a document.

    :param where: place in the document, for messages
    :param parts: fields that are already parsed
    """
    if not isinstance(item, dict):
        raise BadReport(f"{where} is not an object")
    values = dict(parts or {})
    for field in dataclasses.fields(cls):  # type: ignore[arg-type] # it is a dataclass
        if field.name in values or field.name not in item:
            continue
        value = item[field.name]
        if type(value) not in _KINDS[field.type]:
            raise BadReport(f"{where}: {field.name} {str(value)[:60]!r} has the wrong type")
        values[field.name] = value
    try:
        return cls(**values)
    except TypeError:
        raise BadReport(f"{where}: a field is missing") from None
