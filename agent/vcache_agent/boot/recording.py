# SPDX-License-Identifier: Apache-2.0
"""Record in ``setup.conf`` what the commands set up, so that it is there after a restart."""

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

from vcache_agent import attach, pools
from vcache_agent.boot.setup_file import (
    NO_POOL,
    AttachLine,
    Line,
    PoolLine,
    SetupError,
    SetupFile,
    VssdLine,
)
from vcache_agent.boot.stable import fstab_mounts, stable_name
from vcache_agent.dm import Dm, Info, block_number
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import Lanes

_SYSTEMD = Path("/run/systemd/system")


class Recorder:
    """Records changes in a file.

    :param path: the file; None: record nothing
    :param say: called with a warning if the file cannot be written
    """

    def __init__(self, path: Path | None, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say

    def _change(self, change: Callable[[SetupFile], bool]) -> None:
        """Change the file, and tell systemd.

        What the command has done is not undone if that fails: it works until the next restart.
        """
        if self._path is None:
            return
        try:
            changed = change(SetupFile(self._path))
        except SetupError as error:
            self._say(f"WARNING: {error}; this is not set up again after a restart of the host")
            return
        if changed and _SYSTEMD.is_dir():
            subprocess.run(["systemctl", "daemon-reload"], check=False,
                           stderr=subprocess.DEVNULL)

    def pool(self, name: str, device: str, lanes: Lanes, percents: dict[str, int]) -> None:
        """Record a pool that was created or activated."""
        if "/" not in device:
            device = f"/dev/mapper/{device}"
        line = PoolLine(name, stable_name(device),
                        lanes if isinstance(lanes, int) else tuple(lanes),
                        tuple(percents.items()))

        def change(setup: SetupFile) -> bool:
            old = next((entry.value for entry in setup.pools() if entry.value.name == name), None)
            return setup.put(dataclasses.replace(line, timeout=old.timeout) if old else line,
                             lambda other: isinstance(other, PoolLine) and other.name == name)

        self._change(change)

    def percents(self, name: str, percents: dict[str, int]) -> None:
        """Record changed options of a pool, if the file has the pool."""
        def change(setup: SetupFile) -> bool:
            old = next((entry.value for entry in setup.pools() if entry.value.name == name), None)
            if old is None:
                return False
            merged = tuple({**dict(old.percents), **percents}.items())
            return setup.put(dataclasses.replace(old, percents=merged),
                             lambda other: other == old)

        self._change(change)

    def pool_removed(self, name: str) -> None:
        """Remove a pool from the file."""
        self._change(lambda setup: setup.remove(
            lambda other: isinstance(other, PoolLine) and other.name == name))

    def device(self, dm: Dm, device: str, *, above: bool) -> None:
        """Record a device as it is attached now.

        :param device: path or name of the device; with `above`, of the one below the cache
        """
        if self._path is None:
            return
        info = dm.info(_above_name(dm, device)) if above else pools.find(dm, device)
        mapping = pools.mapping_of(dm, info) if info else None
        if info is None or mapping is None:
            return
        lower = f"/dev/mapper/{info.name}"
        if above:
            lower = device if "/" in device else f"/dev/mapper/{device}"
        pool = dm.info(mapping.pool) if mapping.pool else None
        path = stable_name(lower)
        line = AttachLine(path, pool.name if pool else NO_POOL, mapping.scope, mapping.mode,
                          above, tuple(mount.path for mount in
                                       fstab_mounts(f"/dev/mapper/{info.name}")))
        numbers = {block_number(lower)}

        def change(setup: SetupFile) -> bool:
            same = _same(numbers)
            old = next((entry.value for entry in setup.attached() if same(entry.value)), None)
            if old is None:
                return setup.put(line, same)
            mounts = tuple(dict.fromkeys((*old.mounts, *line.mounts)))
            return setup.put(dataclasses.replace(
                line, device=old.device, mounts=mounts, timeout=old.timeout), same)

        self._change(change)

    def device_removed(self, numbers: set[DeviceNumber | None]) -> None:
        """Remove the line of a device from the file.

        :param numbers: the device, and the origin below it
        """
        self._change(lambda setup: setup.remove(_same(numbers)))

    def vssd(self, line: VssdLine) -> None:
        """Record an elastic SSD."""
        self._change(lambda setup: setup.put(line, _is_vssd(line.name)))

    def vssd_size(self, name: str, size: int) -> None:
        """Record another size of an elastic SSD, if the file has it."""
        def change(setup: SetupFile) -> bool:
            old = next((entry.value for entry in setup.vssds() if entry.value.name == name), None)
            return old is not None and setup.put(dataclasses.replace(old, size=size),
                                                 _is_vssd(name))

        self._change(change)

    def vssd_removed(self, name: str) -> None:
        """Remove an elastic SSD from the file."""
        self._change(lambda setup: setup.remove(_is_vssd(name)))


def _is_vssd(name: str) -> Callable[[Line], bool]:
    return lambda other: isinstance(other, VssdLine) and other.name == name


def numbers_of(dm: Dm, info: Info) -> set[DeviceNumber | None]:
    """Return the numbers of devices that the line of an attached device may name."""
    mapping = pools.mapping_of(dm, info)
    above = mapping is not None and info.uuid.startswith(attach.ABOVE_UUID)
    return {info.number, *([mapping.origin] if mapping and above else [])}


def _above_name(dm: Dm, device: str) -> str | DeviceNumber:
    """Return the device above another one."""
    number = block_number(device if "/" in device else f"/dev/mapper/{device}")
    for member in pools.devices(dm):
        mapping = pools.mapping_of(dm, member)
        if mapping and member.uuid.startswith(attach.ABOVE_UUID) and mapping.origin == number:
            return member.number
    return device


def _same(numbers: set[DeviceNumber | None]) -> Callable[[Line], bool]:
    wanted = numbers - {None}

    def same(line: Line) -> bool:
        return isinstance(line, AttachLine) and block_number(line.device) in wanted

    return same
