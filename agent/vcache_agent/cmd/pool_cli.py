# SPDX-License-Identifier: Apache-2.0
"""The commands of ``vcache`` for pools and for the devices that use them.

They use device mapper directly, need root, and do not need a running agent.
"""

import argparse
import contextlib
import errno
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcache_agent import above, attach, device_lock, pools, tables
from vcache_agent.boot import setup_file
from vcache_agent.boot.recording import Recorder, numbers_of
from vcache_agent.dm import Dm
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import ModuleNotLoaded
from vcache_agent.pools import PoolError
from vcache_agent.store import Store
from vcache_agent.vssd import devices

_MODULE = Path("/sys/module/dm_vcache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_commands(commands: Any) -> None:
    """Add the commands to those of ``vcache``."""
    pool = commands.add_parser("pool", help="manage pools on cache devices")
    pool_commands = pool.add_subparsers(required=True, metavar="COMMAND")
    command = pool_commands.add_parser(
        "create", help="create a pool on a cache device, or activate an existing one",
        description="Create a pool on a cache device whose first 4 KiB are zero. If the device "
                    "already has a pool, activate it.")
    command.add_argument("name", metavar="NAME")
    command.add_argument("device", metavar="DEVICE",
                         help="block device, such as an SSD, a partition or a logical volume")
    command.add_argument("--chunk-kib", type=_chunk, metavar="N",
                         help="chunk size of a new pool in KiB, a power of two from 64 to 16384 "
                              "(1024)")
    _add_percents(command)
    _add_lanes(command)
    add_setup(command)
    command.set_defaults(run=_create)
    command = pool_commands.add_parser(
        "set", help="change the options of an active pool",
        description="Change the options of an active pool.")
    command.add_argument("name", metavar="NAME")
    _add_percents(command)
    add_setup(command)
    command.set_defaults(run=_set, usage=command.error)
    command = pool_commands.add_parser(
        "resize", help="grow or shrink an active pool",
        description="Change how much of the cache device an active pool uses. To grow, enlarge "
                    "the device first; to shrink, reduce it afterwards. A pool can grow to four "
                    "times its original size and shrink to a quarter of it. Before a pool "
                    "shrinks, dirty data in the removed part is written to the origins. If the "
                    "command is interrupted, the kernel continues.")
    command.add_argument("name", metavar="NAME")
    command.add_argument("size", type=size, nargs="?", metavar="SIZE",
                         help="new size in bytes, or with suffix K, M, G or T (the whole device)")
    command.add_argument("--no-wait", action="store_true",
                         help="do not wait until the pool has its new size")
    command.set_defaults(run=_resize)
    command = pool_commands.add_parser("list", help="list the pools and the devices that use them")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_list)
    command = pool_commands.add_parser(
        "remove", help="deactivate a pool; the data on its cache device is kept")
    command.add_argument("name", metavar="NAME")
    add_setup(command)
    command.set_defaults(run=_remove)
    command = pool_commands.add_parser(
        "drop", help="discard the cached data of a volume that no device uses")
    command.add_argument("name", metavar="NAME")
    command.add_argument("volume", type=volume, metavar="VOLUME")
    command.add_argument("--force", action="store_true",
                         help="also discard dirty data, which is lost")
    add_state(command)
    command.set_defaults(run=_drop)
    _add_attach(commands)
    command = commands.add_parser(
        "detach", help="write back the cache of a device and remove it",
        description="Write all dirty data to the origin, remove the cache, and restore the "
                    "device's original table. The device may be in use. If the command is "
                    "interrupted, run it again.")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("--force", action="store_true",
                         help="if the cache has failed, discard the data that is only there")
    add_state(command)
    add_setup(command)
    command.set_defaults(run=_detach)
    command = commands.add_parser("mode", help="change the mode of a cached device")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("mode", choices=attach.CACHED, metavar="|".join(attach.CACHED))
    add_state(command)
    add_setup(command)
    command.set_defaults(run=_mode)


def _add_percents(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reads-percent", type=_percent, metavar="N",
                         help="reclaim read chunks of a disk first if they are more than this "
                              "percentage of its chunks, 0 to 100 (75)")
    command.add_argument("--hot-percent", type=_percent, metavar="N",
                         help="if more than this percentage of a disk's data in shared lanes is "
                              "hot, exchange it with colder data in its dedicated lanes, 0 to "
                              "100 (20); 100: never")


