# SPDX-License-Identifier: Apache-2.0
"""Configuration options of the agent, apart from those of oslo.log."""

from typing import Any

from oslo_config import cfg, types

from vcache_agent import policies
from vcache_agent.decide.restraint import Means
from vcache_agent.vssd.session import DEADLINE_MAX

_AGENT = cfg.OptGroup("agent", title="The agent")
_AGENT_OPTS = [
    cfg.StrOpt("state_path", default="/var/lib/vcache/agent.sqlite",
               help="SQLite file with the agent's persistent state, such as the tag and the "
                    "volume number of each disk. If the file is lost, disks may get other tags, "
                    "and devices with dirty data in a pool must be attached with --volume and "
                    "--recover."),
    cfg.StrOpt("hook_socket", default="/run/vcache/hook.sock",
               help="Path of the Unix socket on which the agent serves the qemu hook. Must equal "
                    "'socket' in /etc/vcache/hook.conf."),
    cfg.StrOpt("admin_socket", default="/run/vcache/admin.sock",
               help="Path of the Unix socket on which the agent serves the vcache command and "
                    "vcache-host."),
    cfg.FloatOpt("refresh_interval", default=5.0, min=0.5, max=3600.0,
                 help="Seconds between two periodic comparisons of the disks with the kernel's "
                      "tags. A change of a disk or of a domain causes a comparison at once."),
    cfg.FloatOpt("locate_timeout", default=1.0, min=0.1, max=60.0,
                 help="Seconds after which the path of a disk counts as hanging. Its disk keeps "
                      "the last known location until the path answers."),
    cfg.FloatOpt("prepare_timeout", default=0.7, min=0.05, max=29.0,
                 help="Seconds for which the agent checks the disks of a domain that starts, while "
                      "libvirt waits. A domain with a disk that cannot be checked in this time "
                      "starts with a note, or is refused if its flavor has vcache:required. The "
                      "value must be less than 'timeout' in /etc/vcache/hook.conf."),
    cfg.FloatOpt("prepare_grace", default=120.0, min=5.0, max=3600.0,
                 help="Seconds that a domain may take from the hook's prepare until libvirt lists "
                      "it as running. A domain that takes longer is treated as stopped."),
    cfg.FloatOpt("forget_after", default=86400.0, min=0.0,
                 help="Seconds for which a disk keeps its tag number after libvirt no longer "
                      "knows its domain."),
    cfg.FloatOpt("swap_after", default=600.0, min=0.0,
                 help="Seconds after which the cached blocks of a stopped domain are released. If "
                      "the flavor has vcache:persist, a list of these blocks is saved in the "
                      "directory 'maps' beside state_path, and the blocks are loaded again when "
                      "the domain starts."),
    cfg.IntOpt("swap_mb", default=0, min=0, max=1 << 30,
               help="Size in MiB of all files in swap_dir. If it is not 0 and the flavor has "
                    "vcache:persist, the data of the cached blocks is copied there before they "
                    "are released, so that it returns without a read of the disk's storage when "
                    "the domain starts. Data that does not fit is read from that storage."),
    cfg.StrOpt("swap_dir", default="",
               help="Directory of the copies of swap_mb, with data of all tenants. Empty: the "
                    "directory 'swap' beside state_path. vcache-agent.service lets the agent "
                    "write only below /var/lib/vcache and /run/vcache."),
    cfg.IntOpt("swap_rate_mb", default=100, min=0, max=100000,
               help="MiB per second of the copy to swap_dir. 0: no limit."),
    cfg.BoolOpt("swap_volumes", default=False,
                help="Copy also the data of disks that are block devices. Only if no other host "
                     "can write these: a copy must not be older than the disk. Images are always "
                     "copied, since only this host writes them."),
    cfg.StrOpt("policy", default=policies.DEFAULT, choices=[
        (name, policy.meaning) for name, policy in policies.POLICIES.items()],
               help="How a pool is divided among the tags that use it. 'vcache policy set' "
                    "overrides this option."),
    cfg.IntOpt("extents_per_disk", default=16384, min=1, max=65536,
               help="Maximum number of extents of a disk image that are given to the kernel. If "
                    "an image has more, the smallest are left out: writes to them belong to the "
                    "host tag, and every flush covers them. The kernel has a limit too, the "
                    "parameter extents_max of the module."),
    cfg.FloatOpt("netlink_timeout", default=5.0, min=0.1, max=60.0,
                 help="Timeout of one netlink request to the kernel, in seconds."),
]

