# SPDX-License-Identifier: Apache-2.0
"""Roots of Debian 13."""

import shutil
import subprocess
from pathlib import Path

from tests.reboot.roots import REPO, base

BUILD = REPO / "build" / "deploy"
ROOT = "debian13"
# What a host of OpenStack has before our roles.
_PACKAGES = ("ca-certificates", "libvirt-daemon-system", "nova-api", "nova-scheduler", "python3",
             "python3-apt", "systemd")


def unpack(root: Path) -> None:
    """Make a root of a host of OpenStack, which can reach the package sources of this machine."""
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(base(ROOT, _PACKAGES, "-openstack")), "-C", str(root)],
                   check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    # As on a host that is in use.
    subprocess.run(["chroot", str(root), "apt-get", "update", "-q"], check=True,
                   stdout=subprocess.DEVNULL)


def minimal() -> Path:
    """Return the archive of a root that is the base of containers."""
    return base(ROOT, ["ca-certificates"], "-container")
