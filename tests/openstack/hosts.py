# SPDX-License-Identifier: Apache-2.0
"""Hosts and requests as in the scheduler, without a database."""

import uuid
from typing import Any

from nova import objects
from nova.scheduler import host_manager

from nova_vcache.placement import names

objects.register_all()


def host_state(node: str, allocated: dict[str, int] | None = None) -> Any:
    """Return a host with one allocation candidate: a CPU, and what is of ours."""
    host = host_manager.HostState(node, node, str(uuid.uuid4()))
    host.uuid = str(uuid.uuid4())
    allocations: dict[str, Any] = {host.uuid: {"resources": {"VCPU": 1}}}
    if allocated:
        allocations[names.provider_uuid(host.uuid)] = {"resources": allocated}
    host.allocation_candidates = [{"allocations": allocations, "mappings": {"": [*allocations]}}]
    return host


def request(extra_specs: dict[str, str], **fields: Any) -> Any:
    """Return a request for an instance of a flavor."""
    return objects.RequestSpec(
        instance_uuid=str(uuid.uuid4()), scheduler_hints={},
        flavor=objects.Flavor(extra_specs=extra_specs), **fields)