_LIBVIRT = cfg.OptGroup("libvirt", title="libvirt of this host")
_LIBVIRT_OPTS = [
    cfg.StrOpt("uri", default="qemu:///system", help="libvirt connection URI of this host."),
    cfg.StrOpt("run_dir", default="/run/libvirt/qemu",
               help="Directory of libvirt's PID and status files, two for each running domain. The "
                    "agent looks for changed status files about twice a second, because libvirt "
                    "sends no event for an external snapshot. If the directory does not exist, a "
                    "listing finds such changes."),
    cfg.FloatOpt("list_interval", default=60.0, min=1.0, max=3600.0,
                 help="Seconds between two listings of all domains. A listing finds changes for "
                      "which there is neither an event nor a changed status file in run_dir."),
]

_OBSERVE = cfg.OptGroup("observe", title="Samples of the kernel's counters")
_OBSERVE_OPTS = [
    cfg.StrOpt("record_path", default="",
               help="File to which all samples are recorded, one each second, for instance to "
                    "replay them later. vcache-agent.service lets the agent write only below "
                    "/var/lib/vcache and /run/vcache. Older files get the endings .1 to .4. "
                    "Empty: record nothing. 'vcache record' records for a limited time."),
    cfg.IntOpt("record_mb", default=256, min=1, max=1 << 20,
               help="Size of a file of record_path in MiB, after which the next one is begun."),
]

_MIGRATION = cfg.OptGroup("migration", title="Live migration")
_MIGRATION_OPTS = [
    cfg.StrOpt("relay_socket", default="/run/vcache-host/relay.sock",
               help="Path of the Unix socket of vcache-host, through which the agent asks the "
                    "agent of the host from which an instance migrates. Must equal relay_socket "
                    "in vcache-host.conf. Empty: do not ask, see 'unanswered'."),
    cfg.FloatOpt("wait", default=0.7, min=0.05, max=29.0,
                 help="Seconds for which the agent waits until the source of a migration has "
                      "written the dirty data of the instance's volumes to their storage, while "
                      "libvirt waits. If it takes longer, the migration is refused; the source "
                      "continues, so a later attempt succeeds. The value must be less than "
                      "'timeout' in /etc/vcache/hook.conf."),
    cfg.StrOpt("unanswered", default="refuse", choices=[
        ("refuse", "refuse the migration"),
        ("accept", "accept the migration, with a note in libvirt's log; the guest may then read "
                   "outdated data, unless no host has its volumes in mode writeback")],
               help="What to do if an instance with block devices and a vcache:mode comes from a "
                    "host that does not answer."),
    cfg.StrOpt("writethrough", default="shared", choices=[
        ("shared", "disks that are block devices: both hosts may see their storage"),
        ("all", "also image files, which QEMU copies")],
               help="Disks of an instance that are in mode writethrough at the source while it "
                    "migrates."),
    cfg.FloatOpt("grace", default=30.0, min=1.0, max=3600.0,
                 help="Seconds for which an instance stays in mode writethrough after it was "
                      "announced as migrating, if libvirt has no migration of it."),
]

_POLICY = cfg.OptGroup("policy", title="Policies that divide pools by what is measured")
_POLICY_OPTS = [
    cfg.FloatOpt("period", default=15.0, min=1.0, max=600.0,
                 help="Seconds between two control periods: the agent reads the miss-ratio curves "
                      "of all tags, and the policies 'mrc' and 'throughput' compute new shares."),
    cfg.FloatOpt("step", default=0.25, min=0.01, max=1.0,
                 help="Largest part of a pool that changes its tag in a control period. A "
                      "guarantee is met at once."),
    cfg.FloatOpt("hysteresis", default=0.01, min=0.0, max=0.5,
                 help="Part of the time at the origins that a change of the shares must save under "
                      "the policy 'mrc'. A change that saves less does not happen."),
    cfg.ListOpt("slo_means", default=[], sample_default="",
                item_type=types.String(choices=[str(means) for means in Means]),
                help="What may limit a neighbour that makes another instance miss an objective "
                     "(vcache:slo_*), in the order of use. 'destage': the rate of the destage of "
                     "its device, if it has that for itself and disturbs a disk on another one. "
                     "'io': the bandwidth of its domain's cgroup on the device, by io.max. It is "
                     "limited step by step, never below its usual rate, and released step by "
                     "step. For 'io', vcache-agent.service needs ProtectControlGroups=no. Empty: "
                     "limit nobody."),
    cfg.BoolOpt("nested", default=False,
                help="Nest shares: projects divide the host by 'project_weights', the instances of "
                     "a project divide its part by vcache:weight, and the disks of an instance "
                     "divide its part by the weights of 'vcache tag set'. Otherwise each disk has "
                     "the weight of its flavor, so more disks get more."),
    cfg.Opt("project_weights", default={}, sample_default="",
            type=types.Dict(types.Integer(1, 1000), bounds=False),
            help="Weights of projects in nested shares, such as PROJECT_ID:300,PROJECT_ID:50. "
                 "Projects that are not in the list have 100."),
]

