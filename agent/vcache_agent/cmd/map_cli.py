# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache tag save`` and ``load``: the list of a tag's cached blocks."""

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

# Seconds between queries of how many bytes still wait.
_LOOK = 0.2


def add_commands(commands: Any, number: Any) -> None:
    """Add ``save`` and ``load`` to the commands of ``vcache tag``.

    :param number: argparse type that converts the number of a tag
    """
    for name, run, text, more in (
            ("save", _save, "write the list of a tag's cached blocks to a file",
             "Write to FILE which blocks of a tag are cached, and how hot each is. The file has "
             "positions only, no data."),
            ("load", _load, "load the blocks that a file lists into the cache",
             "Load the blocks that FILE lists from the origin into the cache, the hottest first, "
             "and wait until this is done. Blocks that are already cached, and blocks for which "
             "the cache has no space, are skipped. If the command is interrupted, the kernel "
             "continues with the blocks already requested.")):
        command = commands.add_parser(name, help=text, description=more)
        command.add_argument("tag", type=number, metavar="TAG")
        command.add_argument("file", type=Path, metavar="FILE")
        command.add_argument("--device", metavar="MAJOR:MINOR",
                             help="device of the tag, if several devices have a tag of this "
                                  "number")
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
                f"{arguments.file} was saved on a device of "
                f"{tables.size(saved.sectors * SECTOR_BYTES)}, but the device of tag {tag.id} has "
                f"{tables.size(device.sectors * SECTOR_BYTES)}")
        before = tag.prefetched_bytes
        for batch in mapfile.batches(saved.runs):
            while not _sent(client, tag, batch):
                time.sleep(_LOOK)
        try:
            while (now := client.tag(tag.device, tag.id)).prefetch_waiting_bytes:
                time.sleep(_LOOK)
        except KeyboardInterrupt:
            print("the kernel continues with the blocks already requested", file=sys.stderr)
            raise
        print(f"{tables.size(now.prefetched_bytes - before)} of {tables.size(saved.size)} read "
              "into the cache; the rest was already cached or found no space")


def _sent(client: Client, tag: Tag, batch: tuple[CachedRun, ...]) -> bool:
    """Request runs; return False if the kernel's queue is full."""
    try:
        client.prefetch(tag.device, tag.id, batch)
    except NetlinkError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
