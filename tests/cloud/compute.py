# SPDX-License-Identifier: Apache-2.0
"""A compute host in a box, as seen from the machine."""

import json
import secrets
import threading
import time
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.box.kernels import default
from tests.box.limits import limit
from tests.cloud import image
from tests.cloud.processes import BIN, Process, free_port

if TYPE_CHECKING:
    from tests.cloud.nova import AllInOne

REPO = Path(__file__).resolve().parents[2]
# The tools of the box are not in Nova's environment.
_BOX_PYTHON = REPO / ".venv" / "bin" / "python"
_VENV = BIN.parent

_COMPUTE = """
[DEFAULT]
host = {node}
my_ip = {address}
transport_url = {bus}
state_path = /var/lib/nova
instances_path = /var/lib/nova/instances
compute_driver = libvirt.LibvirtDriver
force_raw_images = true
# A resize would make qcow2 of the disk, which its domain then has as raw.
use_cow_images = false
allow_resize_to_same_host = true
reserved_host_memory_mb = 0
report_interval = 10
service_down_time = 90
rpc_response_timeout = 180
manager_shutdown_timeout = 2
graceful_shutdown_timeout = 2
# No guest of ours heeds ACPI.
shutdown_timeout = 1
[libvirt]
images_type = raw
cpu_mode = none
live_migration_scheme = ssh
live_migration_inbound_addr = {address}
[workarounds]
# The hosts' processor is emulated, and lacks what libvirt takes its model to have.
skip_cpu_compare_on_dest = true
[oslo_concurrency]
lock_path = /run/lock/nova
[oslo_messaging_rabbit]
kombu_reconnect_delay = 0.2
rabbit_retry_interval = 1
[vnc]
enabled = false
[nova_sys_admin]
helper_command = {bin}/privsep-helper --config-file /etc/nova/nova.conf
[privsep_osbrick]
helper_command = {bin}/privsep-helper --config-file /etc/nova/nova.conf
"""
_HOST = """
[DEFAULT]
transport_url = {bus}
[host]
node = {node}
look_interval = 5
report_interval = 10
placement_interval = 15
close_after = 20
agent_timeout = 30
[oslo_messaging_rabbit]
kombu_reconnect_delay = 0.2
rabbit_retry_interval = 1
[placement]
"""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Port of inside.py.
_INSIDE_PORT = 7000
_BOOT_SECONDS = 900.0


def write_configuration(cloud: "AllInOne", node: str, address: str, programs: Path,
                        more: str = "") -> Path:
    """Write nova.conf and vcache-host.conf of a compute host; return their folder.

    :param node: the name of the host
    :param address: its address
    :param programs: the folder with nova-compute on the host
    :param more: further sections of nova.conf
    """
    folder = cloud.folder / node
    folder.mkdir()
    bus = cloud.outward(cloud.bus)
    cloud.write(f"{node}/nova.conf", _COMPUTE, more, cloud.client_sections("nova", "internal"),
                bus=bus, node=node, bin=programs, address=address)
    cloud.write(f"{node}/vcache-host.conf", _HOST, cloud.outward(cloud.credentials("vcache")),
                bus=bus, node=node)
    return folder


class ComputeHost:
    """One box with all services of a compute host.

    It boots while the other services start: its programs wait for those.

    :param cloud: the cloud of the host
    :param number: 1 or 2
    """

    def __init__(self, cloud: "AllInOne", number: int) -> None:
        self.node = f"compute{number}"
        self.address = f"192.0.2.{number}"
        self.folder = write_configuration(cloud, self.node, self.address, BIN)
        self.summary = ""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._channel: Connection | None = None
        self._key = secrets.token_bytes(16)
        self._port = free_port()
        (self.folder / "box.json").write_text(json.dumps({
            "node": self.node, "key": self._key.hex(), "bin": str(BIN),
            "folder": str(self.folder), "address": self.address}))
        disk = image.of_folder(_VENV, _VENV.parent / "venv.img", _VENV / "complete")
        # On a machine without spare processors, the two processors of a box wait for each other.
        self.box = Process(self.folder, "box", [
            str(_BOX_PYTHON), "-m", "tests.box", "--kernel", default(), "--cpus", "1",
            "--memory", "3G", "--timeout", str(24 * 3600), f"--disk-ro=venv={disk}",
            f"--env=PATH={_VENV}/bin:{_PATH}",
            f"--netdev=user,hostfwd=tcp:127.0.0.1:{self._port}-:{_INSIDE_PORT}",
            *self._link(cloud, number), "--",
            "sh", "-c", 'mount -o ro "$1" "$2" && exec "$2/bin/python" -m tests.cloud.inside "$3"',
            "sh", "/dev/disk/by-id/virtio-venv", str(_VENV), str(self.folder / "box.json")],
            cwd=REPO)

    def _link(self, cloud: "AllInOne", number: int) -> list[str]:
        """Return the option for a network between two hosts; they migrate over it."""
        if cloud.wanted_hosts == 1:
            return []
        here, there = (cloud.folder / f"link{item}" for item in (number, 3 - number))
        return [f"--netdev=dgram,local.type=unix,local.path={here},"
                f"remote.type=unix,remote.path={there}"]

    def await_booted(self) -> None:
        """Wait until the host accepts connections."""
        while self._channel is None:
            self._assert_runs()
            try:
                # QEMU accepts the connection at once. Only an answer shows that a program listens
                # inside.
                channel = Client(("127.0.0.1", self._port), authkey=self._key)
            except (OSError, EOFError):
                time.sleep(1)
                continue
            self._channel = channel
        self.summary = str(self.call("summary"))

    def _assert_runs(self) -> None:
        seconds = time.monotonic() - self._began
        assert self.box.runs, f"{self.node}: the box ended, see {self.box.log}:\n{self.tail()}"
        assert seconds < limit(_BOOT_SECONDS), f"{self.node}: not ready after {seconds:.0f} s:" \
                                        f"\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of the output of the box."""
        return self.box.log.read_text(errors="replace")[-3000:]

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of inside.Host on the host.

        :raises AssertionError: with the error on the host
        """
        with self._lock:
            assert self._channel is not None, f"{self.node} is not ready"
            self._channel.send((name, arguments))
            good, value = self._channel.recv()
        assert good, f"{self.node}: {name}{arguments}: {value}"
        return value

    def log(self, name: str) -> str:
        """Return the log of one of its programs, such as nova-compute."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stop the box; its memory is lost."""
        self.box.stop(60)
