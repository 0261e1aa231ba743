# SPDX-License-Identifier: Apache-2.0
"""Replace the kernel module while the devices that use it are in use.

A module cannot be unloaded as long as a table uses it. So each device is detached and gets
a linear table on its origin, the pools are removed, and the module is replaced. Then all
tables are restored. Dirty data is written to the origins first, while the devices are still
cached. I/O continues all the time, except for the duration of a suspend and resume for each
of the two changes of a table. The caches are empty afterwards, since writes went past them.

The tables are saved in a file before the first change. If the command is killed, the next
call begins again with this file. If a step before the replacement fails, everything is restored
under the old module.
"""

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from vcache_agent import attach, pools
from vcache_agent.dm import Dm, DmError, Line
from vcache_agent.pools import Mapping, PoolError
from vcache_agent.store import Store

MODULE = "dm_vcache"
_VERSION = 1
_SECONDS = 120

Say = Callable[[str], None]


class Module(Protocol):
    """Loads and unloads the kernel module."""

    def loaded(self) -> bool:
        """Tell whether it is loaded."""

    def unload(self) -> None:
        """Unload it.

        :raises PoolError: if the kernel refuses
        """

    def load(self) -> None:
        """Load it.

        :raises PoolError: if the kernel refuses
        """


@dataclasses.dataclass(frozen=True)
class KernelModule:
    """The module, loaded and unloaded by kmod's commands.

    :param file: the file to load; None: what modprobe finds
    """

    file: Path | None = None

    def loaded(self) -> bool:
        """Tell whether it is loaded."""
        return (Path("/sys/module") / MODULE).is_dir()

    def unload(self) -> None:
        """Unload it."""
        _run("rmmod", MODULE)

    def load(self) -> None:
        """Load it."""
        if self.file is None:
            _run("modprobe", "dm-vcache")
        else:
            _run("insmod", str(self.file))


@dataclasses.dataclass(frozen=True)
class _Pool:
    """A pool to restore.

    :param options: values of :data:`pools.TUNABLE`
    """

    name: str
    uuid: str
    table: Line
    options: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Device:
    """A device to restore.

    :param table: its table line of the target
    :param pool: name of its pool; empty: none
    :param below: it is attached, and its own table is that of its origin device
    """

    name: str
    table: Line
    pool: str
    below: bool


@dataclasses.dataclass(frozen=True)
class _Saved:
    """What to restore."""

    pools: tuple[_Pool, ...]
    devices: tuple[_Device, ...]


def replace(dm: Dm, store: Store, module: Module, saved_in: Path, say: Say) -> str:
    """Replace the module. Return a message.

    :param saved_in: file for the tables, which exists while this is not complete
    :param say: called with progress messages
    :raises PoolError: if that is not possible; the text says what the devices use now
    """
    saved = _read(saved_in)
    if saved is None:
        saved = _save(dm)
        _write(saved_in, saved)
    else:
        say(f"continuing an interrupted replacement ({saved_in})")
    _take_down(dm, store, module, saved, saved_in, say)
    _load(module, saved)
    _bring_back(dm, store, saved, say)
    saved_in.unlink()
    return (f"the module is replaced: {len(saved.pools)} pools and {len(saved.devices)} devices "
            "use the new one")


def _save(dm: Dm) -> _Saved:
    """Return the tables of all pools and devices.

    :raises PoolError: if one of them cannot be replaced; nothing has changed then
    """
    found = pools.pools(dm)
    names = {pool.info.number: pool.info.name for pool in found}
    for pool in found:
        if pool.state != "ok":
            raise PoolError(f"pool {pool.info.name} is in state {pool.state}, must be in state ok")
        if pool.leaving:
            raise PoolError(f"pool {pool.info.name} is being resized: wait until it has its new "
                            "size")
    devices = []
    for info in pools.devices(dm):
        mapping = pools.mapping_of(dm, info)
        if mapping is None:
            continue
        cache = pools.cache_state(dm, info)
        if cache is not None and cache.state in pools.FAILED:
            raise PoolError(f"the cache of {info.name} has failed: detach it first")
        devices.append(_Device(info.name, mapping.line(),
                               names[mapping.pool] if mapping.pool else "",
                               attach.origin_of(dm, mapping) is not None))
    return _Saved(tuple(_Pool(pool.info.name, pool.info.uuid, dm.table(pool.info.name)[0],
                              {key: value for key in pools.TUNABLE
                               if (value := getattr(pool, key)) is not None})
                        for pool in found), tuple(devices))


