# SPDX-License-Identifier: Apache-2.0
"""Who may do what, by oslo.policy."""

from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from nova_vcache.api import policies


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return oslo.policy's enforcer with our rules."""
    opts.set_defaults(conf)
    made = policy.Enforcer(conf)
    made.register_defaults(policies.list_rules())
    return made


def get_enforcer() -> policy.Enforcer:
    """Return an enforcer for oslo.policy's tools, which find it by its entry point."""
    conf = cfg.CONF
    conf([], project="vcache", default_config_files=[])
    return enforcer(conf)


class Policy:
    """The rules for one request.

    :param context: oslo.context's, of the token
    """

    def __init__(self, made: policy.Enforcer, context: Any) -> None:
        self._enforcer = made
        self._context = context

    def allows(self, rule: str, project: str | None = None) -> bool:
        """Tell whether a rule allows something.

        :param project: whose it is; None: nobody's in particular, the token's own project
            stands for it then
        """
        target = {"project_id": self._context.project_id if project is None else project}
        return bool(self._enforcer.authorize(rule, target, self._context, do_raise=False))
