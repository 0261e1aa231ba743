# SPDX-License-Identifier: Apache-2.0
"""Policy checks with oslo.policy."""

from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from nova_vcache.api import policies


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return oslo.policy's enforcer with the rules of vcache-api."""
    opts.set_defaults(conf)
    made = policy.Enforcer(conf)
    made.register_defaults(policies.list_rules())
    return made


def get_enforcer() -> policy.Enforcer:
    """Return an enforcer for the tools of oslo.policy (an entry point)."""
    conf = cfg.CONF
    conf([], project="vcache", default_config_files=[])
    return enforcer(conf)


class Policy:
    """The policy for one request.

    :param made: the enforcer
    :param context: request context of the token
    """

    def __init__(self, made: policy.Enforcer, context: Any) -> None:
        self._enforcer = made
        self._context = context

    def allows(self, rule: str, project: str | None = None) -> bool:
        """Return True if the token satisfies a rule.

        :param rule: name of the rule
        :param project: project that owns the resource; None: the project of the token
        """
        target = {"project_id": self._context.project_id if project is None else project}
        return bool(self._enforcer.authorize(rule, target, self._context, do_raise=False))
