# SPDX-License-Identifier: Apache-2.0
"""The volumes that the agent manages for Cinder: their caches and their records.

Each operation is idempotent. The record is written before the device changes, so that a
restart of the agent or the host continues what was begun:

=============  ====================================================================
`attached`     the device gets its cache again
`leaving`      the cache is written back and removed
`drained`      the device keeps its original table, which LVM may change
=============  ====================================================================

The mode, the weight and the limits of a volume are those of its tag, which the worker
sets. Only whether it has a pool is a matter of its table.
"""

import contextlib
import dataclasses
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_log import log as logging

from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Mode
from vcache_agent import attach, device_lock, pools, tags
from vcache_agent.admin_client import AdminError, NotHere, Unfinished
from vcache_agent.dm import Dm, DmError, Info
from vcache_agent.model import VOLUME_TARGET, DiskId
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.pools import PoolError
from vcache_agent.records import ManagedVolume, VolumeState
from vcache_agent.store import Store, is_refusal

LOG = logging.getLogger(__name__)

# Seconds between two attempts to attach volumes whose device or pool does not exist yet.
_AGAIN = 5.0
# Longest time in seconds to wait for another operation or command that changes devices.
_PATIENCE = 60.0
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DEVICE = re.compile(r"/dev/[A-Za-z0-9_+.:@=/-]{1,200}")
_CACHED = (Mode.WRITEBACK, Mode.WRITETHROUGH)


