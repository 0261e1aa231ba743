# SPDX-License-Identifier: Apache-2.0
"""Hosts: list, summary, show, update."""

from typing import Any

from microversion_parse import Version

from nova_vcache.api import openapi
from nova_vcache.api.directory import Entry
from nova_vcache.api.errors import bad_request, not_found, of_host
from nova_vcache.api.request import Call
from nova_vcache.rpc.errors import HostError
from nova_vcache.rpc.report import HostReport
from nova_vcache.summary import Summary


def _shown(entry: Entry, version: Version) -> dict[str, Any]:
    report = entry.report
    return openapi.visible("Host", {
        **entry.summary.to_json(), "state": entry.state, "problem": entry.problem,
        "report_age_s": round(entry.since, 3) if report else None,
        "details_age_s": None if entry.details_since is None else round(entry.details_since, 3),
        "policy": report.policy if report else "",
        "draining": report.draining if report else False,
        "drain": _drain(report) if report else None,
        "pools": len(report.pools) if report else 0,
        "instances": len(report.instances) if report else 0,
        "dirty_bytes": _dirty_bytes(report) if report else 0}, version)


def _drain(report: HostReport) -> dict[str, Any] | None:
    left, total = report.drain_left_bytes, report.drain_total_bytes
    if left is None:
        return None  # it does not drain, or it is older
    total = max(left, total or 0)
    # Round down: 100 only if nothing is left.
    return {"left_bytes": left, "total_bytes": total, "done": left == 0,
            "percent": 100 * (total - left) // total if total else 100}


def _dirty_bytes(report: HostReport) -> int:
    if report.dirty_bytes is not None:
        return report.dirty_bytes
    return sum(disk.dirty_bytes or 0 for item in report.instances for disk in item.disks)


def find(call: Call, node: str) -> Entry:
    """Return a host.

    :raises ApiError: 404 if it does not exist
    """
    entry = call.backend.directory.host(node)
    if entry is None:
        raise not_found(f"Host {node[:60]!r}")
    return entry


def list_(call: Call) -> dict[str, Any]:
    """Return a page of hosts, or the summary of all hosts."""
    entries = call.backend.directory.hosts()
    if call.query["view"] == "summary":
        if call.query["limit"] is not None or call.query["marker"] is not None:
            raise bad_request("Query parameters 'limit' and 'marker' are not allowed with "
                              "view=summary, which always has all hosts.")
        return Summary({entry.node: entry.summary for entry in entries}).to_json()
    page, links = call.page(entries, lambda entry: entry.node)
    return {"hosts": [_shown(entry, call.version) for entry in page], "links": links}


def get(call: Call, node: str) -> dict[str, Any]:
    """Return one host."""
    return {"host": _shown(find(call, node), call.version)}


def update(call: Call, node: str) -> dict[str, Any]:
    """Set the policy of a host's pools, or start or stop draining the host."""
    find(call, node)
    try:
        report = call.backend.hosts.host_set(call.rpc_context, node, call.body)
    except HostError as error:
        raise of_host(error) from error
    call.backend.directory.took(report)
    call.backend.notify(call.rpc_context, "host.update", {"host": node, **call.body})
    return get(call, node)
