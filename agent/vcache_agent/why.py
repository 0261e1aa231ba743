# SPDX-License-Identifier: Apache-2.0
"""What was decided for a tag, and from which inputs, as plain values: ``vcache why TAG``.

The values are those that the kernel has now. The inputs are the flavor, the operator's
settings, the device and the policy, in the order in which they are applied. Only this
module interprets a DiskReport for that purpose.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nova_vcache.extra_specs import PREFIX, Mode
from vcache_agent import view
from vcache_agent.model import Device, Tag, lanes_of

if TYPE_CHECKING:
    from vcache_agent.decide.blame import Verdict
    from vcache_agent.decide.decision import Share
    from vcache_agent.decide.history import Known
    from vcache_agent.observe.sample import TagKey
    from vcache_agent.plan.state import DiskReport, Nesting
    from vcache_agent.restraints import InForce

Json = dict[str, Any]

_FLUSH_WAITS: Mapping[str, str] = {
    "space": "space in its log", "cache": "writes to the cache", "origin": "writes to the origin",
    "others": "data of other tags, which they cover", "device": "a FLUSH of the device"}


@dataclasses.dataclass(frozen=True)
class Operator:
    """The settings of ``vcache tag set`` for a tag; None: not set."""

    weight: int | None = None
    mode: str | None = None
    lanes: str | None = None


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a decision about one tag.

    :param reports: the decisions about the disks with this tag, one for each domain
    :param device: the device of the tag; None: it no longer exists
    :param tag: the tag in the kernel; None: the kernel has none
    :param operator: settings of the tag by an operator
    :param overrides: settings of instances by an operator, by UUID of the domain
    :param draining: the host is being drained
    :param policy: name of the active policy
    :param pool_bytes: size of the device's pool; None: unknown, or no pool
    :param error: error text of the last pass about the tag, or empty
    :param share: the decision about its part of the pool; None: it has none
    :param known: what was measured; None: nothing yet
    :param missed: why objectives were missed in the last period
    :param nesting: how shares are nested; None: they are not
    :param key: device and number of the tag
    :param restraints: the limits of neighbours on this host
    """

    reports: tuple["DiskReport", ...]
    device: Device | None
    tag: Tag | None
    operator: Operator = Operator()
    overrides: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    draining: bool = False
    policy: str = ""
    pool_bytes: int | None = None
    error: str = ""
    share: "Share | None" = None
    known: "Known | None" = None
    missed: "tuple[Verdict, ...]" = ()
    nesting: "Nesting | None" = None
    key: "TagKey | None" = None
    restraints: "tuple[InForce, ...]" = ()


def explain(number: int, inputs: Inputs) -> Json:
    """Return the decision about a tag.

    Each item of ``decisions`` has the name of a value, the value, and ``because``, a list
    of texts.

    :param number: the tag number
    """
    device, tag = inputs.device, inputs.tag
    decisions = [_mode(inputs), _weight(inputs)]
    if device is not None and device.pool:
        decisions += [_share(inputs), _lanes(inputs)]
    decisions.append(_isolated(inputs))
    notes = sorted({report.note for report in inputs.reports if report.note})
    notes += [f"an objective is missed: {verdict.text}" for verdict in inputs.missed]
    notes += _restraints(inputs)
    if inputs.error:
        notes.append(f"the kernel refused a change: {inputs.error}")
    if tag is None:
        notes.append("the kernel has no such tag now")
    if not inputs.reports:
        notes.append("no running domain uses the tag")
    return {
        "tag": number, "device": str(device.number) if device else None,
        "device_name": device.name if device else None, "name": tag.name if tag else "",
        "disks": [_disk(report, inputs) for report in inputs.reports],
        "policy": inputs.policy, "pool_bytes": inputs.pool_bytes,
        "decisions": decisions, "notes": notes}


def _restraints(inputs: Inputs) -> list[str]:
    """Return the limits of this tag, and those of others for its objectives."""
    found = []
    for item in inputs.restraints:
        if item.neighbour == inputs.key:
            victims = ", ".join(f"{tag} on device {device}"
                                for device, tag in sorted(item.victims))
            found.append(f"limited because of an objective of tag {victims}: {item.text}")
        elif inputs.key in item.victims:
            found.append(f"for its objective, tag {item.neighbour[1]} on device "
                         f"{item.neighbour[0]} is limited: {item.text}")
    return found


def _disk(report: "DiskReport", inputs: Inputs) -> Json:
    domain, source = report.state.domain, report.state.source
    return {"domain": domain.name, "uuid": domain.uuid, "project": domain.project,
            "disk": source.target, "path": source.path,
            "flavor": {key: value for key, value in sorted(domain.extra_specs.items())
                       if key.startswith(PREFIX)},
            "override": dict(inputs.overrides.get(domain.uuid, {}))}


