# SPDX-License-Identifier: Apache-2.0
"""The part of the demo that runs in the box: device, VMs, measurements."""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.demo import slow_disk, vcache, weights
from bench.demo.device import Device, emulated_ssd, own_figures
from bench.demo.pair import instances, measure_all, mounted, running, say
from bench.demo.settings import Settings
from bench.demo.vm import INSTANCES, Instance, place_guest
from tests.box import inside as box
from tests.box.guest.image import Guest


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
            runs = measure_all(vms, settings, "bare", settings.rounds)
        flushes = device.device_flushes() - flushes
    return {"runs": runs, "device_flushes": flushes}


def vcache_half(device: Device, vms: list[Instance], guest: Guest,
                settings: Settings) -> dict[str, Any]:
    """Put the device under vcache with the agent running; measure."""
    with vcache.mapped(device.node) as mapped, mounted(mapped.node), vcache.agent():
        flushes = device.device_flushes()
        say("vcache: starting the instances")
        with running(vms, guest, settings):
            tags = vcache.wait_for_tags(mapped, vms, settings.image_mb << 11, tagged=True)
            for tag in tags:
                say(f"vcache: agent assigned tag {tag['id']} to {tag['role']} ({tag['name']}), "
                    f"weight {tag['weight']}, cgroups {tag['cgroup_paths']}, "
                    f"{tag['extents_count']} extents")
            runs = measure_all(vms, settings, "vcache", settings.rounds)
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
    p.add_argument("--only", choices=("bare", "slow-disk", "weights"), help="leave the rest out")
    a = p.parse_args()
    settings: Settings = a.settings
    say("the box is up")
    guest = place_guest(Guest(a.kernel, a.initrd))
    found: dict[str, Any] = {"versions": versions()}
    try:
        _measure_into(found, a.only, settings, guest)
    except box.InsideError as error:
        # One line is enough: what failed, and why.
        sys.exit(f"demo: {error}")
    a.output.write_text(json.dumps(found))
    say("done")


def _measure_into(found: dict[str, Any], only: str | None, settings: Settings,
                  guest: Guest) -> None:
    """Measure all parts, or only one, into `found`."""
    with box.libvirt(hook=vcache.HOOK if vcache.HOOK.exists() else None):
        say("libvirtd is up")
        if only in (None, "bare"):
            _ssd_into(found, only, settings, guest)
        if only in (None, "slow-disk"):
            found["slow_disk"] = slow_disk.measure(settings, guest)
        if only in (None, "weights"):
            found["weights"] = weights.measure(settings, guest)


def _ssd_into(found: dict[str, Any], only: str | None, settings: Settings, guest: Guest) -> None:
    """Measure both halves on the emulated SSD, or only the bare one."""
    vms = instances("flush-only", 100)
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
