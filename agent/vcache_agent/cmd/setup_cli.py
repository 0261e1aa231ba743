# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache setup``: what ``/etc/vcache/setup.conf`` describes.

systemd runs ``start`` and ``stop``; ``check`` is for people.
"""

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcache_agent.boot import restore, setup_file, stopping
from vcache_agent.boot.setup_file import AttachLine, SetupError, SetupFile, VssdLine
from vcache_agent.boot.stable import fstab_mounts, is_stable
from vcache_agent.cmd import pool_cli
from vcache_agent.dm import block_number
from vcache_agent.netlink.errors import ModuleNotLoaded
from vcache_agent.pools import PoolError

# Seconds to wait for another command that changes devices.
_LOCK_S = 300.0


def add_commands(commands: Any) -> None:
    """Add the commands to those of ``vcache``."""
    setup = commands.add_parser(
        "setup", help="check or apply the file that describes pools, devices and elastic SSDs")
    found = setup.add_subparsers(required=True, metavar="COMMAND")
    command = found.add_parser(
        "check", help="check the file",
        description="Check the file of pools, devices and elastic SSDs. Errors and warnings have "
                    "the form FILE:LINE: TEXT. The exit status is 1 if there is an error.")
    _add_file(command)
    command.set_defaults(run=_check)
    command = found.add_parser(
        "start", help="set up what the file describes",
        description="Set up pools, devices and elastic SSDs as the file describes them, and wait "
                    "for devices that are missing. Without a name: all of them. systemd does this "
                    "at boot.")
    command.add_argument("name", nargs="*", metavar="POOL|DEVICE|VSSD")
    command.add_argument("--without-cache", action="store_true",
                         help="set up the named devices without their caches; data that only the "
                              "cache has is lost")
    _add_file(command)
    pool_cli.add_state(command)
    command.set_defaults(run=_start, usage=command.error)
    command = found.add_parser(
        "stop", help="stop all pools, attached devices and elastic SSDs that are not in use",
        description="Write a checkpoint to each pool: remove the attached devices and elastic "
                    "SSDs that are not in use, then the pools. systemd does this when the host "
                    "stops. The file stays as it is.")
    command.add_argument("--drain", type=float, default=stopping.DRAIN_S, metavar="SECONDS",
                         help="destage dirty data for so long (%(default)s)")
    command.add_argument("--wait", type=float, default=0.0, metavar="SECONDS",
                         help="wait so long until devices are no longer in use (%(default)s)")
    pool_cli.add_state(command)
    command.set_defaults(run=_stop)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("--setup", type=Path, default=setup_file.PATH, metavar="PATH",
                         help="the file (%(default)s)")


def _check(arguments: argparse.Namespace) -> int:
    setup = SetupFile(arguments.setup)
    for problem in setup.problems:
        print(problem)
    for number, text in _warnings(setup):
        print(f"{setup.path}:{number}: warning: {text}")
    if setup.problems:
        return 1
    print(f"{setup.path}: {len(setup.pools())} pools, {len(setup.attached())} devices, "
          f"{len(setup.vssds())} elastic SSDs")
    return 0


def _warnings(setup: SetupFile) -> Iterator[tuple[int, str]]:
    for entry in setup.entries:
        if isinstance(entry.value, VssdLine):
            continue
        path = entry.value.device
        if block_number(path) is None:
            yield entry.number, f"there is no block device {path} now"
        elif not is_stable(path):
            yield entry.number, (f"the name {path} may belong to another device after a restart; "
                                 "use one below /dev/disk/by-id")
    for device in setup.attached():
        mounted = fstab_mounts(device.value.device)
        for path, nofail in mounted:
            if path not in device.value.mounts:
                yield device.number, (f"/etc/fstab mounts this device at {path}: add mount={path}, "
                                      "so that this mount waits for it and fails with it")
            if not nofail:
                yield device.number, (f"the mount at {path} has no option nofail in /etc/fstab: if "
                                      "it fails, this host starts in emergency mode")


def _start(arguments: argparse.Namespace) -> int:
    setup = SetupFile(arguments.setup)
    for problem in setup.problems:
        print(f"vcache: {problem}; the line is ignored", file=sys.stderr)
    lines = list(_selected(setup, arguments.name))
    if arguments.without_cache and not (arguments.name and all(
            isinstance(line, AttachLine) for line in lines)):
        arguments.usage("--without-cache needs the names of devices")
    failed = False
    with pool_cli.mapper() as dm:
        store = functools.partial(pool_cli.locked_store, arguments.state, _LOCK_S)
        devices = restore.Devices(dm, arguments.state, store, _warn)
        for line in lines:
            try:
                if isinstance(line, AttachLine):
                    pool_cli.say(devices.start(line, without_cache=arguments.without_cache))
                elif isinstance(line, VssdLine):
                    pool_cli.say(restore.start_vssd(dm, store, line))
                else:
                    pool_cli.say(restore.start_pool(dm, line))
            except PoolError as error:
                _warn(f"vcache: {error}")
                failed = True
    return 1 if failed else 0


def _selected(setup: SetupFile, names: list[str]) -> Iterator[setup_file.Line]:
    """Return the lines that names select, pools first.

    :raises SetupError: if there is none for a name
    """
    lines: list[setup_file.Line] = [entry.value for entry in setup.pools()]
    lines += [entry.value for entry in setup.attached()]
    lines += [entry.value for entry in setup.vssds()]
    if not names:
        yield from lines
    for name in names:
        same = [line for line in lines if _is_named(line, name)]
        if not same:
            raise SetupError(f"{setup.path}: there is no line of a pool, device or "
                             f"elastic SSD {name}")
        yield from same


def _is_named(line: setup_file.Line, name: str) -> bool:
    if not isinstance(line, AttachLine):
        return line.name == name
    return line.device == name or ("/" in name and
                                   os.path.realpath(line.device) == os.path.realpath(name))


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _stop(arguments: argparse.Namespace) -> None:
    with contextlib.suppress(ModuleNotLoaded), pool_cli.mapper() as dm:
        stopping.stop(dm, arguments.state, pool_cli.say, arguments.drain, arguments.wait)

