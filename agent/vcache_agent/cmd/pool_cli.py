# SPDX-License-Identifier: Apache-2.0
"""The commands of ``vcache`` about pools, and the devices that use them.

They work on device mapper themselves, as root, whether the agent runs or not.
"""

import argparse
import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcache_agent import attach, pools, tables
from vcache_agent.dm import Dm
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import ModuleNotLoaded
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

_MODULE = Path("/sys/module/dm_vcache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_commands(commands: Any) -> None:
    """Add the commands to those of ``vcache``."""
    pool = commands.add_parser("pool", help="pools on cache devices")
    pool_commands = pool.add_subparsers(required=True, metavar="COMMAND")
    command = pool_commands.add_parser(
        "create", help="make a pool on a cache device, or find the one that is on it",
        description="Make a pool on a cache device that begins with 4 KiB of zeroes, or put the "
                    "one that is on it in use. Needed again after each start of the host.")
    command.add_argument("name", metavar="NAME")
    command.add_argument("device", metavar="DEVICE", help="an SSD, a partition, a volume")
    command.add_argument("--chunk-kib", type=_chunk, metavar="N",
                         help="unit of the cache, a power of two from 64 to 16384 (1024)")
    _add_percents(command)
    _add_lanes(command)
    command.set_defaults(run=_create)
    command = pool_commands.add_parser(
        "set", help="change a pool in use",
        description="Change a pool in use. It lasts until the pool is removed, or the host "
                    "stops: give 'pool create' the same then.")
    command.add_argument("name", metavar="NAME")
    _add_percents(command)
    command.set_defaults(run=_set, usage=command.error)
    command = pool_commands.add_parser(
        "resize", help="use more or less of the cache device",
        description="Use more or less of the cache device, while the pool is in use: make the "
                    "device larger first, or smaller afterwards. A pool grows to four times the "
                    "size that it was made with, and shrinks to a quarter of it. To shrink it "
                    "takes as long as what is dirty there takes to its origins; interrupted, "
                    "it goes on by itself.")
    command.add_argument("name", metavar="NAME")
    command.add_argument("size", type=_size, nargs="?", metavar="SIZE",
                         help="bytes of the device, or with K, M, G, T (all of it)")
    command.add_argument("--no-wait", action="store_true", help="return at once")
    command.set_defaults(run=_resize)
    command = pool_commands.add_parser("list", help="the pools, and who uses them")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=_list)
    command = pool_commands.add_parser(
        "remove", help="take a pool out of use; its cache device keeps what it has")
    command.add_argument("name", metavar="NAME")
    command.set_defaults(run=_remove)
    command = pool_commands.add_parser(
        "drop", help="forget what a pool has of a volume that no device uses")
    command.add_argument("name", metavar="NAME")
    command.add_argument("volume", type=_volume, metavar="VOLUME")
    command.add_argument("--force", action="store_true",
                         help="also what is only in the cache")
    _add_state(command)
    command.set_defaults(run=_drop)
    _add_attach(commands)
    command = commands.add_parser(
        "detach", help="take the cache of a device away, when all is on its origin",
        description="Write everything to the origin, take the cache away and put the device's "
                    "own table back. It may be in use. Can be interrupted and called again.")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("--force", action="store_true",
                         help="give up what only a cache has that has failed")
    _add_state(command)
    command.set_defaults(run=_detach)
    command = commands.add_parser("mode", help="change the mode of a device that has a cache")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("mode", choices=attach.CACHED, metavar="|".join(attach.CACHED))
    _add_state(command)
    command.set_defaults(run=_mode)


def _add_percents(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reads-percent", type=_percent, metavar="N",
                         help="what was read goes first where it is more than this of what a "
                              "disk has in the pool, 0 to 100 (75)")
    command.add_argument("--hot-percent", type=_percent, metavar="N",
                         help="where more than this of what a disk has in shared lanes is hot, "
                              "it changes places with what is cold in its own, 0 to 100 (20); "
                              "100: never")


def _percents(arguments: argparse.Namespace) -> dict[str, int]:
    given = {key: getattr(arguments, key) for key in pools.TUNABLE}
    return {key: value for key, value in given.items() if value is not None}