class Volumes:
    """The managed volumes. Thread-safe; one operation at a time changes devices.

    :param store: the agent's store
    :param settle: runs a pass of the worker, and waits until it is complete
    :param lock: see device_lock.py
    :param mapper: returns a connection to device mapper
    :param kernel: returns a client for the kernel
    """

    def __init__(self, store: Store, settle: Callable[[], None], lock: Path, *,
                 mapper: Callable[[], Dm] = Dm, kernel: Callable[[], Client] = Client) -> None:
        self._store = store
        self._settle = settle
        self._file = lock
        self._mapper = mapper
        self._kernel = kernel
        self._problems: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._restore, name="volumes", daemon=True)

    def start(self) -> None:
        """Begin to continue what an earlier agent has begun."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to wait for devices."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_AGAIN)

    @property
    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """The operations of the sockets, by name."""
        return {"volume-put": self.put, "volume-get": self.get, "volume-list": self.all,
                "volume-pools": self.pools, "volume-drain": self.drain,
                "volume-delete": self.delete}

    def put(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Give a volume its cache, its pool and its specs.

        :param fields: ``id``, ``device``, ``pool`` (null: none) and ``specs``
        :raises AdminError: if that is not possible; the volume is then as before
        """
        wanted = _wanted(fields)
        with self._operation(wanted.id, "volume-put"):
            before = self._store.managed().get(wanted.id)
            with self._mapper() as dm:
                info = pools.find(dm, wanted.device)
                wanted = dataclasses.replace(wanted, identity=pools.identity(info))
                self._check_owner(wanted)
                self._store.manage(wanted, self._new_tag(dm, info, wanted.id))
                try:
                    self._attach(dm, wanted)
                except (PoolError, DmError):
                    self._restored(dm, wanted, before)
                    raise
        self._settle()
        return self.get(fields)

    def get(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a volume.

        :raises NotHere: if it is not managed
        """
        name = _id(fields)
        volume = self._store.managed().get(name)
        if volume is None:
            raise NotHere(f"volume {name} is not managed by this host")
        return {"volume": self._described(volume)}

    def all(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return all volumes."""
        return {"volumes": [self._described(volume) for _, volume
                            in sorted(self._store.managed().items())]}

    def pools(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pools of the host, without their devices."""
        try:
            with self._mapper() as dm:
                rows = [pools.row(pool, []) for pool in pools.pools(dm)]
        except DmError as error:
            raise Unfinished(f"the pools are unknown: {error.strerror}") from None
        return {"pools": rows}

    def drain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Write back the cache of a volume and remove it, so that LVM may change the device.

        The record and the tag number stay, until the next :meth:`put` or :meth:`delete`.

        :raises NotHere: if it is not managed
        :raises AdminError: if that is not possible; a later call continues
        """
        name = _id(fields)
        self._write_back(self._known(name))
        with self._operation(name, "volume-drain"):
            self._leave(self._known(name))
        self._settle()
        return self.get(fields)

    def delete(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Write back and remove the cache of a volume, and forget the volume.

        A volume that is not managed is deleted already.

        :param fields: ``id``; with ``discard`` true, what the pool has of a device that no longer
            exists is discarded
        :raises AdminError: if that is not possible; a later call continues
        """
        name, discard = _id(fields), fields.get("discard", False)
        if type(discard) is not bool:
            raise AdminError(f"discard {str(discard)[:40]!r} must be true or false")
        volume = self._store.managed().get(name)
        if volume is not None:
            self._write_back(volume)
        with self._operation(name, "volume-delete"):
            volume = self._store.managed().get(name)
            if volume is None:
                return {}
            self._leave(volume, discard=discard)
            self._store.unmanage(name)
        self._settle()
        return {}

    def _known(self, name: str) -> ManagedVolume:
        volume = self._store.managed().get(name)
        if volume is None:
            raise NotHere(f"volume {name} is not managed by this host")
        return volume

    def _check_owner(self, wanted: ManagedVolume) -> None:
        """Refuse a device that belongs to another volume."""
        for other in self._store.managed().values():
            if other.id != wanted.id and wanted.device == other.device:
                raise PoolError(f"{wanted.device} is the device of volume {other.id}: delete that "
                                "volume first")
            if other.id != wanted.id and wanted.identity == other.identity:
                raise PoolError(f"{wanted.device} is the device of volume {other.id}, which names "
                                f"it {other.device}: delete that volume first")

    def _new_tag(self, dm: Dm, info: Info, name: str) -> int | None:
        """Return the tag number of a volume; None: it is in the store already."""
        mapping = pools.mapping_of(dm, info)
        kind, _, number = mapping.scope.partition(" ") if mapping else ("", "", "")
        with self._store.allocating:
            row = self._store.disks().get(DiskId(name, VOLUME_TARGET))
            if kind == "volume":
                # A store that was lost does not know the number.
                return None if row is not None and row.tag == int(number) else int(number)
            if row is not None:
                return None
            taken = self._store.numbers()
            with contextlib.suppress(NetlinkError), self._kernel() as client:
                taken |= {tag.id for tag in client.tags()}
            try:
                return tags.allocate(self._store.last_tag(), taken)
            except tags.TagsExhausted as error:
                raise PoolError(str(error)) from None

    def _attach(self, dm: Dm, volume: ManagedVolume) -> None:
        """Give a device the table that its record wants; what it has already stays."""
        scope = f"volume {self._store.disks()[DiskId(volume.id, VOLUME_TARGET)].tag}"
        cached = _specs(volume).mode in _CACHED
        info = attach.tidy(dm, pools.find(dm, volume.device))
        mapping = pools.mapping_of(dm, info)
        held = self._store.holds(pools.identity(info))
        if held is not None and not (cached and held[0] == volume.pool):
            # The pool may have newer data than the device.
            if mapping is None or mapping.pool is None:
                attach.attach(dm, self._store, volume.device, held[0], scope=scope)
            attach.detach(dm, self._store, volume.device, LOG.info)
            mapping = None
        if cached:
            attach.attach(dm, self._store, volume.device, volume.pool, scope=scope)
        elif mapping is None:
            attach.isolate(dm, volume.device, scope)

    def _restored(self, dm: Dm, wanted: ManagedVolume, before: ManagedVolume | None) -> None:
        """Return to the record before a put that failed."""
        if before is not None:
            self._store.manage(dataclasses.replace(before, identity=wanted.identity))
            return
        with contextlib.suppress(PoolError, DmError):
            info = pools.find(dm, wanted.device)
            mapping = pools.mapping_of(dm, info)
            if mapping is not None and mapping.pool is not None:
                return  # it has a cache, whose record must stay
        self._store.unmanage(wanted.id)

    def _write_back(self, volume: ManagedVolume) -> None:
        """Write back most of a volume's dirty data, while other volumes may be changed."""
        with contextlib.suppress(PoolError, DmError), self._mapper() as dm:
            info = pools.find(dm, volume.device)
            mapping = pools.mapping_of(dm, info)
            cache = pools.cache_state(dm, info) if mapping is not None and mapping.pool else None
            if cache is not None and cache.state not in pools.FAILED:
                attach.drain(dm, info, LOG.info)

    def _leave(self, volume: ManagedVolume, *, discard: bool = False) -> None:
        """Remove the cache of a volume.

        :param discard: discard what the pool has of a device that no longer exists
        :raises PoolError: if the device does not exist, and the pool may have its data
        """
        if volume.state is VolumeState.DRAINED:
            return
        self._store.manage(dataclasses.replace(volume, state=VolumeState.LEAVING))
        with self._mapper() as dm:
            try:
                info = pools.find(dm, volume.device)
            except PoolError:
                held = self._store.holds(volume.identity)
                if held is not None and not discard:
                    raise PoolError(
                        f"{volume.device} does not exist, and pool {held[0]} may have its data: "
                        "activate the device") from None
                self._discard(dm, volume)
            else:
                self._detach(dm, volume, info)
        self._store.manage(dataclasses.replace(volume, state=VolumeState.DRAINED))

    def _detach(self, dm: Dm, volume: ManagedVolume, info: Info) -> None:
        """Remove the cache of a device, which may be without it since a restart of the host."""
        if pools.mapping_of(dm, attach.tidy(dm, info)) is None:
            if self._store.holds(pools.identity(info)) is None:
                return
            # The pool may have newer data than the device.
            self._attach(dm, volume)
        if pools.mapping_of(dm, pools.find(dm, volume.device)) is not None:
            attach.detach(dm, self._store, volume.device, LOG.info)

    def _discard(self, dm: Dm, volume: ManagedVolume) -> None:
        """Discard what a pool has of a device that no longer exists."""
        held = self._store.holds(volume.identity)
        if held is not None:
            LOG.warning("volume %s: %s no longer exists, its data in pool %s is discarded",
                        volume.id, volume.device, held[0])
            pools.drop(dm, self._store, *held, force=True)

    def _described(self, volume: ManagedVolume) -> dict[str, Any]:
        row = self._store.disks().get(DiskId(volume.id, VOLUME_TARGET))
        found: dict[str, Any] = {
            "id": volume.id, "device": volume.device, "pool": volume.pool or None,
            "specs": json.loads(volume.specs), "state": str(volume.state),
            "tag": row.tag if row else None, "problem": self._problems.get(volume.id, ""),
            "mode": None, "cache_state": None, "dirty_bytes": None}
        with contextlib.suppress(PoolError, DmError), self._mapper() as dm:
            info = pools.find(dm, volume.device)
            mapping = pools.mapping_of(dm, info)
            cache = pools.cache_state(dm, info) if mapping is not None else None
            found |= {"mode": str(_specs(volume).mode) if mapping is not None else "none",
                      "cache_state": cache.state if cache else None,
                      "dirty_bytes": cache.dirty if cache else 0}
        return found

    @contextlib.contextmanager
    def _operation(self, name: str, what: str) -> Iterator[None]:
        """Serialize what changes devices, also with the commands; translate errors.

        :param what: name of the operation, for those who wait for it
        """
        try:
            with device_lock.held(self._file, f"vcache-agent, {what} of volume {name}", _PATIENCE):
                yield
        except (PoolError, DmError) as error:
            text = str(error.strerror if isinstance(error, DmError) else error)
            self._problems[name] = text
            raise AdminError(f"volume {name}: {text}") from None
        except device_lock.Busy as error:
            raise Unfinished(f"volume {name}: nothing is changed: {error}") from None
        except sqlite3.DatabaseError as error:
            if not is_refusal(error):
                with contextlib.suppress(AdminError):
                    self._settle()  # a pass replaces a damaged file
            raise Unfinished(f"volume {name}: the agent's state file: {error}") from None
        self._problems.pop(name, None)

    def _restore(self) -> None:
        """Continue what was begun, until all devices and pools are there."""
        while not self._stopping.is_set():
            try:
                left = [volume for volume in self._store.managed().values()
                        if volume.state is not VolumeState.DRAINED]
                # Volumes in order of their id, so that the log can be compared.
                pending = [volume.id for volume in sorted(left, key=lambda one: one.id)
                           if not self._continued(volume.id)]
            except sqlite3.DatabaseError as error:
                LOG.error("volumes: the agent's state file: %s; trying again", error)
                pending = ["unknown"]
            if not pending or self._stopping.wait(_AGAIN):
                return

    def _continued(self, name: str) -> bool:
        """Continue with one volume; return False if that has to be tried again."""
        before = self._problems.get(name)
        try:
            with self._operation(name, "restart"), self._mapper() as dm:
                volume = self._store.managed().get(name)
                if volume is None or volume.state is VolumeState.DRAINED:
                    return True
                if volume.state is VolumeState.LEAVING:
                    self._leave(volume)
                else:
                    self._attach(dm, volume)
            self._settle()
        except AdminError as error:
            if str(error) != f"volume {name}: {before}":
                LOG.warning("%s; trying again", error)
            return False
        LOG.info("volume %s is %s again", name, volume.state)
        return True


def _id(fields: Mapping[str, Any]) -> str:
    name = fields.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise AdminError(f"id {str(name)[:40]!r} must be the UUID of a volume, in lower case")
    return name


def _wanted(fields: Mapping[str, Any]) -> ManagedVolume:
    """Return the record that a request describes, without the identity of the device.

    :raises AdminError: names the field that is not valid
    """
    name, device, pool = _id(fields), fields.get("device"), fields.get("pool")
    if not isinstance(device, str) or not _DEVICE.fullmatch(device) or ".." in device:
        raise AdminError(f"device {str(device)[:40]!r} must be the path of a mapped device below "
                         "/dev")
    if pool is not None and (not isinstance(pool, str) or not pool or len(pool) > 127):
        raise AdminError(f"pool {str(pool)[:40]!r} must be the name of a pool, or null")
    specs = fields.get("specs")
    if not isinstance(specs, dict):
        raise AdminError(f"specs {str(specs)[:40]!r} must be an object")
    given = {key: text for key, text in specs.items() if key.startswith(extra_specs.PREFIX)}
    try:
        mode = extra_specs.parse(given).mode
    except InvalidExtraSpecs as error:
        raise AdminError(f"specs: {error}") from None
    if mode is Mode.NONE:
        raise AdminError("specs: vcache:mode 'none' is not allowed, must be writeback, "
                         "writethrough or flush-only; volume-delete removes a cache")
    if mode in _CACHED and pool is None:
        raise AdminError(f"specs: vcache:mode {mode} needs a pool")
    return ManagedVolume(name, device, "", pool or "", json.dumps(given, sort_keys=True),
                         VolumeState.ATTACHED)


def _specs(volume: ManagedVolume) -> ExtraSpecs:
    return extra_specs.parse(json.loads(volume.specs))
