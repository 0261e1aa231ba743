# SPDX-License-Identifier: Apache-2.0
"""In the box: a compute host, started step by step, that executes commands from a socket.

Runs with the Python of the agent's hosts. Nova uses another environment.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from tests.box import inside
from tests.box.inside import progress, run
from tests.box.limits import limit
from tests.box.steps import Stack, explained, step
from tests.cloud.memory import pss_mib
from tests.host import lab
from vcache_agent.admin_client import ask
from vcache_agent.cmd.cli import main as vcache
from vcache_agent.model import Tag

PORT = 7000
INSTANCES = Path("/var/lib/nova/instances")
DEVICE = Path("/dev/mapper/nova-instances")
#: MiB of the disk with the images, and of the SSD in front of it. Both use memory only for written
#: parts.
DISK_MB, SSD_MB = 8192, 256

_SSH = Path("/etc/vcache-lab")
_SSHD = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
UsePAM no
Subsystem sftp internal-sftp
"""
_SSH_CLIENT = """
Host 192.0.2.*
    IdentityFile {folder}/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    BatchMode yes
"""

_NULLB = Path("/sys/kernel/config/nullb")
_VENV = Path(sys.executable).parent


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a host from the machine: box.json."""

    node: str
    key: str
    bin: str
    folder: str
    address: str


class Program:
    """A program of the host that can be stopped and started."""

    def __init__(self, folder: Path, name: str, command: list[str],
                 env: Mapping[str, str] | None = None) -> None:
        self._log = folder / f"{name}.log"
        self._command = command
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return its process ID."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, env=self._env, cwd="/",
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, kill: bool = False) -> None:
        """Stop it, as systemd does, or with SIGKILL."""
        assert self._process is not None
        if kill:
            self._process.kill()
        inside.stop(self._process, self._log.stem, 120)


class Host:
    """A compute host; its public methods can be called from the machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        folder, nova = self._folder, Path(settings.bin)
        self._programs = {
            "vcache-agent": Program(folder, "vcache-agent", [
                str(_VENV / "vcache-agent"), "--debug"]),
            "vcache-host": Program(folder, "vcache-host", [
                str(nova / "vcache-host"), "--config-file", str(folder / "vcache-host.conf")]),
            "nova-compute": Program(folder, "nova-compute", [
                str(nova / "nova-compute"), "--config-file", "/etc/nova/nova.conf"],
                {"OS_NOVA_DISABLE_EVENTLET_PATCHING": "1"})}
        # Resources for the lifetime of the box.
        self._lasting = Stack()

    def begin(self) -> None:
        """Start everything; programs wait for the services that they need."""
        run("hostname", self._settings.node)
        with step("network"):
            self._network()
        progress("the target, with a pool before it")
        with step("storage"):
            self._storage()
        progress("vcache-agent, libvirtd with the hook")
        lab.AGENT_CONF.parent.mkdir(parents=True, exist_ok=True)
        lab.AGENT_CONF.write_text("[agent]\nswap_after = 3\n")
        lab.set_hook(timeout=lab.HOOK_PATIENCE)
        with step("vcache-agent"):
            self.start("vcache-agent")
        with step("libvirtd"):
            self._libvirt()
        progress("vcache-host, nova-compute")
        self.start("vcache-host")
        self._nova_conf()
        self.start("nova-compute")

    def _network(self) -> None:
        run("ip", "link", "set", "lo", "up")
        # In the order in which they were given to the box.
        devices = sorted((path for path in Path("/sys/class/net").iterdir()
                          if path.name != "lo"), key=lambda path: (path / "device").resolve())
        # Addresses of QEMU's user network for a guest.
        run("ip", "address", "add", "10.0.2.15/24", "dev", devices[0].name)
        for device in devices[1:]:
            # Otherwise, the network cards of both boxes would have the same address.
            run("ip", "link", "set", device.name, "address",
                f"52:54:00:00:00:{self._settings.address.rpartition('.')[2]:0>2}")
            run("ip", "address", "add", f"{self._settings.address}/24", "dev", device.name)
            self._ssh()
        for device in devices:
            run("ip", "link", "set", device.name, "up")

    def _ssh(self) -> None:
        """Accept the SSH connections of the other host, for migrations by Nova: one key for all."""
        _SSH.mkdir()
        for name, mode in (("key", 0o600), ("key.pub", 0o644)):
            shutil.copy(self._folder.parent / name, _SSH / name)
            (_SSH / name).chmod(mode)
        (_SSH / "sshd_config").write_text(_SSHD.format(folder=_SSH))
        Path("/etc/ssh/ssh_config").write_text(_SSH_CLIENT.format(folder=_SSH))
        # A locked account cannot log in, whatever its key. The file is a mount over the machine's
        # file, so it cannot be replaced by a rename.
        Path("/etc/shadow").write_text("root:*:::::::\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        run("/usr/sbin/sshd", "-f", str(_SSH / "sshd_config"))

    def _storage(self) -> None:
        inside.load_module("buffer_mb=64")
        run("modprobe", "null_blk", "nr_devices=0")
        for name, size in (("hdd", DISK_MB), ("ssd", SSD_MB)):
            (_NULLB / name).mkdir()
            for key, value in (("size", size), ("memory_backed", 1), ("discard", 1), ("power", 1)):
                (_NULLB / name / key).write_text(str(value))
        sectors = run("blockdev", "--getsz", "/dev/hdd").strip()
        run("dmsetup", "create", DEVICE.name, "--table",
            f"0 {sectors} vcache flush-only /dev/hdd filesystem")
        run("dmsetup", "mknodes", DEVICE.name)
        run("mkfs.ext4", "-q", str(DEVICE))
        INSTANCES.mkdir(parents=True)
        run("mount", str(DEVICE), str(INSTANCES))
        # In this process, since starting Python takes seconds.
        for words in (["pool", "create", "fast", "/dev/ssd"],
                      ["attach", str(DEVICE), "--pool", "fast", "--filesystem"]):
            if vcache(words):
                raise inside.InsideError(f"vcache {' '.join(words)} failed")

    def _libvirt(self) -> None:
        self._lasting.enter_context(inside.libvirt(hook=lab.timed_hook()))

    def _nova_conf(self) -> None:
        Path("/etc/nova").mkdir(exist_ok=True)
        shutil.copy(self._folder / "nova.conf", "/etc/nova/nova.conf")
        with open("/etc/nova/nova.conf", "a") as file:
            file.write(f"[libvirt]\nvirt_type = {inside.domain_type()}\n")

    def summary(self) -> str:
        """Return a line with the running programs."""
        return (f"Linux {os.uname().release}, domains of type {inside.domain_type()}, "
                f"{DISK_MB} MiB of disk, {SSD_MB} MiB of SSD")

    def memory(self) -> dict[str, int]:
        """Return the MiB of the programs of this host, and of the whole box."""
        found = {name: pss_mib(program.pid) for name, program in self._programs.items()}
        words = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        used = int(words["MemTotal"].split()[0]) - int(words["MemAvailable"].split()[0])
        return {**found, "all": used >> 10}

    def start(self, name: str) -> None:
        """Start a program; for the agent, wait until it answers."""
        self._programs[name].start()
        if name == "vcache-agent":
            lab.eventually(lab.ADMIN_SOCKET.exists, "the agent's socket")

    def stop(self, name: str, kill: bool = False) -> None:
        """Stop a program."""
        self._programs[name].stop(kill)

    def run(self, *command: str) -> tuple[int, str, str]:
        """Run a command; return its status, output and errors."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=limit(300))
        return done.returncode, done.stdout, done.stderr

    def tags(self) -> list[Tag]:
        """Return the kernel's tags without the host tag."""
        return list(lab.tags(lab.number_of(DEVICE)).values())

    def agent(self, op: str) -> Any:
        """Return the agent's status."""
        return ask(lab.ADMIN_SOCKET, {"op": op}, seconds=lab.PATIENCE)

    def hook_runs(self, domain: str) -> list[dict[str, Any]]:
        """Return the hook calls of libvirt for a domain, and the duration of each."""
        return [dataclasses.asdict(item) for item in lab.hook_runs(domain)]

    def io(self, uuid: str, command: str, target: str = "sda") -> None:
        """Do I/O with an instance's QEMU, such as ``write 0 64k`` or ``flush``."""
        import libvirt_qemu  # type: ignore[import-untyped]
        device = f"scsi0-0-0-{ord(target[-1]) - ord('a')}"
        with lab.connection() as libvirt:
            answer = str(libvirt_qemu.qemuMonitorCommand(
                libvirt.lookupByUUIDString(uuid), f'qemu-io -d {device} "{command}"',
                libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)).strip()
        if answer:
            raise inside.InsideError(f"{uuid}: qemu-io {command}: {answer}")


def serve(host: Host, channel: Connection) -> None:
    """Execute the requests of one connection until it ends."""
    while True:
        try:
            name, arguments = channel.recv()
        except EOFError:
            return
        try:
            if name.startswith("_"):
                raise AttributeError(name)
            answer = (True, getattr(host, name)(*arguments))
        except BaseException:  # the caller handles it
            answer = (False, traceback.format_exc())
        channel.send(answer)


def main() -> None:
    """Start the host, then serve."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    host = Host(settings)
    with explained(settings.node, AssertionError):
        host.begin()
    progress(f"{settings.node} is ready")
    with Listener(("0.0.0.0", PORT), authkey=bytes.fromhex(settings.key)) as listener:  # noqa: S104
        while True:
            threading.Thread(target=serve, args=(host, listener.accept()), daemon=True).start()


if __name__ == "__main__":
    main()
