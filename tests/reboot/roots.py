# SPDX-License-Identifier: Apache-2.0
"""Root file systems of Debian releases with our packages, as disk images."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build" / "reboot"
SUITES = {"debian12": "bookworm", "debian13": "trixie"}
_PACKAGES = (
    "apt", "dbus", "dkms", "dmsetup", "e2fsprogs", "initramfs-tools", "kmod",
    "libvirt-daemon-system", "linux-headers-amd64", "linux-image-amd64", "lvm2", "python3",
    "systemd",
    "systemd-sysv", "udev", "util-linux", "xfsprogs")
_UNIT = """[Unit]
Description=Test of vcache
After=vcache-agent.service libvirtd.service local-fs.target srv-a.mount srv-b.mount
[Service]
Type=simple
ExecStart=/usr/local/sbin/reboot-test
[Install]
WantedBy=multi-user.target
"""
# They take time, and have nothing to do with us.
_MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
           "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "libvirt-guests.service",
           "systemd-binfmt.service", "systemd-update-utmp.service", "getty@tty1.service",
           "serial-getty@ttyS0.service")
IMAGE_BYTES = 4 << 30


def _mirror() -> str:
    words = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)",
                            "Identifier: Packages"], check=True, capture_output=True, text=True)
    return next(line for line in words.stdout.split() if "security" not in line)


def base(name: str, packages: Sequence[str] = _PACKAGES, kind: str = "") -> Path:
    """Return the archive of a root without our packages.

    :param kind: distinguishes archives with different packages
    """
    archive = BUILD / f"{name}{kind}.tar"
    if not archive.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(".new.tar")
        subprocess.run(
            ["mmdebstrap", "-q", "--variant=minbase", f"--include={','.join(packages)}",
             SUITES[name], str(new), f"deb {_mirror()} {SUITES[name]} main"], check=True)
        new.rename(archive)
    return archive


def _newer(package: Path, to: Path) -> None:
    """Write the same package with a newer version to a folder."""
    tree = to / "tree"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    text = control.read_text()
    version = re.search(r"^Version: (.*)$", text, re.MULTILINE)
    assert version, package
    control.write_text(text.replace(version[1], f"{version[1]}+newer"))
    subprocess.run(["dpkg-deb", "-b", "-Znone", str(tree), str(to / package.name)], check=True,
                   stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def build(name: str, packages: list[Path]) -> Path:
    """Install our packages with apt in a root, and make a disk of it.

    :return: the folder, with ``disk.img``, ``vmlinuz`` and ``initrd.img``
    """
    folder = BUILD / name
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(base(name)), "-C", str(root)], check=True)
    _install(root, packages, folder / "install.log")
    configure(root)
    make_disk(root, folder)
    shutil.rmtree(root)
    return folder


def _install(root: Path, packages: list[Path], log: Path) -> None:
    """Install the packages, and upgrade the module to one with a newer version."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "debs").mkdir()
    newer = root / "var/lib/vtest/newer"
    newer.mkdir(parents=True)
    for package in packages:
        shutil.copy(package, root / "debs")
        _newer(package, newer)
    script = ("set -e; mount -t proc proc /proc; export DEBIAN_FRONTEND=noninteractive; "
              "apt-get update -q; install='apt-get install -y -q --no-install-recommends'; "
              "$install /debs/nova-vcache-agent_*.deb /debs/nova-vcache-dkms_*.deb "
              "/debs/python3-nova-vcache_*.deb /debs/python3-vcache-guest_*.deb; rm -r /debs; "
              "ls /lib/modules/*/updates/dkms; "
              # Here and not in the guest, which would compile for minutes.
              "$install /var/lib/vtest/newer/nova-vcache-dkms_*.deb; "
              "ls /lib/modules/*/updates/dkms; dkms status")
    with log.open("w") as file:
        subprocess.run(["unshare", "--mount", "chroot", str(root), "sh", "-c", script],
                       check=True, stdout=file, stderr=file)


def configure(root: Path, program: str = "guest.sh", unit: str = _UNIT) -> None:
    """Let a root run the test, on a processor that may be slow.

    :param program: name of a file beside this one, which the unit runs
    """
    (root / "etc/systemd/system/reboot-test.service").write_text(unit)
    shutil.copy(Path(__file__).with_name(program), root / "usr/local/sbin/reboot-test")
    (root / "usr/local/sbin/reboot-test").chmod(0o755)  # noqa: S103 - a program
    limits = root / "etc/systemd/system.conf.d/slow.conf"
    limits.parent.mkdir(exist_ok=True)
    limits.write_text("[Manager]\nDefaultTimeoutStartSec=infinity\nDefaultTimeoutStopSec=infinity\n"
                      "DefaultDeviceTimeoutSec=infinity\n")
    subprocess.run(["chroot", str(root), "systemctl", "mask", "-q", *_MASKED], check=True)
    subprocess.run(["chroot", str(root), "systemctl", "enable", "-q", "reboot-test"], check=True)
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")


def make_disk(root: Path, folder: Path, size: int = IMAGE_BYTES) -> None:
    """Make a disk of a root, with a size in bytes."""
    for kind in ("vmlinuz", "initrd.img"):
        newest = sorted((root / "boot").glob(f"{kind}-*"))[-1]
        shutil.copy(newest, folder / kind)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(folder / "disk.img"),
                    f"{size >> 10}k"], check=True)
