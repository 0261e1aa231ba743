# SPDX-License-Identifier: Apache-2.0
"""Common parts of the policy rules."""

from collections.abc import Iterable

from oslo_policy import policy

ADMIN = "rule:vcache_admin"
ADMIN_OR_SERVICE = "rule:vcache_admin_or_service"
PROJECT_READER = "rule:vcache_project_reader"
READER = "rule:vcache_reader"

SCOPES = ["project"]


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [
        policy.RuleDefault("vcache_admin", "role:admin", "Administrators."),
        policy.RuleDefault("vcache_admin_or_service", "role:admin or role:service",
                           "Administrators and OpenStack services."),
        policy.RuleDefault("vcache_reader", "role:reader or role:admin",
                           "Readers of any project."),
        policy.RuleDefault(
            "vcache_project_reader",
            "role:admin or (role:reader and project_id:%(project_id)s)",
            "Readers of the project that owns the resource, and administrators."),
    ]


def rule(name: str, check: str, description: str,
         *operations: tuple[str, str]) -> policy.DocumentedRuleDefault:
    """Return one rule.

    :param name: its name
    :param check: its default check string
    :param description: its description for operators
    :param operations: pairs of method and path
    """
    return policy.DocumentedRuleDefault(
        name=name, check_str=check, description=description, scope_types=SCOPES,
        operations=[{"method": method, "path": path} for method, path in operations])
