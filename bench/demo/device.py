# SPDX-License-Identifier: Apache-2.0
"""The SSD of the demo, made of kernel parts.

    null_blk    volatile write cache, FUA, data in memory, a timer per command
    dm-delay    the cost of a FLUSH
    LIO         (iblock, tcm_loop) a SCSI disk that takes one command at a time

README.md says why this stands in fairly for an SSD. What the report says of
the device is read back from the kernel or measured.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.demo.settings import Settings
from tests.box.inside import InsideError, run

_CONFIGFS = Path("/sys/kernel/config")
_NULLB = _CONFIGFS / "nullb" / "demo-media"
_FLUSH = "demo-flush"
_BACKSTORE = _CONFIGFS / "target" / "core" / "iblock_0" / "demo"
# Any two names of the naa form; they are local to this kernel.
_TARGET = _CONFIGFS / "target" / "loopback" / "naa.6001405000000001" / "tpgt_1"
_NEXUS = "naa.6001405000000002"

_PROBE_SECONDS = 1


@dataclass(frozen=True)
class Device:
    """A block device and what the kernel says of it."""

    node: Path

    def queue(self, attribute: str) -> str:
        """Return an attribute of the request queue."""
        return Path(f"/sys/block/{self.node.name}/queue/{attribute}").read_text().strip()

    def describe(self) -> dict[str, Any]:
        """Return what the report says about the device."""
        return {
            "parts": "null_blk (memory_backed, cache_size, irqmode=2) under dm-delay (flush) "
                     "under LIO (iblock, tcm_loop)",
            "size_bytes": int(Path(f"/sys/block/{self.node.name}/size").read_text()) * 512,
            "write_cache": self.queue("write_cache"),
            "fua": int(self.queue("fua")),
            "queue_depth": int(
                Path(f"/sys/block/{self.node.name}/device/queue_depth").read_text()),
            "command_ns": int((_NULLB / "completion_nsec").read_text()),
            "cache_mb": int((_NULLB / "cache_size").read_text()),
            "flush_table": run("dmsetup", "table", _FLUSH).strip(),
        }

    def device_flushes(self) -> int:
        """Return how many FLUSH commands the device has completed."""
        # 16th field, Documentation/admin-guide/iostats.rst
        return int(Path(f"/sys/block/{self.node.name}/stat").read_text().split()[15])


@contextlib.contextmanager
def _media(settings: Settings) -> Iterator[Path]:
    """Memory that charges every command and has a volatile cache."""
    run("modprobe", "null_blk", "nr_devices=0")
    _NULLB.mkdir()
    try:
        for name, value in (
                ("size", settings.device_mb), ("memory_backed", 1),
                ("cache_size", settings.device_cache_mb), ("queue_mode", 2),
                ("hw_queue_depth", 1), ("irqmode", 2),
                ("completion_nsec", settings.command_us * 1000), ("power", 1)):
            (_NULLB / name).write_text(str(value))
        run("udevadm", "settle")
        yield Path("/dev") / _NULLB.name
    finally:
        _NULLB.rmdir()


@contextlib.contextmanager
def _flush_cost(media: Path, settings: Settings) -> Iterator[Path]:
    """Delay nothing but FLUSH."""
    run("modprobe", "dm-delay")
    sectors = run("blockdev", "--getsz", str(media)).strip()
    run("dmsetup", "create", _FLUSH, "--table",
        f"0 {sectors} delay {media} 0 0 {media} 0 0 {media} 0 {settings.flush_ms}")
    try:
        yield Path("/dev/mapper") / _FLUSH
    finally:
        run("dmsetup", "remove", "--retry", _FLUSH)


def _scsi_disks() -> set[Path]:
    return set(Path("/sys/block").glob("sd*"))


@contextlib.contextmanager
def _scsi_disk(backing: Path) -> Iterator[Path]:
    """A SCSI disk that takes one command at a time."""
    for module in ("target_core_mod", "target_core_iblock", "tcm_loop"):
        run("modprobe", module)
    lun = _TARGET / "lun" / "lun_0"
    before = _scsi_disks()
    with contextlib.ExitStack() as stack:
        _BACKSTORE.mkdir(parents=True)
        stack.callback(_BACKSTORE.parent.rmdir)
        stack.callback(_BACKSTORE.rmdir)
        (_BACKSTORE / "control").write_text(f"udev_path={backing.resolve()},readonly=0")
        (_BACKSTORE / "enable").write_text("1")
        _TARGET.mkdir(parents=True)
        stack.callback(_TARGET.parent.rmdir)
        stack.callback(_TARGET.rmdir)
        (_TARGET / "nexus").write_text(_NEXUS)
        lun.mkdir()
        stack.callback(lun.rmdir)
        (lun / "demo").symlink_to(_BACKSTORE)
        stack.callback((lun / "demo").unlink)
        for _ in range(50):
            run("udevadm", "settle")
            made = _scsi_disks() - before
            if made:
                break
            time.sleep(0.1)
        if len(made) != 1:
            raise InsideError(f"LIO made {len(made)} disks instead of one")
        disk = made.pop()
        (disk / "device" / "queue_depth").write_text("1")
        # A plain queue: the device, not a scheduler, decides about fairness.
        (disk / "queue" / "scheduler").write_text("none")
        yield Path("/dev") / disk.name


@contextlib.contextmanager
def simulated_ssd(settings: Settings) -> Iterator[Device]:
    """Make the device; remove it at the end."""
    with (_media(settings) as media, _flush_cost(media, settings) as slow,
          _scsi_disk(slow) as node):
        device = Device(node)
        if device.queue("write_cache") != "write back" or device.queue("fua") != "1":
            raise InsideError(f"{node} has no volatile cache with FUA")
        yield device


def _fio(path: Path, *options: str) -> dict[str, Any]:
    out = run("fio", "--name=probe", f"--filename={path}", "--rw=randwrite", "--bs=4k",
              "--direct=1", "--ioengine=psync", "--size=16m", "--overwrite=1",
              "--time_based", f"--runtime={_PROBE_SECONDS}", "--output-format=json", *options)
    job: dict[str, Any] = json.loads(out)["jobs"][0]
    return job


def _micros(latency: dict[str, Any]) -> dict[str, float]:
    percentiles = latency["percentile"]
    return {"mean": latency["mean"] / 1000, "p50": percentiles["50.000000"] / 1000,
            "p99": percentiles["99.000000"] / 1000, "count": latency["N"]}


def own_figures(device: Device, folder: Path) -> dict[str, Any]:
    """Measure the device by itself, through a file on the file system on it.

    Through a file, because on a raw block device Linux follows a write with
    O_DSYNC by a flush; ext4 sends an overwrite with O_DSYNC as one write with
    FUA. How many flushes the device saw in each run is in the result.

    :param device: the device
    :param folder: a folder on its file system
    """
    path = folder / "probe"
    run("dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=16", "oflag=direct")
    run("sync", str(path))
    figures: dict[str, Any] = {}
    for name, option, part, latency in (
            ("write_us", "--fsync=0", "write", "clat_ns"),
            ("fua_write_us", "--sync=dsync", "write", "clat_ns"),
            ("flush_us", "--fdatasync=1", "sync", "lat_ns")):
        before = device.device_flushes()
        found = _fio(path, option)[part][latency]
        figures[name] = {**_micros(found), "device_flushes": device.device_flushes() - before}
    path.unlink()
    return figures
