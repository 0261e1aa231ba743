# SPDX-License-Identifier: Apache-2.0
"""The bulk summary of all hosts: what the scheduler knows beyond Placement.

One JSON document, the answer to one ``GET /v1/hosts?view=summary`` of the API.
This is its only description: the API writes it by :meth:`Summary.to_json`, the
scheduler reads it by :meth:`Summary.parse`. Standard library only.

A reader ignores fields that it does not know, and takes what may be absent as
not known, so that either side can be newer.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

from nova_vcache.extra_specs import Mode

#: Where the API has it, below its endpoint.
PATH = "/v1/hosts?view=summary"


class BadSummary(ValueError):
    """A document that is no summary; the text names the host and the field."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostSummary:
    """One compute host.

    :param node: name of the compute node (its hypervisor host name)
    :param age_s: seconds from the agent's report to the summary; None: it has
        never reported
    :param modes: the modes that disks can have there now, without ``none``
    :param flush_isolation: a flush waits for no other instance's data
    :param tags_free: tag numbers that can be given
    :param cache_mb: MiB that can be guaranteed, of all pools: nine tenths of them
    :param cache_free_mb: of them not guaranteed to anybody
    :param largest_free_mb: most that one instance can be guaranteed, in one pool
    :param weight: sum of ``vcache:weight`` of the instances that have a cache
    :param idle_mb: cache that its owners make no use of now, so that it is lent
    :param loss_per_gb: reads a second that would miss the cache and now do not, if
        the instances there had one GiB less, by their miss-ratio curves; None: not known
    :param lanes_free: lanes of which an instance can have one for itself
    :param flush_p99_ms: 99 % of the flushes take no longer; None: none to tell by
    :param read_p99_us: 99 % of the reads take no longer; None: none to tell by
    :param iops_free: requests a second that the host could do more; None: not known
    :param slo_tags: tags with an objective
    :param slo_missed: of them those that miss it now
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
        """Return the host as it stands in the document."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {"modes": sorted(self.modes)}


_BY_NAME = {field.name: field.type for field in dataclasses.fields(HostSummary)}
# What a field may be, as JSON has it. A boolean is an int in Python, not in JSON.
_KINDS: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: (int,), float | None: (int, float, types.NoneType)}


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """All hosts that the API knows.

    :param hosts: by name of the compute node
    """

    hosts: Mapping[str, HostSummary]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"hosts": [host.to_json() for host in self.hosts.values()]}

    @classmethod
    def parse(cls, document: Any) -> "Summary":
        """Read a document.

        :raises BadSummary: naming the host and the field; nothing of it is used then
        """
        hosts = document.get("hosts") if isinstance(document, dict) else None
        if not isinstance(hosts, list):
            raise BadSummary("the summary has no list 'hosts'")
        found = (parse_host(f"hosts[{index}]", item) for index, item in enumerate(hosts))
        return cls(types.MappingProxyType({host.node: host for host in found}))


def parse_host(where: str, item: Any) -> HostSummary:
    """Read one host of a document.

    :param where: its place, for errors
    :raises BadSummary: naming the host and the field
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
            raise BadSummary(f"host {item['node']!r}: {name} {value!r} is of the wrong type")
        if value is not None and kind is not str and not 0 <= value < float("inf"):
            raise BadSummary(f"host {item['node']!r}: {name} {value!r} must be at least 0")
        values[name] = value
    return HostSummary(**values)


def _modes(node: str, value: Any) -> frozenset[Mode]:
    if not isinstance(value, list):
        raise BadSummary(f"host {node!r}: modes {value!r} is no list")
    # A mode that only a newer agent knows is none that a flavor here can ask for.
    return frozenset(Mode(word) for word in value
                     if isinstance(word, str) and word in _MODES)


_MODES = frozenset(mode.value for mode in Mode) - {Mode.NONE.value}
