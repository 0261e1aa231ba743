# SPDX-License-Identifier: Apache-2.0
"""The pair on two emulated SSDs: a bare one, and one under vcache."""

from pathlib import Path
from typing import Any

from bench.demo import vcache
from bench.demo.device import Device, emulated_ssd, own_figures
from bench.demo.findings import Findings, Parts
from bench.demo.pair import instances, measure_all, mounted, running, say
from bench.demo.settings import Settings
from bench.demo.vm import INSTANCES, Instance
from tests.box import inside as box
from tests.box.guest.image import Guest
from tests.box.steps import Stack, step

# Where the second disks of the instances are, on the bare device.
_BARE = Path("/var/lib/nova/bare")


def prepare(device: Device, folder: Path, vms: list[Instance], disk: str,
            settings: Settings) -> dict[str, Any]:
    """Make the file system and the disks; return what the device does by itself.

    :param folder: where the file system is mounted for now
    :param disk: which disk of the instances is on it
    """
    say(f"device: {device.describe()}")
    box.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0",
            str(device.node))
    with mounted(device.node, folder):
        with step("measuring the device by itself"):
            own = own_figures(device, folder)
        say("writing the disks of the instances")
        for vm in vms:
            vm.create_disk(settings.image_mb, disk)
    return {**device.describe(), "own_figures": own}


def measure(parts: Parts, settings: Settings, guest: Guest) -> None:
    """Measure the part "ssd".

    The instances have a disk on each SSD, so that the same ones write to either in turn.
    """
    with parts.one("ssd") as found:
        _measure(found, settings, guest)


def _measure(found: Findings, settings: Settings, guest: Guest) -> None:
    vms = instances("flush-only", data=_BARE)
    with (emulated_ssd(settings, "baseline") as bare, emulated_ssd(settings, "tagged") as tagged,
          Stack() as stack):
        found.put("device", "bare", value=prepare(bare, _BARE, vms, "vdb", settings))
        found.put("device", "vcache", value=prepare(tagged, INSTANCES, vms, "vda", settings))
        vcache.load(settings)
        stack.callback(box.unload_module)
        flushes = {"bare": -bare.device_flushes(), "vcache": -tagged.device_flushes()}
        with (vcache.mapped(tagged.node) as device, mounted(device.node),
              mounted(bare.node, _BARE), vcache.agent() as agent, running(vms, guest, settings)):
            with step("waiting for the agent's tags"):
                tags = vcache.wait_for_tags(device, vms, settings.image_mb << 11, tagged=True,
                                            agent=agent)
            for tag in found.put("vcache", "tags", value=tags):
                say(f"vcache: agent assigned tag {tag['id']} to {tag['role']} ({tag['name']}), "
                    f"weight {tag['weight']}, cgroups {tag['cgroup_paths']}, "
                    f"{tag['extents_count']} extents")
            measure_all(found, {"bare": "vdb", "vcache": "vda"}, vms, settings, settings.rounds,
                        check=agent.check)
            found.put("vcache", "tags_after", value=vcache.tags(device, vms))
            found.put("vcache", "table", value=device.table)
            found.put("vcache", "status", value=device.status)
        flushes["bare"] += bare.device_flushes()
        flushes["vcache"] += tagged.device_flushes()
        for half, count in flushes.items():
            found.put(half, "device_flushes", value=count)
