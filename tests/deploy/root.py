# SPDX-License-Identifier: Apache-2.0
"""Roots of Debian 13."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build" / "deploy"
SUITE = "trixie"
# What a host of OpenStack has before our roles.
_PACKAGES = ("ca-certificates", "libvirt-daemon-system", "nova-api", "nova-scheduler", "python3",
             "python3-apt", "systemd")


def _mirror() -> str:
    words = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)",
                            "Identifier: Packages"], check=True, capture_output=True, text=True)
    return next(line for line in words.stdout.split() if "security" not in line)


def archive(name: str, packages: Sequence[str]) -> Path:
    """Return a root with some packages as build/deploy/NAME.tar, which is made once."""
    archive = BUILD / f"{name}.tar"
    if not archive.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(".new.tar")
        subprocess.run(
            ["mmdebstrap", "-q", "--variant=minbase", "--skip=cleanup/apt/lists",
             f"--include={','.join(packages)}", SUITE, str(new),
             f"deb {_mirror()} {SUITE} main"], check=True)
        new.rename(archive)
    return archive


def unpack(root: Path) -> None:
    """Make a root of a host of OpenStack, which can reach the package sources of this machine."""
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(archive("root", _PACKAGES)), "-C", str(root)], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
