# SPDX-License-Identifier: Apache-2.0
"""The part of the demo that runs in the box: device, VMs, measurements."""

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.demo import vcache
from bench.demo.device import Device, emulated_ssd, own_figures
from bench.demo.settings import NEVER, Settings, schedule
from bench.demo.vm import INSTANCES, Instance, place_guest
from tests.box import inside as box
from tests.box.guest.image import Guest

QUIET, SYNCER = "quiet", "syncer"
_CONSOLE_SECONDS = 60


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[{time.monotonic():6.0f} s] {text}", flush=True)


def instances() -> list[Instance]:
    """Return the two instances; equal but for what they will do."""
    specs = {"vcache:mode": "flush-only", "vcache:weight": "100"}
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


def measure_all(vms: list[Instance], settings: Settings, name: str) -> list[dict[str, Any]]:
    """Run all rounds; return every single measurement."""
    runs: list[dict[str, Any]] = []
    # Not counted: fills buffers and caches, so that the first setting finds
    # the device as busy as every later one does.
    warm = dataclasses.replace(settings, ramp_ms=0, time_ms=settings.warm_ms, tail_ms=0)
    measure(vms, NEVER, warm, seed=999)
    for number in range(settings.rounds):
        for interval in schedule(number):
            result = measure(vms, interval, settings, seed=1 + len(runs))
            runs.append({"round": number, "interval": interval, **result})
            sync = result[SYNCER]["sync"]["lat_ns"]
            flush = f", flush {sync['mean'] / 1e6:6.1f} ms" if sync["N"] else ""
            say(f"{name}: round {number + 1}/{settings.rounds}, fsync every "
                f"{interval or 'never':>5}: quiet {result[QUIET]['write']['iops']:6.0f}/s, "
                f"syncer {result[SYNCER]['write']['iops']:6.0f}/s{flush}")
    return runs


def prepare(device: Device, vms: list[Instance], settings: Settings) -> dict[str, Any]:
    """Make the file system and the disks; return what the device does by itself."""
    say(f"device: {device.describe()}")
    box.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0",
            str(device.node))
    with mounted(device.node):
        say("the device by itself")
        own = own_figures(device, INSTANCES)
        say("writing the disks of the instances")
        for vm in vms:
            vm.create_disk(settings.image_mb)
    return {**device.describe(), "own_figures": own}


def bare_half(device: Device, vms: list[Instance], guest: Guest,
              settings: Settings) -> dict[str, Any]:
    """Measure on the bare device."""
    with mounted(device.node):
        flushes = device.device_flushes()
        say("bare: starting the instances")
        with running(vms, guest, settings):
            runs = measure_all(vms, settings, "bare")
        flushes = device.device_flushes() - flushes
    return {"runs": runs, "device_flushes": flushes}


def vcache_half(device: Device, vms: list[Instance], guest: Guest,
                settings: Settings) -> dict[str, Any]:
    """Put the device under vcache with the agent running; measure."""
    with vcache.mapped(device.node) as mapped, mounted(mapped.node), vcache.agent():
        flushes = device.device_flushes()
        say("vcache: starting the instances")
        with running(vms, guest, settings):
            tags = vcache.wait_for_tags(mapped, vms, settings.image_mb << 11)
            for tag in tags:
                say(f"vcache: agent assigned tag {tag['id']} to {tag['role']} ({tag['name']}), "
                    f"weight {tag['weight']}, cgroups {tag['cgroup_paths']}, "
                    f"{tag['extents_count']} extents")
            runs = measure_all(vms, settings, "vcache")
            found = {"runs": runs, "tags": tags, "tags_after": vcache.tags(mapped, vms),
                     "table": mapped.table, "status": mapped.status}
        return {**found, "device_flushes": device.device_flushes() - flushes}


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    def first_line(*command: str) -> str:
        return box.run(*command).splitlines()[0]

    return {
        "kernel": os.uname().release,
        "kernel_build": os.uname().version,
        "libvirt": first_line("libvirtd", "--version"),
        "qemu": first_line("qemu-system-x86_64", "--version"),
        "domain_type": box.domain_type(),
        "cpus": str(os.cpu_count()),
        "cpu": next((line.partition(":")[2].strip()
                     for line in Path("/proc/cpuinfo").read_text().splitlines()
                     if line.startswith("model name")), "unknown"),
    }


def main() -> None:
    """Measure and write everything that was measured to a file."""
    p = argparse.ArgumentParser()
    p.add_argument("--settings", required=True, type=Settings.from_json)
    p.add_argument("--kernel", required=True, type=Path, help="the guest's")
    p.add_argument("--initrd", required=True, type=Path, help="the guest's")
    p.add_argument("--output", required=True, type=Path)
    p.add_argument("--only", choices=("bare",), help="leave the other half out")
    a = p.parse_args()
    settings: Settings = a.settings
    say("the box is up")
    guest = place_guest(Guest(a.kernel, a.initrd))
    vms = instances()
    found: dict[str, Any] = {"versions": versions()}
    try:
        _measure_into(found, a.only, settings, vms, guest)
    except box.InsideError as error:
        # One line is enough: what failed, and why.
        sys.exit(f"demo: {error}")
    a.output.write_text(json.dumps(found))
    say("done")


def _measure_into(found: dict[str, Any], only: str | None, settings: Settings,
                  vms: list[Instance], guest: Guest) -> None:
    """Measure both halves, or only one, into `found`."""
    with box.libvirt(hook=vcache.HOOK if vcache.HOOK.exists() else None):
        say("libvirtd is up")
        with emulated_ssd(settings, "baseline") as device:
            found["device"] = {"bare": prepare(device, vms, settings)}
            found["bare"] = bare_half(device, vms, guest, settings)
        if only:
            return
        with emulated_ssd(settings, "tagged") as device, contextlib.ExitStack() as stack:
            found["device"]["vcache"] = prepare(device, vms, settings)
            vcache.load(settings)
            stack.callback(box.unload_module)
            found["vcache"] = vcache_half(device, vms, guest, settings)


if __name__ == "__main__":
    main()
