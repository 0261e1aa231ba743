# SPDX-License-Identifier: Apache-2.0
"""Options of a backend in cinder.conf, in addition to those of LVMVolumeDriver."""

from oslo_config import cfg

OPTIONS = [
    cfg.StrOpt("vcache_pool", default="",
               help="Name of the vcache pool that volumes of this backend use. Empty: volume types "
                    "may only have vcache:mode flush-only."),
    cfg.StrOpt("vcache_socket", default="/run/vcache/volumes.sock",
               help="Path of the Unix socket of vcache-agent for volumes. Must equal 'socket' in "
                    "section [volumes] of vcache-agent.conf."),
    cfg.IntOpt("vcache_timeout", default=600, min=5, max=86400,
               help="Seconds that the agent may need for one operation. Before a snapshot or an "
                    "extension, it writes all dirty data of the volume to the logical volume."),
    cfg.BoolOpt("vcache_local_attach", default=True,
                help="Attach volumes to instances on this host as block devices, without a "
                     "target. The instance must be on the host of cinder-volume."),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator; they belong to the section of a backend."""
    return [("backend_defaults", list(OPTIONS))]
