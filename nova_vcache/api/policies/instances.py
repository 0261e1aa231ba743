# SPDX-License-Identifier: Apache-2.0
"""Rules of instances."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

LIST, LIST_ALL = "vcache:instances:list", "vcache:instances:list_all"
GET, SHOW_HOST = "vcache:instances:get", "vcache:instances:show_host"
OVERRIDE = "vcache:instances:override"

_ONE = "/v1/instances/{uuid}"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [
        base.rule(LIST, base.READER, "List the instances of one's project.",
                  ("GET", "/v1/instances")),
        base.rule(LIST_ALL, base.ADMIN, "List the instances of other projects.",
                  ("GET", "/v1/instances?all_projects=true")),
        base.rule(GET, base.PROJECT_READER,
                  "Show an instance. Who may not is told that it is not there.", ("GET", _ONE)),
        base.rule(SHOW_HOST, base.ADMIN,
                  "Be shown an instance's host and what tells of it, and list by host.",
                  ("GET", "/v1/instances"), ("GET", _ONE)),
        base.rule(OVERRIDE, base.ADMIN,
                  "Set weight and objectives of an instance instead of its flavor's: what one "
                  "gains others lose, so it is not its owner's.",
                  ("PUT", f"{_ONE}/override"), ("PATCH", f"{_ONE}/override"),
                  ("DELETE", f"{_ONE}/override")),
    ]
