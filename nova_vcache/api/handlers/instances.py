# SPDX-License-Identifier: Apache-2.0
"""Instances: list, show, explain, override. Users see those of their project, without the host.

An instance of another project returns 404, because 403 would reveal that it exists.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from microversion_parse import Version

from nova_vcache.api import openapi
from nova_vcache.api.directory import UP, Entry
from nova_vcache.api.errors import not_found, of_host
from nova_vcache.api.policies import instances as rules
from nova_vcache.api.request import Call
from nova_vcache.rpc.errors import HostError, InstanceNotHere
from nova_vcache.rpc.host_side import HostClient
from nova_vcache.rpc.report import InstanceReport, ObjectiveReport

Found = tuple[Entry, InstanceReport]

# Fields of disks that reveal the host or other instances on it.
_OF_HOST = ("note", "tag", "pool")
# Causes that are about the host or other instances on it, of which owners see only one word.
_FOREIGN = ("neighbour", "host", "device")
_PLATFORM = "platform"

# How lists can be sorted.
_SORTS: Mapping[str, Callable[[Found], str]] = {
    "uuid": lambda found: found[1].uuid, "host": lambda found: found[0].node,
    "mode": lambda found: _mode(found[1]), "slo_state": lambda found: found[1].slo_state}


def _mode(item: InstanceReport) -> str:
    return str(item.specs.get("mode", ""))


def _shown(found: Found, version: Version, *, host: bool) -> dict[str, Any]:
    """Return an instance.

    :param host: include fields about its host
    """
    entry, item = found
    values = {
        "uuid": item.uuid, "project_id": item.project or None, "phase": item.phase,
        "stale": entry.state != UP, "specs": item.specs, "flavor": item.flavor,
        "override": item.override, "slo_missed": item.slo_missed, "slo_state": item.slo_state,
        "hit_ratio": item.hit_ratio, "flush_p50_us": item.flush_p50_us,
        "flush_p99_us": item.flush_p99_us,
        "objectives": [_objective(one, host=host) for one in item.objectives],
        "disks": [openapi.visible("Disk", {
            name: value for name, value in dataclasses.asdict(disk).items()
            if host or name not in _OF_HOST}, version) for disk in item.disks]}
    if host:
        values |= {"host": entry.node, "name": item.name, "problem": item.problem}
    return openapi.visible("Instance", values, version)


def _objective(one: ObjectiveReport, *, host: bool) -> dict[str, Any]:
    values = dataclasses.asdict(one)
    if not host:
        del values["text"]
        if one.cause in _FOREIGN:
            values["cause"] = _PLATFORM
    return values


def list_(call: Call) -> dict[str, Any]:
    """Return a page of instances."""
    project = call.query["project_id"] or call.context.project_id
    everywhere = call.query["all_projects"]
    if everywhere or project != call.context.project_id:
        call.require(rules.LIST_ALL)
    if call.query["host"] is not None or call.query["sort_key"] == "host":
        call.require(rules.SHOW_HOST)
    everything = everywhere and not call.query["project_id"]
    host, mode, slo_state = (call.query[name] for name in ("host", "mode", "slo_state"))

    def wanted(item: InstanceReport) -> bool:
        return ((everything or (bool(item.project) and item.project == project))
                and mode in (None, _mode(item)) and slo_state in (None, item.slo_state))

    found = [item for item in call.backend.directory.instances(wanted)
             if host in (None, item[0].node)]
    page, links = call.page(found, _SORTS["uuid"], by=_SORTS[call.query["sort_key"]],
                            reverse=call.query["sort_dir"] == "desc")
    shows = call.policy.allows(rules.SHOW_HOST)
    return {"instances": [_shown(item, call.version, host=shows) for item in page],
            "links": links}


def _find(call: Call, uuid: str) -> Found:
    """Return an instance that the user may see.

    :raises ApiError: 404 if it does not exist or belongs to another project
    """
    found = call.backend.directory.instance(uuid.lower())
    # An instance with an unknown project, which is empty, has no owner.
    if found is None or not call.policy.allows(rules.GET, found[1].project):
        raise not_found(f"Instance {uuid}")
    return found


def get(call: Call, uuid: str) -> dict[str, Any]:
    """Return one instance."""
    return {"instance": _shown(_find(call, uuid), call.version,
                               host=call.policy.allows(rules.SHOW_HOST))}


def curves(call: Call, uuid: str) -> dict[str, Any]:
    """Return the miss-ratio curves of an instance's disks, from its host."""
    found = _ask(call, uuid, rules.CURVES, HostClient.instance_curves)
    return {"curves": [openapi.visible("Curve", item, call.version) for item in found]}


def why(call: Call, uuid: str) -> dict[str, Any]:
    """Return the decisions about an instance's disks with their reasons, from its host."""
    found = _ask(call, uuid, rules.WHY, HostClient.instance_why)
    return {"disks": [openapi.visible("Explanation", item, call.version) for item in found]}


def _ask(call: Call, uuid: str, rule: str, query: Callable[..., list[dict[str, Any]]],
         ) -> list[dict[str, Any]]:
    entry, item = _find(call, uuid)
    call.require(rule, item.project)
    try:
        return query(call.backend.hosts, call.rpc_context, entry.node, item.uuid)
    except InstanceNotHere:
        raise not_found(f"Instance {uuid}") from None
    except HostError as error:
        raise of_host(error, names_host=call.policy.allows(rules.SHOW_HOST)) from error


def put(call: Call, uuid: str) -> dict[str, Any]:
    """Replace the overrides of an instance; absent values return to those of the flavor."""
    return _set(call, uuid, call.body, replace=True)


def patch(call: Call, uuid: str) -> dict[str, Any]:
    """Change some overrides of an instance; absent values stay unchanged."""
    return _set(call, uuid, call.body, replace=False)


def delete(call: Call, uuid: str) -> None:
    """Remove all overrides of an instance."""
    _set(call, uuid, {}, replace=True)


def _set(call: Call, uuid: str, values: Mapping[str, Any], *, replace: bool) -> dict[str, Any]:
    """Set overrides on the instance's host, and emit a notification."""
    entry, before = _find(call, uuid)
    call.require(rules.OVERRIDE, before.project)
    shows = call.policy.allows(rules.SHOW_HOST)
    try:
        report = call.backend.hosts.instance_set(
            call.rpc_context, entry.node, before.uuid, values, replace=replace)
    except InstanceNotHere:
        # The instance was deleted or has moved since the host's last report.
        raise not_found(f"Instance {uuid}") from None
    except HostError as error:
        raise of_host(error, names_host=shows) from error
    call.backend.directory.took(report)
    after = next((item for item in report.instances if item.uuid == before.uuid), before)
    call.backend.notify(call.rpc_context, "instance.override", {
        "instance_uuid": before.uuid, "project_id": before.project, "host": entry.node,
        "user_id": call.context.user_id, "request_id": call.context.request_id,
        "old": before.override, "new": after.override, "specs": after.specs})
    return get(call, uuid)
