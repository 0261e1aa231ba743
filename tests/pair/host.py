# SPDX-License-Identifier: Apache-2.0
"""One of the two hosts, in its machine: link, target, pool, libvirtd, agent, relay.

Both machines run this. The second one, ``python -m tests.pair.host``, executes the calls of
the first one. The volume ``/dev/mapper/vol`` is the shared disk on both; each host has a
pool of its own for it, and a file system for images.

The relay takes questions of an agent to the other host, as vcache-host does, but without a
message bus. tests/openstack has the tests of vcache-host's relay.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import libvirt

from tests.box import inside
from tests.box.disks import mapped
from tests.box.inside import progress, run
from tests.box.limits import limit
from tests.box.steps import Stack, explained
from tests.host import lab
from tests.pair.vm import Vm
from vcache_agent.admin_client import AdminError, NotHere, ask
from vcache_agent.migration.messages import MESSAGE_BYTES
from vcache_agent.model import Tag
from vcache_agent.netlink.client import Client as Kernel
from vcache_agent.unix_server import UnixServer

CALLS, RELAY = 7000, 7001
KEY = b"two machines"
VOLUME = Path("/dev/mapper/vol")
TAG = 4001
FOLDER = Path("/run/instances")
_SHARED = "/dev/disk/by-id/virtio-shared"
RELAY_SOCKET = Path("/run/vcache-host/relay.sock")

_LIBVIRTD = """
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
host_uuid = "00000000-0000-4000-8000-00000000000{number}"
"""
# A machine on a busy host is slow; the limits under test are others.
_AGENT = """
[agent]
refresh_interval = 1
locate_timeout = 5
prepare_timeout = 10
[libvirt]
list_interval = 3600
[migration]
wait = {wait}
grace = {grace}
"""


def address(number: int) -> str:
    """Return the address of a host."""
    return f"192.0.2.{number}"


class Host:
    """A host; its public methods can be called from the other machine.

    :param number: 1 or 2
    :param write_ms: delay of each write of the shared disk, as of a slow one
    """

    def __init__(self, number: int, write_ms: int = 0) -> None:
        self.number = number
        self._write_ms = write_ms
        self.agent = lab.Agent()
        self.vm = Vm()
        self.silent = False
        self._migration: threading.Thread | None = None
        self._result = ""

    @contextlib.contextmanager
    def lasting(self) -> Iterator[None]:
        """Have everything run."""
        run("hostname", f"host{self.number}")
        with open("/etc/hosts", "a") as file:  # libvirt would wait for a name server
            file.write("".join(f"{address(item)} host{item}\n" for item in (1, 2)))
        run("ip", "link", "set", "vec0", "up")
        run("ip", "address", "add", f"{address(self.number)}/24", "dev", "vec0")
        with open("/etc/libvirt/libvirtd.conf", "a") as file:
            file.write(_LIBVIRTD.format(number=self.number))
        lab.set_hook(timeout=lab.HOOK_PATIENCE)
        inside.load_module("buffer_mb=32")
        run("modprobe", "brd", "rd_nr=2", "rd_size=131072")
        self.configure()
        with Stack() as stack:
            stack.enter_context(self._relay())
            stack.enter_context(inside.libvirt(hook=lab.timed_hook(), options=["--listen"]))
            device = stack.enter_context(
                lab.mapped("instances", Path("/dev/ram0"), "filesystem"))
            stack.enter_context(lab.mounted(device, FOLDER))
            below = stack.enter_context(mapped(
                "slow", f"0 131072 delay {_SHARED} 0 0 {_SHARED} 0 {self._write_ms}"))
            stack.enter_context(mapped("vol", f"0 131072 linear {below} 0"))
            run("dmsetup", "mknodes", "vol")
            self.agent.start()
            stack.callback(self.agent.stop)
            lab.cli("pool", "create", "lab", "/dev/ram1")
            stack.callback(lab.cli, "pool", "remove", "lab")
            lab.cli("attach", "vol", "--pool", "lab", "--tag", str(TAG))
            stack.callback(lab.cli, "detach", "vol")
            progress(f"host {self.number} is ready")
            yield

    def configure(self, wait: float = 20.0, grace: float = 5.0) -> None:
        """Write the agent's configuration."""
        lab.AGENT_CONF.parent.mkdir(parents=True, exist_ok=True)
        lab.AGENT_CONF.write_text(_AGENT.format(wait=wait, grace=grace))

    # ---- what the other host may call ----

    def ready(self) -> None:
        """Do nothing."""

    def silence(self, silent: bool) -> None:
        """Let the relay answer nothing."""
        self.silent = silent

    def agent_kill(self) -> None:
        """Kill the agent, and start it again."""
        self.agent.kill()
        self.agent.start()

    def agent_stop(self) -> None:
        """Stop the agent."""
        self.agent.stop()

    def agent_start(self) -> None:
        """Start the agent."""
        self.agent.start()

    def cli(self, *arguments: str) -> str:
        """Run the command vcache."""
        return lab.cli(*arguments)

    def tag(self) -> Tag:
        """Return the volume's tag."""
        with Kernel() as kernel:
            return kernel.tag(lab.number_of(VOLUME), TAG)

    def disk(self, name: str) -> dict[str, Any] | None:
        """Return the agent's view of the disk of a domain."""
        return self.agent.disks().get((name, "vda"))

    def moves(self) -> list[str]:
        """Return what the agent has recorded of migrations."""
        folder = Path("/var/lib/vcache/moves")
        return sorted(path.read_text() for path in folder.iterdir()) if folder.is_dir() else []

    def hooks(self, name: str) -> list[tuple[str, int, float]]:
        """Return the calls of the hook for a domain: operation, status, seconds."""
        return [(item.operation, item.status, item.seconds) for item in lab.hook_runs(name)]

    def make_image(self, name: str, layout: str) -> None:
        """Create an image, for a domain here or for a copy.

        :param layout: ``raw``, or ``qcow2`` over a base that both hosts have, as Nova does
        """
        if layout == "raw":
            lab.image(FOLDER / name, 16)
        else:
            lab.overlay(FOLDER / name, lab.image(FOLDER / "base", 16))

    def start(self, name: str, path: str, specs: dict[str, str], layout: str = "raw") -> None:
        """Start a domain, and wait until its guest answers."""
        self.vm.start(name, Path(path), specs, layout)

    def running(self) -> list[str]:
        """Return the names of the domains that are active."""
        return inside.domains()

    def send(self, name: str, command: str) -> None:
        """Send a command to the load generator of a guest."""
        self.vm.send(name, command)

    def reply(self, name: str) -> dict[str, Any]:
        """Return its next reply on this host."""
        return self.vm.reply(name)

    def poll(self, name: str) -> dict[str, Any] | None:
        """Return its next reply on this host, if it is there already."""
        return self.vm.poll(name)

    def migrating(self) -> bool:
        """Return whether a migration goes on."""
        return self._migration is not None and self._migration.is_alive()

    def end(self, name: str) -> None:
        """Stop and undefine a domain, in any state."""
        self.vm.end(name)

    def begin_migration(self, name: str, copy: str = "", bandwidth: int = 0) -> None:
        """Begin to migrate a domain to the other host, as Nova does.

        :param copy: layout of its image, which is copied; of a qcow2 image, without the base
        :param bandwidth: in MiB/s; 0: unlimited
        """
        there = address(3 - self.number)
        flags = (libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER
                 | libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE)
        if copy:
            flags |= libvirt.VIR_MIGRATE_NON_SHARED_DISK if copy == "raw" \
                else libvirt.VIR_MIGRATE_NON_SHARED_INC
        parameters: dict[str, Any] = {"migrate_uri": f"tcp://{there}"}
        if bandwidth:
            parameters["bandwidth"] = bandwidth

        def work() -> None:
            try:
                with lab.connection() as host:
                    host.lookupByName(name).migrateToURI3(
                        f"qemu+tcp://{there}/system", parameters, flags)
                self._result = ""
            except libvirt.libvirtError as error:
                self._result = str(error)

        self._migration = threading.Thread(target=work)
        self._migration.start()

    def end_migration(self) -> str:
        """Wait for the end of the migration; return the error, or nothing."""
        assert self._migration is not None
        self._migration.join(limit(lab.PATIENCE))
        assert not self._migration.is_alive(), f"the migration has not ended:\n{self.log()}"
        return self._result

    def log(self) -> str:
        """Return the end of the logs."""
        files = [lab.AGENT_LOG, *Path("/var/log/libvirt").rglob("*.log")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-2500:]}"
                         for path in files if path.exists())

    def await_copy(self, name: str) -> None:
        """Wait until the migration of a domain copies memory."""
        with lab.connection() as host:
            domain = host.lookupByName(name)
            lab.eventually(lambda: domain.jobStats().get("memory_total", 0) > 0, "it copies")

    def cancel(self, name: str) -> None:
        """Cancel the migration of a domain."""
        with lab.connection() as host:
            host.lookupByName(name).abortJob()

    def pid(self, name: str) -> int | None:
        """Return the process ID of the QEMU of a domain; None: there is none."""
        return self.vm.pid(name)

    def kill_vm(self, name: str) -> None:
        """Kill the QEMU of a domain as soon as it is there."""
        pid = lab.eventually(lambda: self.vm.pid(name), "its QEMU")
        os.kill(pid, 9)

    # ---- the relay ----

    @contextlib.contextmanager
    def _relay(self) -> Iterator[None]:
        server = UnixServer(RELAY_SOCKET, self._ask, request_bytes=MESSAGE_BYTES, seconds=60.0)
        server.start()
        listener = socket.create_server((address(self.number), RELAY))
        threading.Thread(target=self._answer, args=(listener,), daemon=True).start()
        yield
        listener.close()
        server.stop()

    def _ask(self, request: bytes) -> bytes:
        """Send a question to the other host, and wait for the answer."""
        question = json.loads(request)
        try:
            with socket.create_connection((address(3 - self.number), RELAY), 10) as there:
                there.settimeout(question["seconds"])
                there.sendall(json.dumps(question | {
                    "seconds": question["seconds"] * 0.75}).encode() + b"\n")
                answer = there.makefile("rb").readline(MESSAGE_BYTES)
        except OSError as error:
            return json.dumps({"ok": False, "error": str(error)}).encode()
        return answer or b'{"ok": false, "error": "no other host has answered"}'

    def _answer(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    question = json.loads(connection.makefile("rb").readline(MESSAGE_BYTES))
                    if self.silent:
                        continue
                    try:
                        answer = ask(lab.ADMIN_SOCKET, {"op": "migration", **question}, 60.0)
                    except NotHere:
                        continue
                    except AdminError as error:
                        answer = {"ok": False, "error": str(error)}
                    connection.sendall(json.dumps(answer).encode() + b"\n")


class Remote:
    """The other host, for the tests: its methods are those of Host."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._channel: Connection | None = None

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._call(name, arguments, options)

    def connect(self) -> None:
        """Wait until the host is ready."""
        deadline = time.monotonic() + limit(lab.PATIENCE)
        while self._channel is None:
            try:
                self._channel = Client((address(self._number), CALLS), authkey=KEY)
            except OSError:
                assert time.monotonic() < deadline, "the other machine is not there"
                time.sleep(0.5)

    def _call(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        assert self._channel is not None
        self._channel.send((name, arguments, options))
        good, value = self._channel.recv()
        assert good, f"host {self._number}: {name}{arguments}: {value}"
        return value

    def close(self) -> None:
        """Let the machine end."""
        assert self._channel is not None
        self._channel.close()


def _serve(host: Host) -> None:
    """Execute calls until the connection ends."""
    with Listener((address(host.number), CALLS), authkey=KEY) as listener:
        # Without the first machine, this one must end, too.
        alone = threading.Timer(limit(lab.PATIENCE), os._exit, (1,))
        alone.daemon = True
        alone.start()
        channel = listener.accept()
        alone.cancel()
        with channel, contextlib.suppress(EOFError):
            while True:
                name, arguments, options = channel.recv()
                try:
                    channel.send((True, getattr(host, name)(*arguments, **options)))
                except Exception as error:
                    text = "".join(traceback.format_exception(error))
                    channel.send((False, f"{text}\n{host.agent.log()[-3000:]}"))


def main() -> int:
    """Be the second host."""
    host = Host(int(os.environ["VCACHE_PAIR"]), int(os.environ.get("VCACHE_WRITE_MS", "0")))
    with explained("pair"), host.lasting():
        _serve(host)
    return 0


if __name__ == "__main__":
    sys.exit(main())
