# SPDX-License-Identifier: Apache-2.0
"""The pair of VMs: started, measured, stopped; the same in every half."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.demo.findings import Findings
from bench.demo.settings import INTERVALS, NEVER, Settings, schedule
from bench.demo.vm import INSTANCES, Instance
from tests.box import disks
from tests.box import inside as box
from tests.box.guest.image import Guest
from tests.box.steps import Stack, step

QUIET, SYNCER = "quiet", "syncer"
_CONSOLE_SECONDS = 60


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[{time.monotonic():6.0f} s] {text}", flush=True)


def instances(mode: str, weights: tuple[int, int] = (100, 100),
              data: Path | None = None) -> list[Instance]:
    """Return the two instances; equal but for their weights and for what they will do.

    :param mode: what their flavors request of vcache
    :param weights: of the quiet one and of the syncer
    :param data: folder of their second disks
    """
    return [Instance(number, role, {"vcache:mode": mode, "vcache:weight": str(weight)}, data)
            for number, (role, weight) in enumerate(zip((QUIET, SYNCER), weights, strict=True), 1)]


@contextlib.contextmanager
def mounted(node: Path, folder: Path = INSTANCES) -> Iterator[None]:
    """Mount nova's instances folder, or another one, from `node`."""
    folder.mkdir(parents=True, exist_ok=True)
    with disks.mounted(str(node), folder):
        yield


@contextlib.contextmanager
def running(vms: list[Instance], guest: Guest, settings: Settings) -> Iterator[None]:
    """Start the instances and stop them at the end."""
    kind = box.domain_type()
    with Stack() as stack:
        for vm in vms:
            with step(f"starting instance {vm.role} ({vm.name})"):
                stack.callback(vm.stop)
                vm.start(guest, settings.vm_memory_mb, kind)
            say(f"{vm.role} ({vm.name}) is started")
        for vm in vms:
            with step(f"waiting until instance {vm.role} ({vm.name}) has booted"):
                vm.wait_ready()
            say(f"{vm.role} is up")
        yield


def measure(vms: list[Instance], disk: str, interval: int, settings: Settings,
            seed: int) -> dict[str, Any]:
    """Let both instances write to a disk, the syncer with an fsync every `interval` writes."""
    for vm in vms:
        vm.send("run", dev=f"/dev/{disk}", size=settings.image_mb << 20,
                bs=settings.quiet_kb << 10 if vm.role == QUIET else 4096,
                fsync=interval if vm.role == SYNCER else NEVER,
                think_us=settings.think_us, ramp_ms=settings.ramp_ms,
                time_ms=settings.time_ms, tail_ms=settings.tail_ms, seed=seed)
    seconds = (settings.ramp_ms + settings.time_ms + settings.tail_ms) / 1000
    found = {vm.role: vm.receive(seconds + _CONSOLE_SECONDS) for vm in vms}
    for vm in vms:
        if "write" not in found[vm.role]:
            raise box.InsideError(f"{vm.role}: answered {found[vm.role]} to a run; its console: "
                                  f"{vm.console_tail()}")
    return found


def measure_all(found: Findings, halves: Mapping[str, str], vms: list[Instance],
                settings: Settings, rounds: int, intervals: tuple[int, ...] = INTERVALS,
                check: Callable[[], None] = lambda: None) -> None:
    """Run all rounds; keep every single measurement as ``HALF.runs``.

    :param halves: what is measured: the disk of each half. Their runs take turns
    :param check: called after each run; raises if something the runs need has ended
    """
    # Not counted: fills buffers and caches, so that the first setting finds
    # the device as busy as every later one does.
    warm = dataclasses.replace(settings, ramp_ms=0, time_ms=settings.warm_ms, tail_ms=0)
    for half, disk in halves.items():
        with step(f"warming up {half}"):
            measure(vms, disk, NEVER, warm, seed=999)
    for number in range(rounds):
        for place, interval in enumerate(schedule(number, intervals)):
            for half, disk in halves.items():
                where = f"round {number + 1}/{rounds}, fsync every {interval or 'never':>5}"
                with step(f"measuring {half}, {where}"):
                    result = measure(vms, disk, interval, settings, seed=1 + 100 * number + place)
                    check()
                found.append(half, "runs",
                             value={"round": number, "interval": interval, **result})
                sync = result[SYNCER]["sync"]["lat_ns"]
                flush = f", flush {sync['mean'] / 1e6:6.2f} ms" if sync["N"] else ""
                say(f"{half}: {where}: quiet {result[QUIET]['write']['iops']:6.0f}/s, "
                    f"syncer {result[SYNCER]['write']['iops']:6.0f}/s{flush}")
