# SPDX-License-Identifier: Apache-2.0
"""Rules of pools."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

LIST, GET, UPDATE = "vcache:pools:list", "vcache:pools:get", "vcache:pools:update"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [
        base.rule(LIST, base.ADMIN, "List pools.", ("GET", "/v1/pools")),
        base.rule(GET, base.ADMIN, "Show a pool.", ("GET", "/v1/hosts/{node}/pools/{pool}")),
        base.rule(UPDATE, base.ADMIN, "Change options of an active pool.",
                  ("PATCH", "/v1/hosts/{node}/pools/{pool}")),
    ]
