# SPDX-License-Identifier: Apache-2.0
"""Runs in the box: mounts crash images, so that their file systems recover.

    python -m tests.powercut.mount LOAD FOLDER

LOAD is the load generator. FOLDER has images.json, a list of objects with fs,
start and sectors: the images on the disk that IMAGES_DISK names. For image
number N the folder gets N.dump, what its files hold, or N.error.
"""

import argparse
import json
import subprocess
from pathlib import Path

from tests.box import inside

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
    try:
        inside.run(str(load), "dump", str(MOUNT), str(dump))
    finally:
        inside.run("umount", str(MOUNT))
    inside.run(*_CHECK[fs], device)


def main() -> None:
    """Examine all images."""
    p = argparse.ArgumentParser(prog="python -m tests.powercut.mount", description=__doc__)
    p.add_argument("load", type=Path)
    p.add_argument("folder", type=Path)
    a = p.parse_args()
    inside.run("modprobe", "-a", "dm-mod", "ext4", "xfs")
    images = json.loads((a.folder / "images.json").read_text())
    for number, image in enumerate(images):
        table = (f"0 {image['sectors']} linear /dev/disk/by-id/virtio-{IMAGES_DISK} "
                 f"{image['start']}")
        inside.run("dmsetup", "create", _NAME, "--table", table)
        try:
            _examine(a.load, image["fs"], f"/dev/mapper/{_NAME}", a.folder / f"{number}.dump")
        except inside.InsideError as error:
            (a.folder / f"{number}.error").write_text(str(error))
        finally:
            inside.run("dmsetup", "remove", "--retry", _NAME)


if __name__ == "__main__":
    try:
        main()
    except (inside.InsideError, OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"powercut: {error}") from error
