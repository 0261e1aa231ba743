# SPDX-License-Identifier: Apache-2.0
"""Rules of flavors."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

CHECK = "vcache:flavors:check"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [base.rule(CHECK, base.READER, "Check the extra specs in the request for "
                      "problems.", ("POST", "/v1/flavors/check"))]