def _percents(arguments: argparse.Namespace) -> dict[str, int]:
    given = {key: getattr(arguments, key) for key in pools.TUNABLE}
    return {key: value for key, value in given.items() if value is not None}


def _add_lanes(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    group.add_argument("--lanes", type=_lanes, metavar="N",
                       help="divide the device into N lanes of equal size, 1 to 64; a lane can be "
                            "dedicated to one instance (1)")
    group.add_argument("--lane", dest="lanes", type=size, action="append", metavar="SIZE",
                       help="size of the next lane in bytes, or with suffix K, M, G or T; up to "
                            "63 times, the rest of the device is one more lane")


def _lanes(text: str) -> int:
    return _number(text, 1, pools.LANES_MAX)


def _add_attach(commands: Any) -> None:
    command = commands.add_parser(
        "attach", help="add a cache to a mapped device",
        description="Add a cache to a mapped device, such as a logical volume. The device may be "
                    "in use and its path does not change: its table moves to a second device, "
                    "which becomes the origin. A vcache device in mode flush-only needs no "
                    "second device. For another device, use --above.")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("--pool", metavar="NAME")
    command.add_argument("--mode", choices=(*attach.CACHED, "flush-only"),
                         help="(writeback; without --pool: flush-only)")
    command.add_argument("--volume", type=volume, metavar="N",
                         help="volume number in the pool (the previous number of the device, or "
                              "the lowest free one)")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--tag", type=_tag, metavar="N",
                       help="the whole device is one virtual disk, with this tag")
    group.add_argument("--filesystem", action="store_true",
                       help="the device has a file system with disk images")
    command.add_argument("--above", action="store_true",
                         help="create a new device, DEVICE-vcache, with the cache; for devices of "
                              "multipath and dm-crypt and RBD images of krbd, which must not be "
                              "in use")
    command.add_argument("--recover", action="store_true",
                         help="accept the pool's data of volume N as data of this device")
    command.add_argument("--force", action="store_true",
                         help="use the pool's data although the device has changed without it")
    add_state(command)
    add_setup(command)
    command.set_defaults(run=_attach, usage=command.error)


def add_setup(command: argparse.ArgumentParser) -> None:
    """Add the options for the file of the next start of the host."""
    command.add_argument("--setup", type=Path, default=setup_file.PATH, metavar="PATH",
                         help="file that records it for the next start of the host (%(default)s)")
    command.add_argument("--no-setup", dest="setup", action="store_const", const=None,
                         help="do not record it")


def add_state(command: argparse.ArgumentParser) -> None:
    """Add the option for the agent's store."""
    command.add_argument("--state", type=Path, default=Path("/var/lib/vcache/agent.sqlite"),
                         metavar="PATH", help="state_path of the agent (%(default)s)")


def _number(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:11]) <= high:
        raise argparse.ArgumentTypeError(f"{text!r}: must be an integer from {low} to {high}")
    return int(text)


def volume(text: str) -> int:
    """Parse the number of a volume."""
    return _number(text, 1, pools.VOLUME_MAX)


def _tag(text: str) -> int:
    return _number(text, 1, spec.TAG_MAX)


def _chunk(text: str) -> int:
    found = _number(text, *pools.CHUNK_KIB)
    if found & (found - 1):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a power of two from 64 to 16384")
    return found


def size(text: str) -> int:
    """Parse a number of bytes, or one with a unit."""
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
def mapper() -> Iterator[Dm]:
    """Connect to device mapper.

    :raises ModuleNotLoaded: if the kernel has no target vcache
    """
    if not _MODULE.is_dir():
        raise ModuleNotLoaded(errno.ENOENT, "the kernel has no target 'vcache': load the module "
                              "dm-vcache (modprobe dm-vcache)")
    with Dm() as dm:
        yield dm


