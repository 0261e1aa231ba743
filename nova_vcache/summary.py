# SPDX-License-Identifier: Apache-2.0
"""The summary of all hosts, which the scheduler uses in addition to Placement.

It is one JSON document, the answer to ``GET /v1/hosts?view=summary``. This module
defines it: the API writes it with :meth:`Summary.to_json`, and the scheduler reads
it with :meth:`Summary.parse`. The module imports only the standard library.

A reader ignores unknown fields and uses the default for absent ones, so that
either side may be newer.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

from nova_vcache.extra_specs import Mode

#: Path below the endpoint of vcache-api.
PATH = "/v1/hosts?view=summary"


class BadSummary(ValueError):
    """The document is not a valid summary; the text names the host and the field."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostSummary:
    """One compute host.

    :param node: name of the compute node (its hypervisor host name)
    :param age_s: seconds since the last answer of the agent; None: it has never answered
    :param modes: modes that disks can have on the host now, without ``none``
    :param flush_isolation: a flush does not wait for data of other instances
    :param tags_free: number of free tags
    :param cache_mb: MiB that can be guaranteed: nine tenths of all pools
    :param cache_free_mb: the part of `cache_mb` that is not guaranteed yet
    :param largest_free_mb: largest guarantee for one instance, which must fit in one pool
    :param weight: sum of ``vcache:weight`` of the instances that have a cache
    :param idle_mb: unused part of the instances' shares, in MiB
    :param loss_per_gb: additional read misses per second if the cache were 1 GiB smaller,
        by the miss-ratio curves; None: unknown
    :param lanes_free: number of lanes that can be dedicated to an instance
    :param flush_p99_ms: p99 of the flush latency; None: no flush was measured
    :param read_p99_us: p99 of the read latency; None: no read was measured
    :param iops_free: additional requests per second that the host can serve; None: unknown
    :param slo_tags: number of tags with an objective
    :param slo_missed: number of these tags that miss it now
    """

    node: str
    age_s: float | None = None
    modes: frozenset[Mode] = frozenset()
    flush_isolation: bool = False
    tags_free: int = 0
    cache_mb: int = 0
    cache_free_mb: int = 0
    largest_free_mb: int = 0
    weight: int = 0
    idle_mb: int = 0
    loss_per_gb: float | None = None
    lanes_free: int = 0
    flush_p99_ms: float | None = None
    read_p99_us: float | None = None
    iops_free: float | None = None
    slo_tags: int = 0
    slo_missed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the host in the format of the document."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {"modes": sorted(self.modes)}


_BY_NAME = {field.name: field.type for field in dataclasses.fields(HostSummary)}
# JSON types of the fields. In Python a boolean is an int, in JSON it is not.
_KINDS: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: (int,), float | None: (int, float, types.NoneType)}


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """All hosts that the API knows.

    :param hosts: the hosts by name of the compute node
    """

    hosts: Mapping[str, HostSummary]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"hosts": [host.to_json() for host in self.hosts.values()]}

    @classmethod
    def parse(cls, document: Any) -> "Summary":
        """Parse a document.

        :raises BadSummary: if any part of it is invalid
        """
        hosts = document.get("hosts") if isinstance(document, dict) else None
        if not isinstance(hosts, list):
            raise BadSummary("the summary has no list 'hosts'")
        found = (parse_host(f"hosts[{index}]", item) for index, item in enumerate(hosts))
        return cls(types.MappingProxyType({host.node: host for host in found}))


def parse_host(where: str, item: Any) -> HostSummary:
    """Parse one host of a document.

    :param where: its place in the document, for messages
    :raises BadSummary: if it is invalid
    """
    if not isinstance(item, dict) or not isinstance(item.get("node"), str):
        raise BadSummary(f"{where} has no 'node'")
    values: dict[str, Any] = {}
    for name, value in item.items():
        kind = _BY_NAME.get(name)
        if kind is None:
            continue
        if name == "modes":
            values[name] = _modes(item["node"], value)
            continue
        if type(value) not in _KINDS[kind]:
            raise BadSummary(f"host {item['node']!r}: {name} {value!r} has the wrong type")
        if value is not None and kind is not str and not 0 <= value < float("inf"):
            raise BadSummary(f"host {item['node']!r}: {name} {value!r} must be at least 0")
        values[name] = value
    return HostSummary(**values)


def _modes(node: str, value: Any) -> frozenset[Mode]:
    if not isinstance(value, list):
        raise BadSummary(f"host {node!r}: modes {value!r} is not a list")
    # Ignore modes of newer agents, which flavors cannot request here.
    return frozenset(Mode(word) for word in value
                     if isinstance(word, str) and word in _MODES)


_MODES = frozenset(mode.value for mode in Mode) - {Mode.NONE.value}
