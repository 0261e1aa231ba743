# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache device probe`` and ``vcache device tags``."""

import argparse
import contextlib
import dataclasses
import json
import os
import stat
from typing import Any

from vcache_agent import sysfs
from vcache_agent.drive import facts, measure, tag_shares, verdict
from vcache_agent.model import DeviceNumber


class ProbeError(Exception):
    """A device cannot be examined; the text says why."""


def add_commands(commands: Any) -> None:
    """Add the command to those of ``vcache``."""
    device = commands.add_parser("device", help="examine block devices")
    kinds = device.add_subparsers(required=True, metavar="COMMAND")
    _add_tags(kinds)
    command = kinds.add_parser(
        "probe", help="show how a drive makes data durable, with advice",
        description="Show how the drives of a block device make data durable: whether they have "
                    "a volatile cache, FUA, tags, NVM sets or placement handles, and what "
                    "follows for flushes. Without options, nothing is written.")
    command.add_argument("path", metavar="DEVICE")
    command.add_argument("--measure", action="store_true",
                         help="measure writes, FUA and FLUSH by writing back what the device "
                              "contains; nobody may use it meanwhile")
    command.add_argument("--neighbour", metavar="DEVICE2",
                         help="with --measure: another namespace of the drive that nobody uses, "
                              "to find out whether a FLUSH waits for its data")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_probe, usage=command.error)


def _add_tags(kinds: Any) -> None:
    command = kinds.add_parser(
        "tags", help="show how tags share a drive, and set their weights",
        description="Show what each tag has and uses of the write buffer and of the banks of an "
                    "NVMe drive with tags. A tag with a weight has a share of the banks. The "
                    "drive forgets weights at power-off.")
    command.add_argument("path", metavar="DEVICE")
    command.add_argument("--weight", metavar="TAG=WEIGHT", type=_weight, action="append",
                         default=[], help="give a tag a weight of 1 to "
                         f"{tag_shares.WEIGHT_MAX}, 0 takes it away; may be given repeatedly")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_tags)


def _weight(text: str) -> tuple[int, int]:
    tag, separator, weight = text.partition("=")
    if not (separator and tag.isdecimal() and weight.isdecimal()
            and int(weight) <= tag_shares.WEIGHT_MAX):
        raise argparse.ArgumentTypeError(
            f"{text!r}: not TAG=WEIGHT with a weight of 0 to {tag_shares.WEIGHT_MAX}")
    return int(tag), int(weight)


def _tags(arguments: argparse.Namespace) -> None:
    _number(arguments.path)
    try:
        for tag, weight in arguments.weight:
            tag_shares.set_weight(arguments.path, tag, weight)
        found = tag_shares.read_shares(arguments.path)
    except tag_shares.SharesError as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        raise ProbeError(f"{arguments.path}: {error.strerror}") from error
    if arguments.json:
        print(json.dumps([dataclasses.asdict(share) for share in found], indent=2))
        return
    print(f"{'tag':>6} {'weight':>6} {'share':>7} {'buffered':>8} {'flushes':>8} "
          f"{'buffer wait':>11} {'bank time':>10} {'bank wait':>10}")
    for share in found:
        print(f"{share.tag:6} {share.weight or '-':>6} {share.share or '-':>7} "
              f"{share.buffered:8} {share.flushes:8} {share.buffer_wait_ns / 1e6:8.0f} ms "
              f"{share.bank_ns / 1e6:7.0f} ms {share.bank_wait_ns / 1e6:7.0f} ms")


def _number(path: str) -> DeviceNumber:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode):
        raise ProbeError(f"{path}: not a block device")
    return DeviceNumber(os.major(found.st_rdev), os.minor(found.st_rdev))


def _measured(arguments: argparse.Namespace, at: DeviceNumber) -> tuple[Any, Any]:
    if not arguments.measure:
        return None, None
    nvme = sysfs.name(at).startswith("nvme") and sysfs.partition(at) is None
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(measure.opened(arguments.path))
        found = measure.measure(device, nvme=nvme)
        if not arguments.neighbour:
            return found, None
        _number(arguments.neighbour)
        other = stack.enter_context(measure.opened(arguments.neighbour))
        return found, measure.beside(device, other)


def _probe(arguments: argparse.Namespace) -> None:
    if arguments.neighbour and not arguments.measure:
        arguments.usage("--neighbour requires --measure")
    at = _number(arguments.path)
    try:
        disks = [facts.collect(disk) for disk in facts.disks(at)]
        measured, neighbour = _measured(arguments, at)
    except measure.MeasureError as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        raise ProbeError(f"{arguments.path}: {error.strerror}") from error
    rows = [_row(disk, verdict.judge(disk, measured, neighbour)) for disk in disks]
    if arguments.json:
        print(json.dumps({"disks": rows, "measured": _plain(measured),
                          "neighbour": _plain(neighbour)}, indent=2))
    else:
        print("\n\n".join([*map(_text, rows), *_figures(measured, neighbour)]))


def _plain(found: Any) -> dict[str, Any] | None:
    return dataclasses.asdict(found) if found else None


def _row(disk: facts.Facts, found: verdict.Verdict) -> dict[str, Any]:
    return {**dataclasses.asdict(disk), **dataclasses.asdict(found)}


def _text(row: dict[str, Any]) -> str:
    queue, drive = row["queue"], row["nvme"]
    lines = [("isolation", row["isolation"].upper() if row["isolation"] in
              (verdict.Isolation.DEGRADED, verdict.Isolation.UNSAFE) else row["isolation"]),
             ("kernel", ", ".join(filter(None, [
                 "sends FLUSH" if queue["write_back"] else "sends no FLUSH",
                 "FUA" if queue["fua"] else "no FUA", queue["discard"] and "discards"])))]
    if drive:
        about = drive["controller"]
        cache = {None: "volatile cache", True: "volatile cache, enabled",
                 False: "volatile cache, disabled"}[drive["cache_enabled"]]
        lines += [("model", about["model"]),
                  ("drive", ", ".join(filter(None, [
                      cache if about["volatile_cache"] else "no volatile cache",
                      drive["tagged"] and "tags",
                      about["sets"] and f"NVM set {drive['namespace']['nvm_set']}",
                      about["groups"] and f"endurance group {drive['namespace']['group']}",
                      about["fdp"] and ("FDP" if drive["fdp_enabled"] else "FDP, not enabled")])))]
    if row["flush_limited"] is not None:
        lines.append(("FLUSH", "covers one namespace" if row["flush_limited"] else
                      "covers all namespaces"))
    return "\n".join([f"{row['name']}:", *(f"  {name:10} {text}" for name, text in lines),
                      *(f"  * {text}" for text in row["advice"])])


def _figures(measured: measure.Measured | None,
             neighbour: measure.Neighbour | None) -> list[str]:
    found = []
    if measured:
        lines = [f"  {name:10} {value.p50:8.0f} {value.p99:8.0f}"
                 for name, value in (("write", measured.write), ("FUA", measured.fua),
                                     ("FLUSH", measured.flush)) if value]
        found.append("\n".join([f"  {'us':10} {'p50':>8} {'p99':>8}", *lines]))
    if neighbour:
        found.append(f"  FLUSH: {neighbour.alone:.0f} us; while the neighbour has "
                     f"{measure.DIRTY >> 20} MiB of dirty data: {neighbour.beside:.0f} us; of the "
                     f"neighbour: {neighbour.own:.0f} us")
    return found
