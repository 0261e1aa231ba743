# SPDX-License-Identifier: Apache-2.0
"""What a host tells vcache-api about itself, every few seconds and when it changes.

The argument of the cast ``report``, see api_side.py. As with the summary, a reader
ignores fields that it does not know and takes absent ones as their default, so that
either side can be newer. Standard library only.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeVar

from nova_vcache.summary import BadSummary, HostSummary, parse_host

T = TypeVar("T")


class BadReport(ValueError):
    """A document that is no report; the text names the part and the field."""


@dataclasses.dataclass(frozen=True, slots=True)
class DiskReport:
    """One disk of an instance.

    :param disk: its name in the instance, such as ``vda``
    :param mode: what it gets
    :param state: in a word how it is served, as ``vcache disks`` has it
    :param note: why it gets less than asked for, or other than usual
    :param tag: its number on the host; None: it runs untagged
    :param pool: number of the pool's device; None: no cache
    :param cached_bytes: what it has in the cache
    :param share_bytes: what is its part of the cache
    :param dirty_bytes: what its origin does not have yet, in memory and in the cache
    :param flush_p99_us: 99 % of its flushes took no longer lately; None: no flush
    :param read_p99_us: the same of its reads
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


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceReport:
    """One instance that runs on the host, or is about to.

    :param uuid: of the instance
    :param name: its libvirt domain
    :param project: who owns it; empty: not known, then only administrators see it
    :param phase: ``preparing`` or ``running``
    :param problem: what is wrong with its flavor's extra specs
    :param specs: what holds of it, by names of the schema; of the mode what is asked for
    :param flavor: what its flavor says, likewise
    :param override: what was set of it instead
    :param slo_missed: it misses an objective now; None: it has none, or none is measured
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


@dataclasses.dataclass(frozen=True, slots=True)
class PoolReport:
    """One pool of the host; sizes in bytes.

    :param reads_percent: what was read goes first where it is more than this of what a tag has
    :param hot_percent: hot and cold change lanes above this; None of both: an older module's
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


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """One host.

    :param summary: what the scheduler gets of it; its ``age_s`` is that of the agent's
        last answer when the report was sent, None if it has never answered
    :param problem: why the agent, or the kernel, has not answered; empty: it has
    :param policy: how its pools are divided
    :param draining: it takes no more instances, and caches keep nothing that no origin has
    """

    summary: HostSummary
    problem: str = ""
    policy: str = ""
    draining: bool = False
    pools: tuple[PoolReport, ...] = ()
    instances: tuple[InstanceReport, ...] = ()

    @property
    def node(self) -> str:
        """Return the name of the compute node."""
        return self.summary.node

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"summary": self.summary.to_json(), "problem": self.problem,
                "policy": self.policy, "draining": self.draining,
                "pools": [dataclasses.asdict(item) for item in self.pools],
                "instances": [dataclasses.asdict(item) for item in self.instances]}

    @classmethod
    def parse(cls, document: Any) -> "HostReport":
        """Read a document.

        :raises BadReport: naming the part and the field; nothing of it is used then
        """
        if not isinstance(document, dict):
            raise BadReport("the report is no object")
        try:
            summary = parse_host("summary", document.get("summary"))
        except BadSummary as error:
            raise BadReport(str(error)) from None
        where = f"host {summary.node!r}"
        parts = {
            "summary": summary,
            "pools": tuple(_read(PoolReport, item, f"{where}: pool")
                           for item in _list(document, "pools", where)),
            "instances": tuple(_instance(item, where)
                               for item in _list(document, "instances", where))}
        return _read(cls, document, where, parts)


def _instance(item: Any, where: str) -> InstanceReport:
    name = item.get("uuid") if isinstance(item, dict) else None
    where = f"{where}: instance {name!r}"
    disks = _list(item, "disks", where) if isinstance(item, dict) else []
    return _read(InstanceReport, item, where, {
        "disks": tuple(_read(DiskReport, disk, f"{where}: disk") for disk in disks)})


def _list(item: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = item.get(name, [])
    if not isinstance(found, list | tuple):
        raise BadReport(f"{where}: {name} is no list")
    return list(found)


# What a field may be, as JSON has it. A boolean is an int in Python, not in JSON.
_KINDS: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: (int,), float: (int, float), dict[str, Any]: (dict,),
    str | None: (str, types.NoneType), bool | None: (bool, types.NoneType),
    int | None: (int, types.NoneType),
    float | None: (int, float, types.NoneType)}


def _read(cls: type[T], item: Any, where: str, parts: Mapping[str, Any] | None = None) -> T:
    """Return an object of the fields of a document that its class knows.

    :param parts: fields that have been read already
    """
    if not isinstance(item, dict):
        raise BadReport(f"{where} is no object")
    values = dict(parts or {})
    for field in dataclasses.fields(cls):  # type: ignore[arg-type] # it is a dataclass
        if field.name in values or field.name not in item:
            continue
        value = item[field.name]
        if type(value) not in _KINDS[field.type]:
            raise BadReport(f"{where}: {field.name} {str(value)[:60]!r} is of the wrong type")
        values[field.name] = value
    try:
        return cls(**values)
    except TypeError:
        raise BadReport(f"{where}: a field is missing") from None
