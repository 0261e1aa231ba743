# SPDX-License-Identifier: Apache-2.0
"""Rules of hosts."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

LIST, GET, UPDATE = "vcache:hosts:list", "vcache:hosts:get", "vcache:hosts:update"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [
        base.rule(LIST, base.ADMIN_OR_SERVICE, "List hosts, or get the summary of all hosts.",
                  ("GET", "/v1/hosts")),
        base.rule(GET, base.ADMIN_OR_SERVICE, "Show a host.", ("GET", "/v1/hosts/{node}")),
        base.rule(UPDATE, base.ADMIN, "Set the policy of a host's pools, or drain the host.",
                  ("PATCH", "/v1/hosts/{node}")),
    ]
