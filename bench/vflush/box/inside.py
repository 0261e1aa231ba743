# SPDX-License-Identifier: Apache-2.0
"""In the box: run one system after another, each on its own drive."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.vflush import settings
from bench.vflush.box import logs
from tests.box.disks import mapped, mounted
from tests.box.inside import InsideError, load_module, progress, run, unload_module
from tests.box.ssd import ssd
from tests.box.steps import at_end, explained, step
from vcache_agent import fiemap
from vcache_agent.model import DeviceNumber
from vcache_agent.netlink.client import Client
from vcache_agent.nvme import Drives
from vcache_agent.packed_extents import PackedExtents

CGROUPS = Path("/sys/fs/cgroup")
MOUNT = Path("/run/vflush")
MAPPED = "vflush"
VMS = ("vm1", "vm2")
#: Time from the start of the loads to their first write.
_HEAD_START_NS = 300_000_000


def _images() -> list[Path]:
    return [MOUNT / f"{vm}.img" for vm in VMS]


@contextlib.contextmanager
def target(origin: str) -> Iterator[str]:
    """Map the drive with dm-vcache in filesystem scope; use its tags if it supports them."""
    load_module(f"buffer_mb={settings.BOX['buffer_mb']}")
    sectors = run("blockdev", "--getsz", origin).strip()
    with at_end(unload_module), mapped(
            MAPPED, f"0 {sectors} vcache flush-only {origin} filesystem") as device:
        with Client() as client:
            problems = Drives().use_tags(client, client.devices())
        if problems:
            raise InsideError("; ".join(problems))
        yield device


def make_images(drive: str) -> None:
    """Create ext4 and fully written images, without dm-vcache."""
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", drive)
    with mounted(drive, MOUNT):
        for image in _images():
            run("dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={settings.BOX['image_mb']}",
                "oflag=direct", timeout=3000)
        run("sync")


def give_tags() -> None:
    """Do the agent's work for two domains: tags with their cgroups and extents."""
    number = os.stat(f"/dev/mapper/{MAPPED}").st_rdev
    device = DeviceNumber(os.major(number), os.minor(number))
    with Client() as client:
        for tag, (vm, image) in enumerate(zip(VMS, _images(), strict=True), 1):
            descriptor = os.open(image, os.O_RDONLY)
            try:
                extents = PackedExtents(fiemap.read(descriptor)[0])
            finally:
                os.close(descriptor)
            cgroup = (CGROUPS / vm).stat().st_ino
            client.tag_set(device, tag, name=vm, cgroups=[cgroup])
            client.set_extents(device, tag, extents)


def measure(load: str, every: int, seed: int) -> list[dict[str, Any]]:
    """Run both VMs; VM2 syncs after every `every` writes."""
    start = time.monotonic_ns() + _HEAD_START_NS
    box = settings.BOX
    children = []
    for i, (vm, image) in enumerate(zip(VMS, _images(), strict=True)):
        words = [image, box["image_mb"] << 20, every if i else settings.NEVER,
                 box["think_us"], start, box["ramp_ms"], box["time_ms"], box["tail_ms"],
                 2 * seed + i]
        script = 'echo $$ >"$0"/cgroup.procs && exec "$@"'
        children.append(subprocess.Popen(
            ["sh", "-c", script, str(CGROUPS / vm), load, *map(str, words)],
            stdout=subprocess.PIPE, text=True))
    found = [child.communicate()[0] for child in children]
    for vm, child, text in zip(VMS, children, found, strict=True):
        if child.returncode:
            raise InsideError(f"the load of {vm} ended with status {child.returncode}: {text!r}")
    return [json.loads(text) for text in found]


def system(name: str, load: str) -> Iterator[dict[str, Any]]:
    """Measure one system at all intervals."""
    personality, mapping = settings.BOX_SYSTEMS[name]
    progress(f"{name}: starting the drive")
    with step(name), ssd("--personality", personality, *settings.BOX_DRIVE, "--size",
             f"{settings.BOX['drive_mb']}M") as drive, contextlib.ExitStack() as stack:
        node = drive.namespace()
        Path(f"/sys/block/{Path(node).name}/queue/scheduler").write_text("none")
        make_images(node)
        device = stack.enter_context(target(node)) if mapping else node
        stack.enter_context(mounted(device, MOUNT))
        status = ""
        if mapping:
            give_tags()
            status = run("dmsetup", "status", MAPPED).strip()
        progress(f"{name}: ready {status}")
        for number, every in enumerate((settings.NEVER, *settings.INTERVALS)):
            before = logs.counters(node)
            vms = measure(load, every, 1 + number)
            spent = logs.difference(logs.counters(node), before)
            yield {"system": name, "every": every, "vms": vms, "drive": spent, "status": status}


def main() -> None:
    """Measure systems: ``inside LOAD OUT SYSTEM...``."""
    load, out, *systems = sys.argv[1:]
    with explained("bench-vflush"):
        # With FUA on the Baseline firmware, queued requests can take longer than 30 s.
        run("modprobe", "nvme-core", "io_timeout=240")
        for vm in VMS:
            (CGROUPS / vm).mkdir(exist_ok=True)
        runs = []
        for name in systems:
            for found in system(name, load):
                runs.append(found)
                progress(f"{name}, an fsync every {found['every'] or 'never'}: VM1 "
                         f"{found['vms'][0]['writes']['count']}, VM2 "
                         f"{found['vms'][1]['writes']['count']} writes")
                Path(out).write_text(json.dumps(runs))


if __name__ == "__main__":
    main()