def _decision(what: str, value: Any, because: list[str]) -> Json:
    return {"what": what, "value": value, "because": because}


def _flavors(inputs: Inputs, key: str, default: object) -> list[str]:
    """Return the value of an extra spec in the flavor of each domain."""
    return [f"flavor of {report.state.domain.name}: {PREFIX}{key}="
            + report.state.domain.extra_specs.get(f"{PREFIX}{key}", f"{default} (default)")
            for report in inputs.reports]


def _mode(inputs: Inputs) -> Json:
    because = _flavors(inputs, "mode", Mode.NONE)
    if inputs.draining:
        because.append("the host is being drained: writeback becomes writethrough")
    if inputs.operator.mode is not None:
        because.append(f"vcache tag set --mode {inputs.operator.mode}")
    if inputs.device is not None:
        because.append(f"device {inputs.device.name} is in mode {view.word(inputs.device.mode)}")
    value = str(inputs.reports[0].mode) if inputs.reports else \
        view.word(inputs.tag.mode) if inputs.tag else None
    return _decision("mode", value, because)


def _weight(inputs: Inputs) -> Json:
    because = _flavors(inputs, "weight", 100)
    for report in inputs.reports:
        weight = inputs.overrides.get(report.state.domain.uuid, {}).get("weight")
        if weight is not None:
            because.append(f"instance {report.state.domain.name}: an operator set weight {weight}")
    if len(inputs.reports) > 1:
        because.append("several domains use the disk: the largest weight")
    if inputs.operator.weight is not None:
        because.append(f"vcache tag set --weight {inputs.operator.weight}")
    if inputs.nesting is not None and inputs.nesting.enabled:
        because += [f"nested shares: project {project or 'unknown'} has weight "
                    f"{inputs.nesting.weight(project)} for all its instances" for project in
                    sorted({report.state.domain.project for report in inputs.reports})]
    value = inputs.reports[0].weight if inputs.reports else \
        inputs.tag.weight if inputs.tag else None
    return _decision("weight", value, because)


def _share(inputs: Inputs) -> Json:
    tag = inputs.tag
    because = _flavors(inputs, "min_mb", 0) + _flavors(inputs, "max_mb", "unlimited")
    because.append(f"policy {inputs.policy}")
    because.append("the size of the pool is unknown" if inputs.pool_bytes is None else
                   f"the pool has {inputs.pool_bytes} bytes")
    if inputs.share is not None:
        because += inputs.share.reasons
    if inputs.known is not None:
        because += _measured(inputs.known)
    return _decision("share", None if tag is None else {
        "min_bytes": tag.cache_min_bytes, "max_bytes": tag.cache_max_bytes or None,
        "share_bytes": tag.cache_share_bytes, "cached_bytes": tag.cached_bytes}, because)


def _measured(known: "Known") -> list[str]:
    """Return the inputs of the policies that were measured in the last period."""
    load = known.load
    if load.idle:
        return ["in the last period it had no requests"]
    found = [f"in the last period it had {load.requests:.0f} requests a second"]
    if load.missed is not None:
        found.append(f"{100 * load.missed:.1f} % of the bytes that it read came from the origin")
    if load.read_p99 is not None:
        found.append(f"99 % of its reads took at most {1e3 * load.read_p99:.3g} ms")
    if load.flush_p99 is not None:
        found.append(f"99 % of its flushes took at most {1e3 * load.flush_p99:.3g} ms")
    if load.flush_wait:
        found.append(f"{100 * load.flush_wait_part:.0f} % of the time that its flushes waited was "
                     f"for {_FLUSH_WAITS[load.flush_wait]}")
    return found


def _lanes(inputs: Inputs) -> Json:
    because = _flavors(inputs, "isolation", "auto")
    if inputs.operator.lanes is not None:
        because.append(f"vcache tag set --lanes {inputs.operator.lanes}")
    value = lanes_of(inputs.tag.cache_lanes) if inputs.tag else None
    if value == []:
        because.append("no dedicated lane: it uses the shared lanes")
    return _decision("lanes", value, because)


def _isolated(inputs: Inputs) -> Json:
    """Return whether flushes are isolated."""
    because = []
    if inputs.device is not None:
        because.append(f"device {inputs.device.name} has scope {view.word(inputs.device.scope)} "
                       f"and isolation {view.word(inputs.device.isolation)}")
    if inputs.tag is not None:
        because.append(f"{len(inputs.tag.cgroups)} cgroups and {inputs.tag.extents_count} extents "
                       "are registered")
    value = view.word(inputs.device.isolation) if inputs.device else None
    return _decision("isolation", value, because)
