# SPDX-License-Identifier: Apache-2.0
"""Rules of flavors."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

CHECK = "vcache:flavors:check"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [base.rule(CHECK, base.READER, "Check extra specs of a flavor, which are in the "
                      "request.", ("POST", "/v1/flavors/check"))]
