# SPDX-License-Identifier: Apache-2.0
"""In User Mode Linux: make the devices and run check on them.

``python -m tests.xfstests.inside DEVICE FS RESULTS TEST...``, in the folder of xfstests.
Prints a line ``unit SECONDS`` and then what check prints.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.box import disks, inside
from tests.xfstests.report import OURS

# In MiB. Some tests are not run on a file system of less than a gigabyte.
_TEST_MB, _SCRATCH_MB, _LOG_MB, _CACHE_MB = 1024, 1536, 1024, 512

_MKFS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}

# Users that tests run programs as.
_USERS = ("fsgqa", "fsgqa2", "123456-fsgqa")
_FIRST_ID = 2000

_UNIT_RUNS = 50
_UNIT = f"i=0; while [ $i -lt {_UNIT_RUNS} ]; do /bin/true; i=$((i+1)); done"


def unit() -> float:
    """Return how long a shell takes to run a program: tests do little else."""
    start = time.monotonic()
    subprocess.run(["sh", "-c", _UNIT], check=True)
    return (time.monotonic() - start) / _UNIT_RUNS


def _null_block(name: str, mb: int) -> contextlib.AbstractContextManager[str]:
    """Make a disk of memory with a volatile cache, FUA and discard."""
    return disks.null_block(name, size=mb, memory_backed=1, blocksize=512, discard=1,
                            cache_size=mb)


def _sectors(mb: int) -> int:
    return mb * 2048


def stack(devices: contextlib.ExitStack, kind: str) -> None:
    """Make /dev/mapper/test and /dev/mapper/scratch.

    :param kind: OURS: two volumes of a pool in writeback mode; else dm-linear
    """
    sizes = {"test": _TEST_MB, "scratch": _SCRATCH_MB}
    below = {name: devices.enter_context(_null_block(f"null-{name}", mb))
             for name, mb in sizes.items()}
    if kind == OURS:
        cache = devices.enter_context(_null_block("null-cache", _CACHE_MB))
        pool = devices.enter_context(
            disks.mapped("pool", f"0 {_sectors(_CACHE_MB)} vcache-pool {cache}"))
        # The table takes the kernel's name for the pool; without udev there is no link to it.
        number = os.minor(os.stat(pool).st_rdev)
        tables = {name: f"vcache writeback {below[name]} volume {volume} "
                        f"3 pool /dev/dm-{number} {volume}"
                  for volume, name in enumerate(sizes, 1)}
    else:
        tables = {name: f"linear {below[name]} 0" for name in sizes}
    for name, mb in sizes.items():
        devices.enter_context(disks.mapped(name, f"0 {_sectors(mb)} {tables[name]}"))


def _add_users() -> None:
    """Add users and their groups, in the copy-on-write view of /etc."""
    with open("/etc/passwd", "a") as passwd, open("/etc/group", "a") as group:
        for number, name in enumerate(_USERS, _FIRST_ID):
            passwd.write(f"{name}:x:{number}:{number}::/tmp:/bin/bash\n")
            group.write(f"{name}:x:{number}:\n")


def _without_udev() -> None:
    """See to it that nobody waits for udev, which does not run here.

    libdevmapper makes the nodes itself if it is asked to. check would call `udevadm wait`,
    which waits for ever.
    """
    os.environ["DM_DISABLE_UDEV"] = "1"
    program = shutil.which("udevadm")
    if program:
        inside.run("mount", "--bind", "/bin/true", program)


def main(kind: str, fs: str, results: str, tests: list[str]) -> int:
    """Make the devices, run check and return its exit status."""
    _without_udev()
    devices = contextlib.ExitStack()
    inside.run("modprobe", "null_blk", "nr_devices=0")
    if kind == OURS:
        inside.load_module()
    stack(devices, kind)
    log = devices.enter_context(_null_block("null-log", _LOG_MB))
    _add_users()
    places = {"TEST_DIR": "/run/xfstests/test", "SCRATCH_MNT": "/run/xfstests/scratch"}
    for place in places.values():
        Path(place).mkdir(parents=True)
    inside.run(*_MKFS[fs], "/dev/mapper/test")
    print(f"unit {unit():.6f}", flush=True)
    environment = {
        **os.environ, **places, "FSTYP": fs, "TEST_DEV": "/dev/mapper/test",
        "SCRATCH_DEV": "/dev/mapper/scratch", "LOGWRITES_DEV": log, "RESULT_BASE": results,
        # No configuration of whoever built it.
        "HOST_OPTIONS": "/dev/null"}
    status = subprocess.run(["./check", "--exact-order", *tests], env=environment,
                            stdin=subprocess.DEVNULL, check=False).returncode
    sys.stdout.flush()
    # The machine ends with this, and its devices with it: a test may have left one in use.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
