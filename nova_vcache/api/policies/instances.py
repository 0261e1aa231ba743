# SPDX-License-Identifier: Apache-2.0
"""Rules of instances."""

from collections.abc import Iterable

from oslo_policy import policy

from nova_vcache.api.policies import base

LIST, LIST_ALL = "vcache:instances:list", "vcache:instances:list_all"
GET, SHOW_HOST = "vcache:instances:get", "vcache:instances:show_host"
CURVES, WHY = "vcache:instances:curves", "vcache:instances:why"
OVERRIDE = "vcache:instances:override"

_ONE = "/v1/instances/{uuid}"


def list_rules() -> Iterable[policy.RuleDefault]:
    """Return the rules."""
    return [
        base.rule(LIST, base.READER, "List the instances of the user's project.",
                  ("GET", "/v1/instances")),
        base.rule(LIST_ALL, base.ADMIN, "List the instances of other projects.",
                  ("GET", "/v1/instances?all_projects=true")),
        base.rule(GET, base.PROJECT_READER,
                  "Show an instance. Other users get 404 (not found).", ("GET", _ONE)),
        base.rule(SHOW_HOST, base.ADMIN,
                  "See the host of an instance and fields that reveal it, and filter and sort by "
                  "host.",
                  ("GET", "/v1/instances"), ("GET", _ONE)),
        base.rule(CURVES, base.PROJECT_READER,
                  "Show the miss-ratio curves of an instance. Others get 404 (not found).",
                  ("GET", f"{_ONE}/curves")),
        base.rule(WHY, base.ADMIN,
                  "Show the reasons of the decisions about an instance. They name the host's "
                  "devices and may name other instances.", ("GET", f"{_ONE}/why")),
        base.rule(OVERRIDE, base.ADMIN,
                  "Override the flavor's weight and objectives for an instance. Not for the "
                  "owner, because other instances lose what this one gains.",
                  ("PUT", f"{_ONE}/override"), ("PATCH", f"{_ONE}/override"),
                  ("DELETE", f"{_ONE}/override")),
    ]
