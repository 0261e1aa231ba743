# SPDX-License-Identifier: Apache-2.0
"""A node of devstack in the sandbox: its local.conf, its phases, its state."""

import configparser
import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.cloud.processes import BIN, free_port
from tests.devstack import ROOT
from tests.devstack.sandbox import Sandbox

INSIDE = Path(__file__).parent / "inside"
STACK = Path("/opt/stack")
VENV = STACK / "data/venv"
KERNEL_COMMANDS = ("losetup", "dmsetup", "blockdev", "vcache", "blkid", "mkfs.ext4", "mount",
                   "umount", "mountpoint", "findmnt", "modprobe")
SERVICES = {
    "single": "key,rabbit,mysql,n-api,n-cpu,n-cond,n-sch,placement-api,placement-client",
    "controller": "key,rabbit,mysql,n-api,n-cond,n-sch,placement-api,placement-client",
    "compute": "n-cpu,placement-client"}
# Files that change by themselves, or differ each time.
_RESTLESS = ("var/log/", "var/cache/", "var/lib/apt/", "run/", "tmp/", "root/.cache/",
             "opt/stack/.cache/", "var/lib/vcache/agent.sqlite")


def libraries() -> Path:
    """Return the folder with Nova, Keystone and their dependencies."""
    return Path(sysconfig.get_path("purelib"))


@functools.cache
def apache_port() -> int:
    """Return the port of every node's Apache: Keystone has only one endpoint for it."""
    return free_port()


def prepare(sandbox: Sandbox, devstack: Path) -> None:
    """Do the steps of stack.sh before it first calls plugins."""
    inside = sandbox.root / "opt/inside"
    shutil.copytree(INSIDE, inside)
    shutil.copy(BIN / "uwsgi", inside / "uwsgi")
    stack = sandbox.root / STACK.relative_to("/")
    shutil.copytree(devstack, stack / "devstack", ignore=shutil.ignore_patterns(".git"))
    _copy_ours(stack / "nova-vcache")
    sandbox.run("/opt/inside/prepare.sh", os.path.realpath(sys.executable), *KERNEL_COMMANDS)


def _copy_ours(to: Path) -> None:
    """Copy the files of this tree that git tracks."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\0")
    except subprocess.CalledProcessError:
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()
                  and path.relative_to(ROOT).parts[0] not in ("build", ".venv", ".git")]
    for name in listed:
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    # pbr gets the version from git, or from this.
    (to / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: nova-vcache\nVersion: 0.1.0.dev1\n")


class Node:
    """One node, from local.conf on.

    :param layout: its services, a key of SERVICES
    :param settings: further lines of local.conf
    """

    def __init__(self, sandbox: Sandbox, layout: str, keystone: str, rabbit: str,
                 settings: dict[str, str]) -> None:
        self._sandbox = sandbox
        self.root = sandbox.root
        self._keystone = keystone if layout != "compute" else ""
        sandbox.node()
        port = apache_port()
        (self.root / "etc/apache2/ports.conf").write_text(f"Listen 127.0.0.1:{port}\n")
        self.url = f"http://127.0.0.1:{port}/vcache"
        lines = {
            "HOST_IP": "127.0.0.1", "SERVICE_HOST": "127.0.0.1", "API_WORKERS": "2",
            "RABBIT_HOST": rabbit, "RABBIT_USERID": "guest", "RABBIT_PASSWORD": "guest",
            "VCACHE_SERVICE_HOST": f"127.0.0.1:{port}", "ENABLED_SERVICES": SERVICES[layout],
            **settings}
        (self.root / "opt/stack/devstack/local.conf").write_text(
            "[[local|localrc]]\n" + "".join(f"{key}={value}\n" for key, value in lines.items())
            + "enable_plugin nova-vcache /opt/stack/nova-vcache\n")
        self._lab = ["LAB_KEYSTONE=" + keystone, "LAB_CLOUD=" + self._keystone]
        self.run("prepare")
        self.systemctl_calls()
        self._before = self.files()

    def run(self, *phase: str) -> str:
        """Run a phase; return its output."""
        return self._phase(*phase, check=True).stdout

    def fails(self, *phase: str) -> str:
        """Run a phase that must fail; return its output."""
        done = self._phase(*phase, check=False)
        assert done.returncode, f"{phase} did not fail: {done.stdout[-2000:]}"
        return done.stdout

    def _phase(self, *phase: str, check: bool) -> subprocess.CompletedProcess[str]:
        return self._sandbox.run("env", *self._lab, "bash", "/opt/inside/node.sh", *phase,
                                 user="stack", check=check)

    def twice(self, *phase: str) -> None:
        """Run a phase twice. The second run must not change anything."""
        self.run(*phase)
        before = self.files()
        self.run(*phase)
        after = self.files()
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        assert not changed, f"{phase} changed {sorted(changed)} when it was run again"

    def command(self, *words: str, check: bool = True) -> str:
        """Run a command of the node's operator."""
        return self._sandbox.run(*words, user="stack", check=check).stdout

    def files(self) -> dict[str, str]:
        """Return the changed files, without those that always change."""
        return {name: what for name, what in self._sandbox.files().items()
                if "__pycache__" not in name and not name.startswith(_RESTLESS)}

    def left(self) -> dict[str, str]:
        """Return the files that differ from the state before the first phase."""
        now = self.files()
        return {name: now.get(name, "not there") for name in now | self._before
                if now.get(name) != self._before.get(name)
                and not now.get(name, "").startswith("folder")}

    def ini(self, path: str) -> configparser.RawConfigParser:
        """Read a configuration file; the last value of a repeated option counts."""
        # [DEFAULT] is a section like the others.
        found = configparser.RawConfigParser(strict=False, default_section="")
        found.read_string(self.read(path))
        return found

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path.lstrip("/")).read_text()

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return os.path.lexists(self.root / path.lstrip("/"))

    def _calls(self, path: str) -> list[list[str]]:
        try:
            lines = self.read(path).splitlines()
        except FileNotFoundError:
            return []
        (self.root / path.lstrip("/")).unlink()
        return [json.loads(line) for line in lines]

    def systemctl_calls(self) -> list[str]:
        """Return the calls of systemctl since the last call of this method."""
        return [" ".join(call) for call in self._calls("/run/lab-systemd/calls")]

    def kernel_calls(self) -> list[str]:
        """Return the intended changes of the kernel since the last call of this method."""
        return [" ".join(call) for call in self._calls("/run/lab-kernel-calls")]

    def unit(self, service: str) -> configparser.RawConfigParser:
        """Return devstack's unit of a service."""
        return self.ini(f"/etc/systemd/system/devstack@{service}.service")

    def runs(self, service: str) -> bool:
        """Return whether a service's process exists."""
        return not self._sandbox.run("systemctl", "is-active", f"devstack@{service}.service",
                                     check=False).returncode

    def log(self, service: str) -> str:
        """Return the output of a service's process."""
        return self.read(f"/run/lab-systemd/devstack@{service}.service.log")
