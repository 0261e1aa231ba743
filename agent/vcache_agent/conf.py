# SPDX-License-Identifier: Apache-2.0
"""Options of the agent; those of the log are oslo.log's."""

from typing import Any

from oslo_config import cfg

from vcache_agent import policies

_AGENT = cfg.OptGroup("agent", title="The agent")
_AGENT_OPTS = [
    cfg.StrOpt("state_path", default="/var/lib/vcache/agent.sqlite",
               help="SQLite file of the agent's intent: which disk has which tag. It may be "
                    "lost: tags are then given anew."),
    cfg.StrOpt("hook_socket", default="/run/vcache/hook.sock",
               help="Unix socket the qemu hook asks. Must be the same in "
                    "/etc/vcache/hook.conf."),
    cfg.StrOpt("admin_socket", default="/run/vcache/admin.sock",
               help="Unix socket the vcache command asks."),
    cfg.FloatOpt("refresh_interval", default=5.0, min=0.5, max=3600.0,
                 help="Seconds between looks at images that grow and at tags in the kernel. "
                      "What a guest writes to newly allocated blocks is covered by every flush "
                      "until then."),
    cfg.FloatOpt("prepare_grace", default=120.0, min=5.0, max=3600.0,
                 help="Seconds that a domain may take from libvirt's prepare to running, before "
                      "it counts as gone if libvirt does not list it."),
    cfg.FloatOpt("forget_after", default=86400.0, min=0.0,
                 help="Seconds that a disk keeps its tag number after libvirt no longer knows "
                      "its domain."),
    cfg.FloatOpt("swap_after", default=600.0, min=0.0,
                 help="Seconds that a domain has to be stopped until others get the room that its "
                      "disks have in caches. Where its flavor says vcache:persist, a list of what "
                      "was there is kept in the folder 'maps' beside state_path, and brought back "
                      "when it is started."),
    cfg.StrOpt("policy", default=policies.DEFAULT, choices=[
        (name, policy.meaning) for name, policy in policies.POLICIES.items()],
               help="How a pool is divided among the tags that use it, until an operator says "
                    "otherwise by 'vcache policy set'."),
    cfg.FloatOpt("netlink_timeout", default=5.0, min=0.1, max=60.0,
                 help="Seconds that the kernel may take to answer one request."),
]

_LIBVIRT = cfg.OptGroup("libvirt", title="libvirt of this host")
_LIBVIRT_OPTS = [
    cfg.StrOpt("uri", default="qemu:///system", help="Connection URI of the host's libvirt."),
    cfg.StrOpt("run_dir", default="/run/libvirt/qemu",
               help="Where libvirt writes the process numbers of its domains."),
    cfg.FloatOpt("list_interval", default=60.0, min=1.0, max=3600.0,
                 help="Seconds between lists of all domains, for changes that no event tells "
                      "of, such as snapshots."),
]


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_AGENT, list(_AGENT_OPTS)),
            (_LIBVIRT, list(_LIBVIRT_OPTS))]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options."""
    for group, options in list_opts():
        conf.register_group(group)
        conf.register_opts(options, group=group)
