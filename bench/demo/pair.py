# SPDX-License-Identifier: Apache-2.0
"""The pair of VMs: started, measured, stopped; the same in every half."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.demo.settings import INTERVALS, NEVER, Settings, schedule
from bench.demo.vm import INSTANCES, Instance
from tests.box import inside as box
from tests.box.guest.image import Guest

QUIET, SYNCER = "quiet", "syncer"
_CONSOLE_SECONDS = 60


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[{time.monotonic():6.0f} s] {text}", flush=True)


def instances(mode: str, weight: int) -> list[Instance]:
    """Return the two instances; equal but for what they will do.

    :param mode: what their flavor asks of vcache
    """
    specs = {"vcache:mode": mode, "vcache:weight": str(weight)}
    return [Instance(1, QUIET, dict(specs)), Instance(2, SYNCER, dict(specs))]


@contextlib.contextmanager
def mounted(node: Path) -> Iterator[None]:
    """Mount nova's instances folder from `node`."""
    INSTANCES.mkdir(parents=True, exist_ok=True)
    box.run("mount", "-t", "ext4", "-o", "noatime", str(node), str(INSTANCES))
    try:
        yield
    finally:
        box.run("umount", str(INSTANCES))


@contextlib.contextmanager
def running(vms: list[Instance], guest: Guest, settings: Settings) -> Iterator[None]:
    """Start the instances and stop them at the end."""
    kind = box.domain_type()
    started: list[Instance] = []
    try:
        for vm in vms:
            vm.start(guest, settings.vm_memory_mb, kind)
            started.append(vm)
            say(f"{vm.role} ({vm.name}) is started")
        for vm in vms:
            vm.wait_ready()
            say(f"{vm.role} is up")
        yield
    finally:
        for vm in started:
            vm.stop()


def measure(vms: list[Instance], interval: int, settings: Settings, seed: int) -> dict[str, Any]:
    """Let both instances write, the syncer with an fsync every `interval` writes."""
    for vm in vms:
        vm.send("run", dev="/dev/vda", size=settings.image_mb << 20,
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


def measure_all(vms: list[Instance], settings: Settings, name: str, rounds: int,
                intervals: tuple[int, ...] = INTERVALS) -> list[dict[str, Any]]:
    """Run all rounds; return every single measurement."""
    runs: list[dict[str, Any]] = []
    # Not counted: fills buffers and caches, so that the first setting finds
    # the device as busy as every later one does.
    warm = dataclasses.replace(settings, ramp_ms=0, time_ms=settings.warm_ms, tail_ms=0)
    measure(vms, NEVER, warm, seed=999)
    for number in range(rounds):
        for interval in schedule(number, intervals):
            result = measure(vms, interval, settings, seed=1 + len(runs))
            runs.append({"round": number, "interval": interval, **result})
            sync = result[SYNCER]["sync"]["lat_ns"]
            flush = f", flush {sync['mean'] / 1e6:6.1f} ms" if sync["N"] else ""
            say(f"{name}: round {number + 1}/{rounds}, fsync every "
                f"{interval or 'never':>5}: quiet {result[QUIET]['write']['iops']:6.0f}/s, "
                f"syncer {result[SYNCER]['write']['iops']:6.0f}/s{flush}")
    return runs