@contextlib.contextmanager
def locked_store(path: Path, seconds: float = 0.0) -> Iterator[Store]:
    """Open the agent's store and take the lock of the commands that change devices.

    :param seconds: how long to wait for the lock
    :raises PoolError: if another such command is running, or the store cannot be written
    """
    store = Store(path)
    try:
        with device_lock.held(path.with_suffix(".attach"), f"'vcache {' '.join(sys.argv[1:])}'",
                              seconds):
            yield store
    except device_lock.Busy as error:
        raise PoolError(str(error)) from None
    except sqlite3.Error as error:
        raise PoolError(f"{path} cannot be written: {error}; run the command again when that is "
                        "possible") from None
    finally:
        store.close()


def say(text: str) -> None:
    """Print a message at once."""
    print(text, flush=True)


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def recorder(arguments: argparse.Namespace) -> Recorder:
    """Return what records the changes for the next start of the host."""
    return Recorder(arguments.setup, _warn)


def _create(arguments: argparse.Namespace) -> None:
    lanes = arguments.lanes or ()
    with mapper() as dm:
        say(pools.create(dm, arguments.name, arguments.device, arguments.chunk_kib,
                         _percents(arguments), lanes))
    recorder(arguments).pool(arguments.name, arguments.device, lanes, _percents(arguments))


def _set(arguments: argparse.Namespace) -> None:
    percents = _percents(arguments)
    if not percents:
        arguments.usage("one of --reads-percent, --hot-percent is required")
    with mapper() as dm:
        say(pools.tune(dm, arguments.name, percents))
    recorder(arguments).percents(arguments.name, percents)


def _resize(arguments: argparse.Namespace) -> None:
    with mapper() as dm:
        say(pools.resize(dm, arguments.name, arguments.size, say,
                          wait=not arguments.no_wait))


def _remove(arguments: argparse.Namespace) -> None:
    with mapper() as dm:
        vssds = devices.every(dm, pools.pool(dm, arguments.name).info.number)
        if vssds:
            raise PoolError(f"pool {arguments.name} has elastic SSDs: delete "
                            f"{', '.join(one.info.name for one in vssds)} first")
        say(pools.remove(dm, arguments.name))
    recorder(arguments).pool_removed(arguments.name)


def _drop(arguments: argparse.Namespace) -> None:
    with mapper() as dm, locked_store(arguments.state) as store:
        say(pools.drop(dm, store, arguments.name, arguments.volume, force=arguments.force))


def _attach(arguments: argparse.Namespace) -> None:
    mode = arguments.mode or ("writeback" if arguments.pool else "flush-only")
    if (mode == "flush-only") != (arguments.pool is None):
        arguments.usage("a device has --pool and mode writeback or writethrough, or no --pool and "
                        "mode flush-only")
    scope = "filesystem" if arguments.filesystem else None
    if arguments.tag is not None:
        scope = f"volume {arguments.tag}"
    with mapper() as dm, locked_store(arguments.state) as store:
        if arguments.pool is None:
            say(above.plain_above(dm, arguments.device, scope) if arguments.above
                else attach.attach_plain(dm, arguments.device, scope))
        else:
            function = above.attach_above if arguments.above else attach.attach
            say(function(dm, store, arguments.device, arguments.pool, mode=mode,
                         volume=arguments.volume, scope=scope, recover=arguments.recover,
                         force=arguments.force))
        recorder(arguments).device(dm, arguments.device, above=arguments.above)


def _detach(arguments: argparse.Namespace) -> None:
    with mapper() as dm, locked_store(arguments.state) as store:
        numbers = numbers_of(dm, pools.find(dm, arguments.device))
        say(attach.detach(dm, store, arguments.device, say, force=arguments.force))
        recorder(arguments).device_removed(numbers)


def _mode(arguments: argparse.Namespace) -> None:
    with mapper() as dm, locked_store(arguments.state):
        say(attach.change_mode(dm, arguments.device, arguments.mode, say))
        info = pools.find(dm, arguments.device)
        lower = above.origin_path(dm, info)
        recorder(arguments).device(dm, lower or arguments.device, above=lower is not None)


def _list(arguments: argparse.Namespace) -> None:
    with mapper() as dm:
        rows = [pools.row(pool, pools.members(dm, pool)) | {
            "vssds": [one.info.name for one in devices.every(dm, pool.info.number)]}
            for pool in pools.pools(dm)]
    print(json.dumps({"pools": rows}, indent=2) if arguments.json else tables.pools(rows))
