# SPDX-License-Identifier: Apache-2.0
"""The policy rules of vcache-api and their defaults, one file for each resource.

They follow Secure RBAC with project scope. Readers may read the resources of their
project. Administrators may read and change everything. Hosts belong to no project, so
only administrators and services may read them; nova-scheduler reads the summary.
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
