# SPDX-License-Identifier: Apache-2.0
"""Release what caches have of volumes that another host writes.

The kernel releases clean blocks only, so this never loses data. Only the worker calls it.
"""

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_vcache.extra_specs import Mode
from vcache_agent.model import Device, DeviceNumber, DiskId, Tag
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.plan.state import DiskReport
from vcache_agent.records import DiskRow

# Requests for one tag in one pass, because other disks wait for the pass.
_DROPS = 16


def to_empty(reports: Iterable[DiskReport], devices: Sequence[Device], left: Collection[str],
             rows: Mapping[DiskId, DiskRow]) -> set[DeviceNumber]:
    """Return the devices whose caches must have nothing.

    A volume in mode flush-only has no use of a cache, and others may write it.

    :param left: UUIDs of domains that have migrated away
    :param rows: the store's disks
    """
    pooled = {device.number: device for device in devices
              if device.pool and device.scope is spec.Scope.VOLUME}
    used = {report.device for report in reports}
    found = {report.device for report in reports
             if report.volume and report.mode is Mode.FLUSH_ONLY and report.device is not None}
    names = {row.device for row in rows.values() if row.domain in left}
    found |= {number for number, device in pooled.items()
              if device.name in names and number not in used}
    return found & pooled.keys()


def gone(left: Collection[str], devices: Sequence[Device], tags: Sequence[Tag],
         rows: Mapping[DiskId, DiskRow]) -> set[str]:
    """Return the domains of `left` of which no cache has anything.

    A volume whose device is not here now counts as cached.
    """
    by_name = {device.name: device for device in devices}
    cached = {tag.device for tag in tags if tag.cached_bytes}
    found = set(left)
    for row in rows.values():
        if row.domain not in left or not row.device:
            continue
        device = by_name.get(row.device)
        if device is None or (device.scope is spec.Scope.VOLUME and device.number in cached):
            found.discard(row.domain)
    return found


def release(client: Client, numbers: Collection[DeviceNumber], tags: Sequence[Tag]) -> bool:
    """Release the cached blocks of all tags of some devices; return True if some are left."""
    left = False
    for tag in tags:
        if tag.device not in numbers or not tag.cached_bytes:
            continue
        before, remains = (-1, 0), (tag.cached_bytes, 0)
        for _ in range(_DROPS):
            try:
                before, remains = remains, client.cache_drop(tag.device, tag.id)
            except NetlinkError as error:
                if error.errno not in (errno.ENOENT, errno.ENODATA, errno.ENODEV):
                    raise
                remains = (0, 0)
            if not remains[0] or remains == before:
                break
        left |= remains[0] > 0
    return left
