# SPDX-License-Identifier: Apache-2.0
"""The volume driver: logical volumes that vcache-agent of the same host gives a cache.

The cache is at the storage node, between a logical volume and what exports it. The table of
the logical volume changes, its path does not. So the target drivers of Cinder, and commands
that copy volumes, see the data that an instance sees. A volume gets its cache when it is
exported, and keeps it afterwards; `group.py` takes it away for commands of LVM.
"""

import contextlib
from typing import Any

from cinder import exception, interface, utils
from cinder.volume import volume_utils
from cinder.volume.drivers import lvm
from oslo_concurrency import processutils
from oslo_log import log as logging

from nova_vcache.extra_specs import Mode
from vcache_cinder import options, specs, targets
from vcache_cinder.agent import Agent, Managed
from vcache_cinder.group import CachedGroup, volume_of

LOG = logging.getLogger(__name__)

_GIB = 1 << 30
#: Statuses of volumes that Cinder itself continues with, or deletes.
_BY_CINDER = ("in-use", "creating", "downloading", "deleting", "error_deleting")


@interface.volumedriver
class VcacheLVMDriver(lvm.LVMVolumeDriver):
    """Thick logical volumes with a cache and isolated flushes."""

    VERSION = "1.0.0"
    CI_WIKI_NAME = "Nova_Vcache_CI"
    vg: Any

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.configuration.append_config_values(options.OPTIONS)
        self.agent = Agent(self.configuration.vcache_socket, self.configuration.vcache_timeout)

    @classmethod
    def get_driver_options(cls) -> list[Any]:
        """Return the options of a backend."""
        return [*super().get_driver_options(), *options.OPTIONS]

    def check_for_setup_error(self) -> None:
        """Refuse a configuration with which volumes cannot have a cache.

        :raises VolumeBackendAPIException: if the agent or the pool is missing
        :raises InvalidConfigurationValue: names the option
        """
        self._check_type()
        if self.vg is None:
            self.vg = self._open_group()
        super().check_for_setup_error()
        found, pool = self.agent.pools(), self.configuration.vcache_pool
        if pool and pool not in found:
            there = ", ".join(sorted(found)) or "none"
            raise exception.VolumeBackendAPIException(
                data=f"vcache_pool {pool} is not a pool of this host, must be one of: {there}")

    def _check_type(self) -> None:
        if self.configuration.lvm_type == "auto":
            self.configuration.lvm_type = "default"
        if self.configuration.lvm_type != "default":
            raise exception.InvalidConfigurationValue(
                f"lvm_type {self.configuration.lvm_type}: must be 'default'. A thin volume cannot "
                "get a cache below its path, because only its thin pool may use its table")
        if self.configuration.lvm_mirrors:
            raise exception.InvalidConfigurationValue(
                f"lvm_mirrors {self.configuration.lvm_mirrors}: must be 0. Only linear and striped "
                "logical volumes can get a cache; mirror below the volume group, with md")

    def _open_group(self) -> CachedGroup:
        conf = self.configuration.lvm_conf_file
        try:
            return CachedGroup(
                self.agent, self.configuration.volume_group, utils.get_root_helper(),
                lvm_type="default", executor=self._execute,
                lvm_conf=None if conf.lower() == "none" else conf,
                suppress_fd_warn=self.configuration.lvm_suppress_fd_warnings)
        except exception.VolumeGroupNotFound:
            raise exception.VolumeBackendAPIException(
                data=f"Volume Group {self.configuration.volume_group} does not exist") from None

    # ---- the cache of a volume ----

    def _give_cache(self, volume: Any) -> None:
        """Give a volume the cache of its type; take it away if the type has none."""
        self._apply(volume, specs.of_volume(volume))

    def _apply(self, volume: Any, wanted: dict[str, str]) -> None:
        """Give a volume a cache.

        :param wanted: the specs of its type; empty: no cache
        """
        name = volume["name"]
        identity = volume_of(name)
        if identity is None:
            raise exception.VolumeBackendAPIException(
                data=f"{name} is not the name of a volume, so it cannot have a cache")
        mode = specs.mode_of(wanted)
        if mode is Mode.NONE:
            self._forget(name)
            return
        if mode is not Mode.FLUSH_ONLY and not self.configuration.vcache_pool:
            raise exception.VolumeBackendAPIException(
                data=f"vcache:mode {mode} of the volume type needs a pool: set vcache_pool of "
                     "this backend, or use mode flush-only")
        with self.vg.locked(name):
            # Before a pool has data of the volume, and until it has none.
            if mode is not Mode.FLUSH_ONLY:
                self.vg.keep_inactive(name, True)
            self.agent.put(identity, self.local_path(volume),
                           self.configuration.vcache_pool or None, wanted)
            if mode is Mode.FLUSH_ONLY:
                self.vg.keep_inactive(name, False)

    def _complete(self, volume: Any) -> None:
        """Make sure that the path of a volume has its data: after a start of the host, the cache.

        The volume need not be exported.
        """
        name = volume["name"]
        before = self._managed(name)
        if before is not None and before.state != "drained":
            self.vg.activate_lv(name)
            self.agent.put(before.id, before.device, before.pool, before.specs)

    def _managed(self, name: str) -> Managed | None:
        """Return what the agent has of a logical volume; None: nothing."""
        identity = volume_of(name)
        return self.agent.get(identity) if identity else None

    def _forget(self, name: str, *, gone: bool = False) -> None:
        """Remove the cache of a logical volume for good, if it has one.

        :param gone: the logical volume does not exist
        """
        if self._managed(name) is not None:
            self.vg.forget(name, gone=gone)

    def create_volume(self, volume: Any) -> None:
        """Create a logical volume; it gets its cache when it is exported.

        :raises InvalidVolumeType: if the volume type has a wrong key
        """
        specs.of_volume(volume)
        super().create_volume(volume)

    def delete_volume(self, volume: Any) -> None:
        """Delete a logical volume and its cache."""
        if self._volume_not_present(volume["name"]):
            self._forget(volume["name"], gone=True)
        super().delete_volume(volume)

    def _delete_volume(self, volume: Any, is_snapshot: bool = False) -> None:
        # First, so that a volume is cleared on its storage and not in the cache.
        if not is_snapshot:
            self._forget(volume["name"])
        super()._delete_volume(volume, is_snapshot)

    def revert_to_snapshot(self, context: Any, volume: Any, snapshot: Any) -> None:
        """Revert a volume to a snapshot, without its cache."""
        managed = self._managed(volume["name"])
        with self.vg.uncached(volume["name"]) if managed else contextlib.nullcontext():
            super().revert_to_snapshot(context, volume, snapshot)

    def create_volume_from_snapshot(self, volume: Any, snapshot: Any) -> None:
        """Create a volume from a snapshot; it gets its cache when it is exported.

        :raises InvalidVolumeType: if the volume type has a wrong key
        """
        specs.of_volume(volume)
        super().create_volume_from_snapshot(volume, snapshot)

    def create_cloned_volume(self, volume: Any, src_vref: Any) -> None:
        """Clone a volume; the clone gets its cache when it is exported.

        :raises InvalidVolumeType: if the volume type has a wrong key
        """
        specs.of_volume(volume)
        super().create_cloned_volume(volume, src_vref)

    def copy_volume_to_image(self, context: Any, volume: Any, image_service: Any,
                             image_meta: Any) -> None:
        """Copy a volume to an image."""
        self._complete(volume)
        super().copy_volume_to_image(context, volume, image_service, image_meta)

    def copy_image_to_volume(self, context: Any, volume: Any, image_service: Any, image_id: str,
                             disable_sparse: bool = False) -> None:
        """Write an image to a volume."""
        self._complete(volume)
        super().copy_image_to_volume(context, volume, image_service, image_id, disable_sparse)

    def migrate_volume(self, ctxt: Any, volume: Any, host: Any, thin: bool = False,
                       mirror_count: int = 0) -> tuple[bool, Any]:
        """Copy a volume to another volume group of this host."""
        self._complete(volume)
        done: tuple[bool, Any] = super().migrate_volume(ctxt, volume, host, thin, mirror_count)
        return done

    def unmanage(self, volume: Any) -> None:
        """Leave a logical volume to the operator, without a cache."""
        self._forget(volume["name"])
        super().unmanage(volume)

    def retype(self, context: Any, volume: Any, new_type: Any, diff: Any, host: Any) -> bool:
        """Change mode, weight and objectives of a volume, while it is in use.

        :raises InvalidVolumeType: if the new type has a wrong key
        """
        if specs.is_image_cache(volume):
            return True
        multiattach = volume_utils.is_boolean_str(
            (new_type["extra_specs"] or {}).get("multiattach"))
        wanted = specs.of_type(new_type["id"], multiattach=multiattach)
        if self._managed(volume["name"]) is not None or volume["volume_attachment"]:
            self._apply(volume, wanted)
        return True

    # ---- restarts ----

    def update_provider_info(self, volumes: Any, snapshots: Any) -> Any:
        """Continue what a process that was killed has left; Cinder calls it when it starts.

        Such a process has removed a cache for a command of LVM, or changed it for a type that
        Cinder does not have. Volumes in use follow in :meth:`ensure_export`.
        """
        try:
            managed = self.agent.all()
        except exception.VolumeBackendAPIException as error:
            # The service would not start.
            LOG.error("Nothing is continued that was begun before: %s", error.msg)
            return super().update_provider_info(volumes, snapshots)
        for volume in volumes:
            record = managed.get(volume_of(volume["name"]) or "")
            status = volume["status"]
            attached = status != "available" and volume["volume_attachment"]
            if status not in _BY_CINDER and (record is not None or attached):
                self._resume(volume, record)
        return super().update_provider_info(volumes, snapshots)

    def _resume(self, volume: Any, record: Managed | None) -> None:
        try:
            wanted = specs.of_volume(volume)
            if record is None or not record.cached or record.specs != wanted:
                self.vg.activate_lv(volume["name"])
                self._apply(volume, wanted)
        except (exception.CinderException, processutils.ProcessExecutionError) as error:
            LOG.error("Volume %s continues as it is until it is attached again: %s",
                      volume["id"], error)

    # ---- exports ----

    def _is_local(self, connector: Any) -> bool:
        return bool(connector) and bool(self.configuration.vcache_local_attach) and \
            connector.get("host") == self.hostname

    def ensure_export(self, context: Any, volume: Any) -> Any:
        """Restore cache and target of a volume after a start of the service or the host."""
        self.vg.activate_lv(volume["name"])
        self._give_cache(volume)
        if not volume["provider_location"]:
            return None  # only instances of this host have it
        update = super().ensure_export(context, volume)
        connectors = [one.connector for one in volume["volume_attachment"] if one.connector]
        targets.restore(self, context, volume,
                        [one for one in connectors if not self._is_local(one)])
        return update

    def create_export(self, context: Any, volume: Any, connector: Any,
                      vg: str | None = None) -> Any:
        """Give a volume its cache, and export it unless the connector is of this host."""
        self.vg.activate_lv(volume["name"])
        self._give_cache(volume)
        if self._is_local(connector):
            return {}
        return super().create_export(context, volume, connector, vg)

    def remove_export(self, context: Any, volume: Any) -> None:
        """Remove the target of a volume; the volume keeps its cache."""
        if volume["provider_location"]:
            super().remove_export(context, volume)

    def validate_connector(self, connector: Any) -> Any:
        """Check a connector; one of this host needs nothing."""
        if self._is_local(connector):
            return None
        return super().validate_connector(connector)

    def initialize_connection(self, volume: Any, connector: Any) -> Any:
        """Return how a host reaches a volume."""
        if self._is_local(connector):
            return {"driver_volume_type": "local",
                    "data": {"device_path": self.local_path(volume), "volume_id": volume["id"]}}
        return super().initialize_connection(volume, connector)

    def terminate_connection(self, volume: Any, connector: Any, **keywords: Any) -> bool:
        """End a connection.

        :param connector: None: all connections
        :return: whether other hosts or instances have the volume attached
        """
        others = len(volume["volume_attachment"]) > 1
        if self._is_local(connector):
            return others
        if connector is None:
            # remove_export() removes the target with all its initiators, unless it is shared.
            if getattr(self.target_driver, "share_targets", False):
                self.target_driver.terminate_connection(volume, None, **keywords)
            return False
        return bool(super().terminate_connection(volume, connector, **keywords))

    # ---- statistics ----

    def _update_volume_stats(self) -> None:
        super()._update_volume_stats()
        if self.vg is None:
            return
        try:
            self.vg.retry()
            pool = self.agent.pools().get(self.configuration.vcache_pool)
        except exception.VolumeBackendAPIException as error:
            LOG.warning("The backend is down: %s", error.msg)
            state, pool = "down", None
        else:
            state = "up"
        for row in self._stats["pools"]:
            row.update(capabilities(pool))
            row["backend_state"] = state
            row["QoS_support"] = True
        self._stats["driver_version"] = self.VERSION


def capabilities(pool: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the scheduler can compare with a volume type, such as ``vcache <is> True``.

    :param pool: the pool of the backend; None: it has none
    """
    modes = ["flush-only"]
    if pool is not None and pool["state"] == "ok":
        modes = ["writeback", "writethrough", "flush-only"]
    return {
        "vcache": True, "vcache_modes": modes,
        "vcache_size_gb": round(pool["size_bytes"] / _GIB, 2) if pool else 0,
        "vcache_free_gb": round(pool["free_bytes"] / _GIB, 2) if pool else 0}