def _take_down(dm: Dm, store: Store, module: Module, saved: _Saved, saved_in: Path,
               say: Say) -> None:
    """Remove all tables of the module, and unload it; restore them if that fails."""
    if not module.loaded():
        return
    try:
        for device in saved.devices:
            _bypass(dm, store, device, say)
        for pool in saved.pools:
            _discard_inactive(dm, pool)
            if dm.info(pool.name) is not None:
                pools.remove(dm, pool.name)
        module.unload()
    except (PoolError, DmError) as error:
        text = str(error) if isinstance(error, PoolError) else str(error.strerror)
        try:
            _bring_back(dm, store, saved, say)
        except (PoolError, DmError) as second:
            raise PoolError(f"{text}; restoring the caches also failed: {second}; run the command "
                            "again") from None
        saved_in.unlink()
        raise PoolError(f"the module is not replaced, the devices are as before: {text}") from None


def _discard_inactive(dm: Dm, pool: _Pool) -> None:
    """Remove a pool without an active table, which a killed call has left."""
    info = dm.info(pool.name)
    if info is not None and not info.active:
        dm.remove(pool.name)


def _bypass(dm: Dm, store: Store, device: _Device, say: Say) -> None:
    """Give a device a table without the module."""
    info = dm.info(device.name)
    if info is None:
        return
    mapping = pools.mapping_of(dm, attach.tidy(dm, info))
    if mapping is None:
        return
    if mapping.pool is not None or device.below:
        attach.detach(dm, store, device.name, say, keep=True)
    mapping = _mapping(dm, device)
    if mapping is not None:
        attach.set_table(dm, device.name, mapping.bypass())
    say(f"{device.name} continues without its cache")


def _load(module: Module, saved: _Saved) -> None:
    """Load the new module."""
    try:
        module.load()
    except PoolError as error:
        names = ", ".join(device.name for device in saved.devices) or "none"
        raise PoolError(f"{error}; devices that continue without their cache: {names}; install a "
                        "module that loads, and run the command again") from None


def _bring_back(dm: Dm, store: Store, saved: _Saved, say: Say) -> None:
    """Restore the pools and the tables of all devices."""
    for pool in saved.pools:
        _discard_inactive(dm, pool)
        if dm.info(pool.name) is None:
            dm.create(pool.name, pool.uuid)
            dm.load(pool.name, [pool.table])
            dm.resume(pool.name)
        pools.tune(dm, pool.name, pool.options)
    for device in saved.devices:
        if dm.info(device.name) is None:
            say(f"{device.name} no longer exists")
            continue
        _restore(dm, store, device)
        say(f"{device.name} has its cache again" if device.pool else f"{device.name} is restored")


def _restore(dm: Dm, store: Store, device: _Device) -> None:
    wanted = Mapping.parse(device.table)
    mapping = _mapping(dm, device)
    if mapping is None and not device.below:
        attach.set_table(dm, device.name, (wanted.plain() if device.pool else wanted).line())
        mapping = wanted.plain()
    if device.pool and (mapping is None or mapping.pool is None):
        attach.attach(dm, store, device.name, device.pool, mode=wanted.mode, volume=wanted.volume,
                      scope=wanted.scope)


def _mapping(dm: Dm, device: _Device) -> Mapping | None:
    """Return the active table of a device; None: it has another target, or is gone."""
    info = dm.info(device.name)
    return pools.mapping_of(dm, info) if info is not None else None


def _read(path: Path) -> _Saved | None:
    """Read a saved state; None: there is none.

    :raises PoolError: if the file is not readable
    """
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != _VERSION:
            raise PoolError(f"{path}: version {found['version']}, must be {_VERSION}: use the "
                            "program that wrote it")
        return _Saved(
            tuple(_Pool(**{**pool, "table": Line(*pool["table"])}) for pool in found["pools"]),
            tuple(_Device(**{**device, "table": Line(*device["table"])})
                  for device in found["devices"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"no entry {error}" if isinstance(error, KeyError) else str(error)
        raise PoolError(f"{path}: {what}; it has the tables of devices that may be without their "
                        "cache now: repair it, or restore them by hand and remove it") from None


def _write(path: Path, saved: _Saved) -> None:
    """Replace the file, durably."""
    fields: dict[str, Any] = {"version": _VERSION, **dataclasses.asdict(saved)}
    new = path.with_suffix(".new")
    try:
        with open(new, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(fields, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise PoolError(f"{path}: {error.strerror}; nothing has changed") from None


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PoolError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise PoolError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