_METRICS = cfg.OptGroup("metrics", title="Metrics for Prometheus")
_METRICS_OPTS = [
    cfg.StrOpt("listen", default="127.0.0.1:9587",
               help="Address and port on which the agent serves its metrics by HTTP, without "
                    "authentication, such as 192.0.2.1:9587 or [::]:9587. Empty: do not serve "
                    "them."),
    cfg.BoolOpt("instance_labels", default=False,
                help="Add the labels 'instance_uuid' and 'project_id' to the metrics of tags. "
                     "Prometheus then has new series for each instance."),
]


_DRIVES = cfg.OptGroup("drives", title="Drives that understand tags")
_DRIVES_OPTS = [
    cfg.BoolOpt("weights", default=False,
                help="Give each tag on a drive with isolation 'tagged' its weight in the drive, "
                     "too: vcache:weight, or what an override or nested shares make of it. Tags "
                     "with a weight do not see each other's flushes, but have only their share of "
                     "the drive's banks while others are active, so this costs bandwidth. The "
                     "agent replaces and removes weights that were set by hand, apart from that of "
                     "tag 0. Do not use it on several hosts that share a drive."),
]


_VOLUMES = cfg.OptGroup("volumes", title="Volumes of Cinder that the agent manages")
_VOLUMES_OPTS = [
    cfg.StrOpt("socket", default="/run/vcache/volumes.sock",
               help="Path of the Unix socket on which the agent serves the Cinder volume driver. "
                    "It has only the operations for volumes. Must equal 'vcache_socket' of the "
                    "backend in cinder.conf."),
    cfg.StrOpt("group", default="",
               help="Name of the group whose members may use the socket, for example 'cinder'. A "
                    "member can give a cache to any mapped device of the host, and remove it. "
                    "Empty: the agent does not serve the socket."),
]

_VSSD = cfg.OptGroup("vssd", title="Elastic SSDs")
_VSSD_OPTS = [
    cfg.FloatOpt("deadline", default=30.0, min=0.0, max=DEADLINE_MAX,
                 help="Seconds for which a guest may give up blocks of its elastic SSD when its "
                      "size is reduced. After that, blocks are taken by force. 'vcache vssd "
                      "resize --deadline' overrides this option. A restart of the agent begins "
                      "this time again."),
    cfg.StrOpt("policy", default="none", choices=[
        ("none", "only the guarantee (vcache:vssd_mb) and 'vcache vssd resize' change sizes"),
        ("weighted", "in each period of [policy], elastic SSDs of flavors with "
                     "vcache:vssd_max_mb and the tags of their pool divide it by their weights; "
                     "one that does not use what it has gives it up")],
               help="What changes the sizes of elastic SSDs."),
]


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_AGENT, list(_AGENT_OPTS)),
            (_LIBVIRT, list(_LIBVIRT_OPTS)),
            (_OBSERVE, list(_OBSERVE_OPTS)),
            (_MIGRATION, list(_MIGRATION_OPTS)),
            (_POLICY, list(_POLICY_OPTS)),
            (_METRICS, list(_METRICS_OPTS)),
            (_DRIVES, list(_DRIVES_OPTS)),
            (_VOLUMES, list(_VOLUMES_OPTS)),
            (_VSSD, list(_VSSD_OPTS))]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options."""
    for group, options in list_opts():
        conf.register_group(group)
        conf.register_opts(options, group=group)