def _add_lanes(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    group.add_argument("--lanes", type=_lanes, metavar="N",
                       help="so many parts of the device, of a size, that do not disturb each "
                            "other, 1 to 64; an instance may have one for itself (1)")
    group.add_argument("--lane", dest="lanes", type=_size, action="append", metavar="SIZE",
                       help="the next part of the device, in bytes or with K, M, G, T; may be "
                            "given up to 63 times, what is left is one more")


def _lanes(text: str) -> int:
    return _number(text, 1, pools.LANES_MAX)


def _add_attach(commands: Any) -> None:
    command = commands.add_parser(
        "attach", help="put a cache under a mapped device, which may be in use",
        description="Make a mapped device, such as a logical volume, a volume of a pool. Its path "
                    "stays the same and it may be in use: its table moves to a second device, "
                    "which becomes the origin. A vcache device in mode flush-only gets a cache "
                    "as it is.")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("--pool", required=True, metavar="NAME")
    command.add_argument("--mode", choices=attach.CACHED, default="writeback",
                         help="(%(default)s)")
    command.add_argument("--volume", type=_volume, metavar="N",
                         help="number in the pool (the one it had, or the lowest free one)")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--tag", type=_tag, metavar="N", help="all of it is one virtual disk's")
    group.add_argument("--filesystem", action="store_true",
                       help="it has a file system with disk images")
    command.add_argument("--recover", action="store_true",
                         help="what the pool has of volume N is this device's data")
    _add_state(command)
    command.set_defaults(run=_attach)


def _add_state(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state", type=Path, default=Path("/var/lib/vcache/agent.sqlite"),
                         metavar="PATH", help="the agent's state_path (%(default)s)")


def _number(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:11]) <= high:
        raise argparse.ArgumentTypeError(f"{text!r}: must be an integer from {low} to {high}")
    return int(text)


def _volume(text: str) -> int:
    return _number(text, 1, pools.VOLUME_MAX)


def _tag(text: str) -> int:
    return _number(text, 1, spec.TAG_MAX)


def _chunk(text: str) -> int:
    found = _number(text, *pools.CHUNK_KIB)
    if found & (found - 1):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a power of two from 64 to 16384")
    return found


def _size(text: str) -> int:
    digits, factor = text, 1
    if text[-1:] in tuple(_UNITS):
        digits, factor = text[:-1], _UNITS[text[-1]]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 16 or \
            not 0 < int(digits) * factor < 1 << 63:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a number of bytes, or one with K, M, G or T (times 1024)")
    return int(digits) * factor


def _percent(text: str) -> int:
    return _number(text, *pools.PERCENT)


@contextlib.contextmanager
def _mapper() -> Iterator[Dm]:
    """Connect to device mapper, if the target is there."""
    if not _MODULE.is_dir():
        raise ModuleNotLoaded(errno.ENOENT, "the kernel has no target 'vcache': load the module "
                              "dm-vcache (modprobe dm-vcache)")
    with Dm() as dm:
        yield dm


@contextlib.contextmanager
def _store(path: Path) -> Iterator[Store]:
    """Open the state, for the only one of these commands that runs."""
    store = Store(path)
    fd = os.open(path.with_suffix(".attach"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PoolError("another attach, detach or mode runs; wait for its end") from None
        yield store
    finally:
        os.close(fd)
        store.close()


def _say(text: str) -> None:
    print(text, flush=True)


def _create(arguments: argparse.Namespace) -> None:
    with _mapper() as dm:
        _say(pools.create(dm, arguments.name, arguments.device, arguments.chunk_kib,
                          _percents(arguments), arguments.lanes or ()))


def _set(arguments: argparse.Namespace) -> None:
    percents = _percents(arguments)
    if not percents:
        arguments.usage("give --reads-percent, --hot-percent, or both")
    with _mapper() as dm:
        _say(pools.tune(dm, arguments.name, percents))


def _resize(arguments: argparse.Namespace) -> None:
    with _mapper() as dm:
        _say(pools.resize(dm, arguments.name, arguments.size, _say,
                          wait=not arguments.no_wait))


def _remove(arguments: argparse.Namespace) -> None:
    with _mapper() as dm:
        _say(pools.remove(dm, arguments.name))


def _drop(arguments: argparse.Namespace) -> None:
    with _mapper() as dm, _store(arguments.state) as store:
        _say(pools.drop(dm, store, arguments.name, arguments.volume, force=arguments.force))


def _attach(arguments: argparse.Namespace) -> None:
    scope = "filesystem" if arguments.filesystem else None
    if arguments.tag is not None:
        scope = f"volume {arguments.tag}"
    with _mapper() as dm, _store(arguments.state) as store:
        _say(attach.attach(dm, store, arguments.device, arguments.pool, mode=arguments.mode,
                           volume=arguments.volume, scope=scope, recover=arguments.recover))


def _detach(arguments: argparse.Namespace) -> None:
    with _mapper() as dm, _store(arguments.state) as store:
        _say(attach.detach(dm, store, arguments.device, _say, force=arguments.force))


def _mode(arguments: argparse.Namespace) -> None:
    with _mapper() as dm, _store(arguments.state):
        _say(attach.change_mode(dm, arguments.device, arguments.mode, _say))


def _list(arguments: argparse.Namespace) -> None:
    with _mapper() as dm:
        rows = [pools.row(pool, pools.members(dm, pool)) for pool in pools.pools(dm)]
    print(json.dumps({"pools": rows}, indent=2) if arguments.json else tables.pools(rows))
