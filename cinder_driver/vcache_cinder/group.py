# SPDX-License-Identifier: Apache-2.0
"""A volume group whose logical volumes may have a cache.

LVM must not change a logical volume that has a cache: it would replace the table that the
agent has loaded. So each command that changes a logical volume runs while the volume has its
original table. Its I/O goes on, without the cache. The cache is back afterwards, whether the
command has succeeded or not.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from cinder import exception
from cinder.brick.local_dev import lvm
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import uuidutils

from vcache_cinder.agent import Agent, Managed

LOG = logging.getLogger(__name__)


class CachedGroup(lvm.LVM):
    """A volume group, and the agent that manages the caches of its volumes.

    :param agent: the agent of this host
    """

    def __init__(self, agent: Agent, *arguments: Any, **options: Any) -> None:
        self.agent = agent
        self._lost: dict[str, Managed] = {}
        self._locks: dict[str, Any] = {}
        super().__init__(*arguments, **options)

    def locked(self, name: str) -> Any:
        """Return the lock of a logical volume.

        Nobody may give it a cache while LVM changes it: Cinder deletes its snapshot of a revert
        when the volume can be attached already.
        """
        return self._locks.setdefault(name, threading.RLock())

    @contextlib.contextmanager
    def uncached(self, name: str | None) -> Iterator[None]:
        """Write back and remove the cache of a logical volume, and give it back afterwards.

        :param name: name of the logical volume; None or one of another kind: nothing to do
        :raises VolumeBackendAPIException: if the cache cannot be removed
        """
        with self.locked(name or ""), self._uncached(name):
            yield

    @contextlib.contextmanager
    def _uncached(self, name: str | None) -> Iterator[None]:
        volume = volume_of(name)
        before = self.agent.get(volume) if volume else None
        if volume is None or before is None or before.state == "drained":
            yield
            return
        # What the pool has of a volume that is not active cannot be written back.
        self.activate_lv(name)
        self.agent.drain(volume)
        try:
            yield
        finally:
            if before.cached:
                self._return(before)

    def forget(self, name: str, *, gone: bool = False) -> None:
        """Remove the cache of a logical volume for good.

        :param gone: the logical volume does not exist
        """
        volume = volume_of(name)
        before = self.agent.get(volume) if volume else None
        if volume is None or before is None:
            return
        if not gone and before.state != "drained":
            self.activate_lv(name)
        self._lost.pop(volume, None)
        self.agent.delete(volume, discard=gone)
        if not gone:
            self.keep_inactive(name, False)

    def retry(self) -> None:
        """Give volumes their caches for which that has failed before."""
        for before in list(self._lost.values()):
            found = self.agent.get(before.id)
            if found is not None and found.state == "drained":
                self._return(before)
            else:
                self._lost.pop(before.id, None)

    def _return(self, before: Managed) -> None:
        """Give a volume its cache again; if that fails, it continues without it."""
        try:
            self.agent.put(before.id, before.device, before.pool, before.specs)
        except exception.VolumeBackendAPIException as error:
            LOG.error("Volume %s continues without its cache: %s", before.id, error.msg)
            self._lost[before.id] = before
        else:
            self._lost.pop(before.id, None)

    def create_lv_snapshot(self, name: str, source_lv_name: str,
                           lv_type: str = "default") -> None:
        """Create a snapshot; it has everything that was written to the volume before."""
        with self.uncached(source_lv_name):
            super().create_lv_snapshot(name, source_lv_name, lv_type)

    def extend_volume(self, lv_name: str, new_size: str) -> None:
        """Extend a logical volume."""
        with self.uncached(lv_name):
            super().extend_volume(lv_name, new_size)

    def delete(self, name: str) -> None:
        """Delete a logical volume with its cache, or a snapshot."""
        if self.get_volume(name) is None:
            self.forget(name, gone=True)
            return
        if volume_of(name) is not None:
            self.forget(name)
            super().delete(name)
            return
        with self.uncached(self.lv_get_origin(name)):
            super().delete(name)

    def rename_volume(self, lv_name: str, new_name: str) -> None:
        """Rename a logical volume, which has its cache at the next attachment again."""
        self.forget(lv_name)
        super().rename_volume(lv_name, new_name)

    def revert(self, snapshot_name: str) -> None:
        """Merge a snapshot into its origin, which may have no cache while that lasts."""
        with self.uncached(self.lv_get_origin(snapshot_name)):
            super().revert(snapshot_name)

    def keep_inactive(self, name: str, inactive: bool) -> None:
        """Set whether a logical volume stays inactive when the host starts.

        While a pool has data of it, nothing may open it before it has its cache, for example a
        target that is restored when the host starts: it would read outdated data, and what it
        writes would be hidden by what the pool has.
        """
        self._execute("lvchange", "-k", "y" if inactive else "n", f"{self.vg_name}/{name}",
                      root_helper=self._root_helper, run_as_root=True)


def volume_of(name: str | None) -> str | None:
    """Return the id of the volume that a logical volume is for; None: none.

    :param name: name of the logical volume
    """
    found = volume_utils.extract_id_from_volume_name(name) if name else None
    return found if found and uuidutils.is_uuid_like(found) else None
