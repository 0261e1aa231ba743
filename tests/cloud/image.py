# SPDX-License-Identifier: Apache-2.0
"""Nova's environment as a disk image, from which nova-compute starts much faster.

Over 9p, each of about ten thousand files is opened and read by calls to the machine, without a
cache. Under emulation, this takes minutes.
"""

import os
from pathlib import Path

from tests.box import inside

_MIB = 1 << 20


def of_folder(folder: Path, image: Path, mark: Path) -> Path:
    """Create an image of a folder, unless an up-to-date one exists.

    :param mark: a file that changes whenever the folder does
    """
    if image.exists() and image.stat().st_mtime > mark.stat().st_mtime:
        return image
    new = image.with_suffix(".new")
    new.unlink(missing_ok=True)
    files = [Path(where) / name for where, _, names in os.walk(folder) for name in names]
    blocks = sum(-(-path.lstat().st_size // 4096) for path in files)
    # Inodes, directories and metadata of the file system: a fifth, determined by experiment.
    size = (blocks * 4096 + len(files) * 512) * 6 // 5 // _MIB + 16
    inside.run("mkfs.ext4", "-q", "-O", "^has_journal", "-N", str(len(files) * 5 // 4 + 1024),
               "-m", "0", "-d", str(folder), str(new), f"{size}M", timeout=600)
    new.rename(image)
    return image
