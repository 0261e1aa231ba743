# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache tag save`` and ``load``: what a tag has in the cache, as a list."""

import argparse
import errno
import sys
import time
from pathlib import Path
from typing import Any

from vcache_agent import mapfile, tables
from vcache_agent.cmd import curve_cli
from vcache_agent.mapfile import MapFileError, SavedMap
from vcache_agent.model import SECTOR_BYTES, Device, Tag
from vcache_agent.netlink import connect
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun
from vcache_agent.swap import LIST_SECONDS

# Seconds between looks at how much still waits.
_LOOK = 0.2


def add_commands(commands: Any, number: Any) -> None:
    """Add the commands to those of ``vcache tag``.

    :param number: converts the number of a tag
    """
    for name, run, text, more in (
            ("save", _save, "list in a file what a tag has in the cache",
             "Write to FILE which blocks a tag has in the cache, and how hot they are: positions "
             "only, no data."),
            ("load", _load, "bring into the cache what a file lists",
             "Have the blocks that FILE lists brought into the cache from the origin, the hottest "
             "first, and wait for it. What the cache has already is passed over, and the rest is "
             "left out where room is short. What has been asked for goes on when this is "
             "interrupted.")):
        command = commands.add_parser(name, help=text, description=more)
        command.add_argument("tag", type=number, metavar="TAG")
        command.add_argument("file", type=Path, metavar="FILE")
        command.add_argument("--device", metavar="MAJOR:MINOR",
                             help="of the tag, where several have one of this number")
        command.set_defaults(run=run)


def _found(client: Client, arguments: argparse.Namespace) -> tuple[Device, Tag]:
    tag = curve_cli.find(client.tags(), arguments.tag, arguments.device)
    device = next((item for item in client.devices() if item.number == tag.device), None)
    if device is None or not device.pool:
        raise MapFileError(f"tag {tag.id} is on device {tag.device}, which has no cache")
    return device, tag


def _save(arguments: argparse.Namespace) -> None:
    with connect() as client:
        device, tag = _found(client, arguments)
    with Client(LIST_SECONDS) as client:
        runs = mapfile.tidy(client.cached(tag.device, tag.id))
    saved = SavedMap(f"{device.name}:{tag.id}", device.sectors, device.volume, 0.0, runs)
    mapfile.write(arguments.file, saved)
    print(f"{tables.size(saved.size)} in {len(runs)} runs")


def _load(arguments: argparse.Namespace) -> None:
    saved = mapfile.read(arguments.file)
    with connect() as client:
        device, tag = _found(client, arguments)
        if saved.sectors != device.sectors:
            raise MapFileError(
                f"{arguments.file} is of a device of {tables.size(saved.sectors * SECTOR_BYTES)}, "
                f"tag {tag.id} is on one of {tables.size(device.sectors * SECTOR_BYTES)}")
        before = tag.prefetched_bytes
        for batch in mapfile.batches(saved.runs):
            while not _sent(client, tag, batch):
                time.sleep(_LOOK)
        try:
            while (now := client.tag(tag.device, tag.id)).prefetch_waiting_bytes:
                time.sleep(_LOOK)
        except KeyboardInterrupt:
            print("what has been asked for goes on", file=sys.stderr)
            raise
        print(f"{tables.size(now.prefetched_bytes - before)} of {tables.size(saved.size)} were "
              "brought in, the rest was there or had no room")


def _sent(client: Client, tag: Tag, batch: tuple[CachedRun, ...]) -> bool:
    """Ask for runs; tell whether there was room to note them."""
    try:
        client.prefetch(tag.device, tag.id, batch)
    except NetlinkError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
