# SPDX-License-Identifier: Apache-2.0
"""A root file system of a compute host: ours as the install guide prints it, and Nova of PyPI."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.reboot import guide, roots

#: What a compute host of Nova has before the guide begins. Its commands install the rest.
_PACKAGES = (
    "apparmor", "apt", "ca-certificates", "dbus", "dmsetup", "e2fsprogs", "initramfs-tools",
    "iproute2", "kmod", "libvirt-daemon-driver-qemu", "libvirt-daemon-system", "linux-image-amd64",
    "lvm2", "python3", "python3-libvirt", "python3-venv", "qemu-system-x86", "qemu-utils",
    "systemd", "systemd-sysv", "udev", "util-linux", "xfsprogs")
#: Where the root has Nova, and our sources.
NOVA, SOURCES = "/opt/nova", "/root/nova-vcache"
#: The address of the root on QEMU's user network.
ADDRESS = "10.0.2.15"
_IMAGE_BYTES = 8 << 30

_SHELL_UNIT = """[Unit]
Description=Commands of the test
DefaultDependencies=no
After=local-fs.target
[Service]
ExecStart=/usr/local/sbin/reboot-test
[Install]
WantedBy=multi-user.target
"""
_COMPUTE_UNIT = f"""[Unit]
Description=nova-compute
# The last one: when the host stops, Nova must not see how its instances end.
After=network-online.target libvirtd.service libvirt-guests.service
Wants=network-online.target
[Service]
Environment=OS_NOVA_DISABLE_EVENTLET_PATCHING=1
ExecStart={NOVA}/bin/nova-compute --config-file /etc/nova/nova.conf
Restart=on-failure
[Install]
WantedBy=multi-user.target
"""
_NETWORK = f"""[Match]
Name=en*
[Network]
Address={ADDRESS}/24
"""


def _inside(root: Path, script: str, log: Path) -> None:
    """Run a script in a root that is not booted; its output is added to a log."""
    (root / "proc").mkdir(exist_ok=True)
    # Not in a place that a package of the root replaces.
    trusted = root / "var/lib/vtest/trusted.crt"
    trusted.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", trusted)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    env = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    env |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
                            "/var/lib/vtest/trusted.crt")}
    with log.open("a") as file:
        done = subprocess.run(
            ["unshare", "--mount", "chroot", str(root), "bash", "-c",
             f"set -e; mount -t proc proc /proc; {script}"],
            check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env)
    assert done.returncode == 0, f"{script}: exit status {done.returncode}, see {log}"


def _requirement() -> str:
    """Return the range of Nova that the other tests use."""
    lines = (roots.REPO / "tests/openstack/requirements.txt").read_text().splitlines()
    return next(line.split("#")[0].strip() for line in lines if line.startswith("nova>"))


def _with_nova(name: str) -> Path:
    """Return the archive of a root with Nova in an environment of its own."""
    wanted = _requirement()
    archive = roots.BUILD / f"{name}-{wanted.replace('>', '').replace('<', '')}.tar"
    if not archive.exists():
        plain = roots.base(name, _PACKAGES, "-plain")
        root = roots.BUILD / f"{name}-plain"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        subprocess.run(["tar", "-xf", str(plain), "-C", str(root)], check=True)
        # libvirt's binding is the package's, as it must fit the library.
        _inside(root, f"python3 -m venv --system-site-packages {NOVA}; "
                f"{NOVA}/bin/pip install -q --no-cache-dir --disable-pip-version-check "
                f"'{wanted}' 'SQLAlchemy<2.1'; "
                f"{NOVA}/bin/python -m compileall -q {NOVA}/lib || true; "
                f"{NOVA}/bin/nova-compute --version", roots.BUILD / f"{name}-nova.log")
        new = archive.with_suffix(".new.tar")
        subprocess.run(["tar", "-cf", str(new), "-C", str(root), "."], check=True)
        new.rename(archive)
        shutil.rmtree(root)
    return archive


def build(name: str) -> Path:
    """Make a root, run in it the guide's commands that need no running system, make a disk.

    :return: the folder, with ``disk.img``, ``vmlinuz`` and ``initrd.img``
    """
    folder = roots.BUILD / f"{name}-nova"
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(_with_nova(name)), "-C", str(root)], check=True)
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(roots.REPO), f"{root}{SOURCES}"],
                   check=True)
    # The guide's reader answers apt's questions with "yes".
    (root / "etc/apt/apt.conf.d/90test").write_text('APT::Get::Assume-Yes "true";\n')
    for command in offline():
        print(f"    {command}", flush=True)
        _inside(root, f"cd {SOURCES}; {command}", folder / "guide.log")
    shutil.rmtree(f"{root}{SOURCES}/build/bindep")
    _configure(root)
    roots.make_disk(root, folder, _IMAGE_BYTES)
    shutil.rmtree(root)
    return folder


def offline() -> list[str]:
    """Return the guide's commands that run before the boot: an emulated compiler takes minutes."""
    first, second = guide.blocks("With packages")
    return guide.commands(first) + [
        line for line in guide.commands(second) if line.startswith("apt-get ")
    ] + guide.commands(guide.blocks("vcache-host", guide.API)[0])


def online() -> list[str]:
    """Return the rest of the commands that install the packages."""
    return [line for line in guide.commands(guide.blocks("With packages")[1])
            if not line.startswith("apt-get ")]


def _configure(root: Path) -> None:
    roots.configure(root, "shell.py", _SHELL_UNIT)
    (root / "etc/hostname").write_text("compute1\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 compute1\n")
    (root / "etc/systemd/system/nova-compute.service").write_text(_COMPUTE_UNIT)
    (root / "etc/systemd/network").mkdir(exist_ok=True)
    (root / "etc/systemd/network/10-test.network").write_text(_NETWORK)
    # The guest of the test ignores requests to shut down. By default, each restart waits 300 s.
    (root / "etc/default/libvirt-guests").write_text("ON_SHUTDOWN=shutdown\nSHUTDOWN_TIMEOUT=10\n")
    for words in (["enable", "-q", "systemd-networkd"], ["unmask", "-q", "libvirt-guests.service"]):
        subprocess.run(["chroot", str(root), "systemctl", *words], check=True)
