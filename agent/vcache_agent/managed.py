# SPDX-License-Identifier: Apache-2.0
"""Managed volumes in a pass of the worker: each is like a domain with one disk.

So the planner handles the tags of volumes and instances alike.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping

from vcache_agent.inventory import Entry, Snapshot
from vcache_agent.model import VOLUME_TARGET, DiskId, DiskSource, Domain, Owner, Phase
from vcache_agent.records import DiskRow, ManagedVolume, VolumeState


def added(snapshot: Snapshot, volumes: Mapping[str, ManagedVolume]) -> Snapshot:
    """Return the domains of a host and its managed volumes.

    A volume that is drained has no tag, but keeps its number.

    :param volumes: the managed volumes by id
    """
    if not volumes:
        return snapshot
    entries = [Entry(domain_of(volume), Phase.RUNNING, 0.0) for volume in volumes.values()
               if volume.state is VolumeState.ATTACHED]
    return dataclasses.replace(
        snapshot, entries=(*snapshot.entries, *entries),
        defined=None if snapshot.defined is None else snapshot.defined | volumes.keys())


@functools.lru_cache(maxsize=4096)
def domain_of(volume: ManagedVolume) -> Domain:
    """Return a managed volume as a domain with one disk."""
    return Domain(volume.id, f"volume-{volume.id}", json.loads(volume.specs),
                  (DiskSource(VOLUME_TARGET, "block", volume.device),), owner=Owner.VOLUME)


def without(rows: Mapping[DiskId, DiskRow],
            volumes: Mapping[str, ManagedVolume]) -> dict[DiskId, DiskRow]:
    """Return the rows of disks that are not on the device of a managed volume."""
    devices = {row.device for row in rows.values() if row.domain in volumes} - {""}
    return {key: row for key, row in rows.items() if row.device not in devices}
