# SPDX-License-Identifier: Apache-2.0
"""The rules of vcache-api and their defaults: one file a resource.

Secure RBAC: all in the scope of a project; reader reads what is its project's,
administrators read and change all. Hosts belong to nobody, so they are
administrators' and services' (nova-scheduler asks for the summary).
"""

import itertools
from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base, flavors, hosts, instances, pools


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return all rules, for oslo.policy's tools."""
    return itertools.chain(
        base.list_rules(), hosts.list_rules(), pools.list_rules(), instances.list_rules(),
        flavors.list_rules())
