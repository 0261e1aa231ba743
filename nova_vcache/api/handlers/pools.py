# SPDX-License-Identifier: Apache-2.0
"""Pools: list, show, update."""

import dataclasses
from typing import Any

from microversion_parse import Version

from nova_vcache.api import openapi
from nova_vcache.api.directory import Entry
from nova_vcache.api.errors import not_found, of_host
from nova_vcache.api.handlers import hosts
from nova_vcache.api.request import Call
from nova_vcache.rpc.errors import HostError
from nova_vcache.rpc.report import PoolReport


def _id(found: tuple[Entry, PoolReport]) -> str:
    return f"{found[0].node}/{found[1].name}"


def _shown(found: tuple[Entry, PoolReport], version: Version) -> dict[str, Any]:
    return openapi.visible("Pool", {
        "id": _id(found), "host": found[0].node, "host_state": found[0].state,
        **dataclasses.asdict(found[1])}, version)


def list_(call: Call) -> dict[str, Any]:
    """Return a page of pools; empty for a host that does not exist."""
    host = call.query["host"]
    found = [(entry, pool) for entry in call.backend.directory.hosts()
             if entry.report and host in (None, entry.node) for pool in entry.report.pools]
    page, links = call.page(found, _id)
    return {"pools": [_shown(item, call.version) for item in page], "links": links}


def get(call: Call, node: str, pool: str) -> dict[str, Any]:
    """Return one pool."""
    entry = hosts.find(call, node)
    for item in entry.report.pools if entry.report else ():
        if item.name == pool:
            return {"pool": _shown((entry, item), call.version)}
    raise not_found(f"Pool {pool[:60]!r} of host {node[:60]!r}")


def update(call: Call, node: str, pool: str) -> dict[str, Any]:
    """Change options of an active pool."""
    get(call, node, pool)
    try:
        report = call.backend.hosts.pool_set(call.rpc_context, node, pool, call.body)
    except HostError as error:
        raise of_host(error) from error
    call.backend.directory.took(report)
    call.backend.notify(call.rpc_context, "pool.update",
                        {"host": node, "pool": pool, **call.body})
    return get(call, node, pool)
