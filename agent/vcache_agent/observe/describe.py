# SPDX-License-Identifier: Apache-2.0
"""The claims of tags as the kernel has them, for recordings without an agent."""

from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim
from vcache_agent.observe.sample import Sample

_CACHED = (spec.Mode.WRITEBACK, spec.Mode.WRITETHROUGH)


def claims_of(sample: Sample) -> tuple[Claim, ...]:
    """Return the claims of the tags, apart from the host tags.

    Under a policy that computes shares, the kernel's minimum is the share and not what the flavor
    guarantees, so a replay then has too large guarantees.
    """
    pools = {device.number: device.pool for device in sample.devices}
    return tuple(
        Claim(tag.device, tag.id, pools[tag.device], tag.weight or 1, tag.cache_min_bytes,
              tag.cache_max_bytes, tag.mode in _CACHED, tag.mode is spec.Mode.WRITEBACK,
              lanes=tag.cache_lanes, fixed=bool(tag.cache_lanes))
        for tag in sample.tags if tag.id and pools.get(tag.device))
