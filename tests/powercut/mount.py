# SPDX-License-Identifier: Apache-2.0
"""Runs in the box: mount crash images, so that their file systems recover.

    python -m tests.powercut.mount LOAD FOLDER

LOAD is the load generator. FOLDER contains images.json, a list of objects with
start, the first sector of the image on the disk that IMAGES_DISK names, and
scenario, the path of the scenario. For image number N, the program writes N.dump, the
contents of its files, or N.error. For a pool it writes N.crc of the whole volume.
"""

import argparse
import contextlib
import dataclasses
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.box import inside
from tests.box.disks import mapped
from tests.box.steps import at_end, describe, explained, step
from tests.powercut import record, scenario
from tests.powercut.scenario import Scenario

#: Serial number of the disk with the images.
IMAGES_DISK = "images"

MOUNT = Path("/mnt")
_NAME = "pcimage"
_OPTIONS = {"ext4": "noatime", "xfs": "noatime,nouuid"}
_CHECK = {"ext4": ["e2fsck", "-fn"], "xfs": ["xfs_repair", "-n"]}


def _examine(load: Path, fs: str, device: str, dump: Path) -> None:
    """Mount an image, dump its files, unmount and check it.

    :raises InsideError: if one of these fails
    """
    inside.run("mount", "-t", fs, "-o", _OPTIONS[fs], device, str(MOUNT))
    with at_end(inside.run, "umount", str(MOUNT)):
        inside.run(str(load), "dump", str(MOUNT), str(dump))
    inside.run(*_CHECK[fs], device)


def checksum(device: str) -> int:
    """Return the CRC of a whole device."""
    crc = 0
    with open(device, "rb", buffering=0) as disk:
        while piece := disk.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


@contextlib.contextmanager
def _assembled(start: int, s: Scenario) -> Iterator[None]:
    """Create the device of an image; with a pool, as after any power cut."""
    disk = f"/dev/disk/by-id/virtio-{IMAGES_DISK}"
    if not s.cache_mb:
        with mapped(_NAME, f"0 {s.sectors} linear {disk} {start}"):
            yield
        return
    inside.run("insmod", s.module)
    with at_end(inside.unload_module):
        s = dataclasses.replace(s, origin_delay_ms=0)
        with record.pool(disk, start, s), mapped(_NAME, record.volume_table(s)):
            yield


def _image(load: Path, start: int, s: Scenario, result: Path) -> None:
    device = f"/dev/mapper/{_NAME}"
    with _assembled(start, s):
        if s.cache_mb:
            result.with_suffix(".crc").write_text(str(checksum(device)))
        if s.fs:
            _examine(load, s.fs, device, result.with_suffix(".dump"))


def main() -> None:
    """Examine all images."""
    p = argparse.ArgumentParser(prog="python -m tests.powercut.mount", description=__doc__)
    p.add_argument("load", type=Path)
    p.add_argument("folder", type=Path)
    a = p.parse_args()
    inside.run("modprobe", "-a", "dm-mod", "libcrc32c", "ext4", "xfs")
    images = json.loads((a.folder / "images.json").read_text())
    for number, image in enumerate(images):
        result = a.folder / str(number)
        try:
            with step(f"image {number}"):
                _image(a.load, image["start"], scenario.load(Path(image["scenario"])), result)
        except inside.InsideError as error:
            result.with_suffix(".error").write_text(describe(error))


if __name__ == "__main__":
    with explained("powercut"):
        main()
