# SPDX-License-Identifier: Apache-2.0
"""The SSD of the demo: our emulated one, by Linux's own NVMe/TCP host.

What the report says of the device is read back from the kernel or measured.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.demo.settings import Settings
from tests.box.inside import InsideError, run
from tests.box.ssd import ssd

_PROBE_TIME = "1s"


@dataclass(frozen=True)
class Device:
    """A block device and what the kernel says of it.

    :param model: what it calls itself
    :param options: what vcache-ssd was told: firmware, NAND, times
    """

    node: Path
    model: str
    options: dict[str, Any]

    def _sysfs(self, attribute: str) -> str:
        return Path(f"/sys/block/{self.node.name}/{attribute}").read_text().strip()

    def describe(self) -> dict[str, Any]:
        """Return what the report says about the device."""
        return {
            "made_of": self.model,
            **self.options,
            "size_bytes": int(self._sysfs("size")) * 512,
            "write_cache": self._sysfs("queue/write_cache"),
            "fua": int(self._sysfs("queue/fua")),
        }

    def device_flushes(self) -> int:
        """Return how many FLUSH commands the device has completed."""
        # 16th field, Documentation/admin-guide/iostats.rst
        return int(self._sysfs("stat").split()[15])


@contextlib.contextmanager
def emulated_ssd(settings: Settings, personality: str) -> Iterator[Device]:
    """Start a new drive and connect to it; end it at the end.

    :param personality: of its firmware: what a flush writes, and whether it knows tags
    """
    options = {"personality": personality, "nand": settings.nand, "flush": settings.flush,
               "slowdown": settings.slowdown}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with ssd("--size", f"{settings.device_mb}M", *words) as drive:
        device = Device(Path(drive.namespace()), drive.model(), options)
        found = device.describe()
        if (found["write_cache"], found["fua"]) != ("write back", 1):
            raise InsideError(f"not a device with a volatile cache and FUA: {found}")
        yield device


def _fio(path: Path, *options: str) -> dict[str, Any]:
    out = run("fio", "--name=probe", f"--filename={path}", "--rw=randwrite", "--bs=4k",
              "--direct=1", "--ioengine=psync", "--size=16m", "--overwrite=1",
              "--time_based", f"--runtime={_PROBE_TIME}", "--output-format=json", *options)
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
