# SPDX-License-Identifier: Apache-2.0
"""A complete OpenStack: Control, Glance and Nova, and compute hosts in boxes."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.box.steps import at_end
from tests.cloud import glance
from tests.cloud.compute import ComputeHost
from tests.cloud.control import Control
from tests.cloud.database import Database
from tests.cloud.memory import pss_mib
from tests.cloud.processes import BIN, Process, free_port, run, uwsgi, wait_for

DATABASES = ["keystone", "placement", "glance", "nova_api", "nova_cell0", "nova_cell1"]

_NOVA = """
[DEFAULT]
transport_url = {bus}
state_path = {folder}/nova
my_ip = 127.0.0.1
allow_resize_to_same_host = true
service_down_time = 90
rpc_response_timeout = 180
manager_shutdown_timeout = 2
graceful_shutdown_timeout = 2
[api]
auth_strategy = keystone
[wsgi]
api_paste_config = {etc}/nova/api-paste.ini
[api_database]
connection = {api_database}
[database]
connection = {database}
[oslo_concurrency]
lock_path = {folder}/nova/locks
[scheduler]
workers = 1
[conductor]
workers = 1
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = nova_vcache.scheduler.filter.VCacheFilter
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,VCacheFilter
weight_classes = nova.scheduler.weights.all_weighers,nova_vcache.scheduler.weigher.VCacheWeigher
[vcache]
auth_section = placement
valid_interfaces = public
summary_interval = 2
"""
_CLIENTS = ("placement", "glance", "neutron", "service_user")


class AllInOne(Control):
    """The services on this machine's loopback, and one or two compute hosts in boxes.

    :param folder: folder for all files; its contents are deleted
    :param say: called with a description of each step
    :param hosts: number of hosts; two can migrate instances to each other; with none, the caller
        starts a host, and calls await_hypervisors()
    """

    # Everything is ten times slower in the box.
    api_options = "stale_after = 30\nhosts_interval = 1\nrpc_timeout = 60"
    services = ("nova", "glance")
    inward = "10.0.2.2"

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None, *,
                 hosts: int = 1) -> None:
        self._say = say
        self.wanted_hosts = hosts
        self.nova_url = ""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AssertionError(f"another one runs in {folder}") from None
            # For the lifetime of this object.
            self._lock = os.dup(lock.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        super().__init__(folder)

    def start(self) -> None:
        """Start everything, in order."""
        if self.wanted_hosts > 1:
            run(self.folder, "ssh-keygen", "/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "",
                "-f", str(self.folder / "key"))
        self.hosts = []
        for number in range(1, self.wanted_hosts + 1):
            host = ComputeHost(self, number)
            self.at_end(host.node, host.close, host.box)
            self.hosts.append(host)
            self.host = self.hosts[0]
            self._say(f"{host.node}: booting")
        self._say("MariaDB")
        self._database = Database(self.folder / "mariadb", DATABASES)
        self.at_end("MariaDB", self._database.close, self._database.process)
        self._say("Keystone, Placement, RabbitMQ, vcache-api")
        super().start()
        self._say("Glance")
        self.glance_url = glance.start(self, "glance")
        self._say("nova-api, nova-scheduler, nova-conductor")
        self._nova()
        for host in self.hosts:
            self._say(f"{host.node}: waiting until it has booted")
            host.await_booted()
            self._say(f"{host.node}: {host.summary}")
        if self.hosts:
            self._say("waiting for nova-compute")
            self.await_hypervisors({host.node for host in self.hosts})

    def database(self, name: str) -> str:
        """Return the URL of a database."""
        return self._database.url(name)

    def close(self) -> None:
        """Stop everything; Ctrl-C does not interrupt this."""
        self._say("ending it")
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        with at_end(os.close, self._lock), at_end(signal.signal, signal.SIGINT, before):
            super().close()

    def client_sections(self, user: str, interface: str) -> str:
        """Return the sections of nova.conf for services of which Nova is a client."""
        text = self.credentials(user)
        if interface == "internal":
            text = self.outward(text)
        made = "".join(f"[{name}]\nvalid_interfaces = {interface}\nregion_name = RegionOne\n{text}"
                       for name in _CLIENTS)
        return made + "[service_user]\nsend_service_user_token = true\n"

    def _nova(self) -> None:
        etc = BIN.parent / "etc"
        config = self.write(
            "nova.conf", _NOVA, self.client_sections("nova", "public"), self.tokens("nova"),
            bus=self.bus, etc=etc, api_database=self.database("nova_api"),
            database=self.database("nova_cell1"))
        self._config = config
        self.nova_manage("api_db", "sync")
        self.nova_manage("cell_v2", "map_cell0", "--database_connection",
                         self.database("nova_cell0"))
        self.nova_manage("cell_v2", "create_cell", "--name", "cell1")
        self.nova_manage("db", "sync")
        port = free_port()
        self.nova_api = uwsgi(
            self.folder, "nova-api", "nova.wsgi.osapi_compute", port,
            OS_NOVA_CONFIG_FILES=f"{etc}/nova/api-paste.ini;{config}",
            OS_NOVA_DISABLE_EVENTLET_PATCHING="1")
        self.at_end("nova-api", self.nova_api.stop, self.nova_api)
        self.nova_url = f"http://127.0.0.1:{port}/v2.1"
        self.register("compute", self.nova_url)
        self.nova: dict[str, Process] = {}
        for name in ("nova-conductor", "nova-scheduler"):
            self.nova[name] = Process(self.folder, name, [
                str(BIN / name), "--config-file", str(config)],
                {"OS_NOVA_DISABLE_EVENTLET_PATCHING": "1"})
            self.at_end(name, self.nova[name].stop, self.nova[name])

    def nova_manage(self, *words: str) -> None:
        """Run nova-manage."""
        run(self.folder, "nova-manage", "nova-manage", "--config-file", str(self._config), *words)

    def await_hypervisors(self, nodes: set[str]) -> None:
        """Wait until Nova can schedule instances to the hosts."""
        wait_for(lambda: nodes <= self.computes(), "nova-compute is up", 900)
        self.nova_manage("cell_v2", "discover_hosts")
        self.await_states(300, **dict.fromkeys(nodes, "up"))

    def computes(self) -> set[str]:
        """Return the hosts whose nova-compute is up, according to Nova."""
        found = self.compute("GET", "/os-services?binary=nova-compute").json()["services"]
        return {item["host"] for item in found if item["state"] == "up"}

    def compute(self, method: str, path: str, **options: Any) -> Any:
        """Send a request to nova-api."""
        return self.people["admin"].session.request(
            self.nova_url + path, method, raise_exc=False, headers={
                "OpenStack-API-Version": "compute 2.96"}, **options)

    def memory(self) -> dict[str, int]:
        """Return the memory of the running processes in MiB, by service."""
        return {name: pss_mib(process.pid) for name, process in self.running.items()}

    def show(self, *words: str) -> Any:
        """Run the command openstack; return its output."""
        done = self.openstack(*words, "-f", "json")
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def await_server(self, server: str, status: str, seconds: float = 600.0) -> dict[str, Any]:
        """Wait until an instance is in a state, without a task in progress."""
        end = time.monotonic() + seconds
        while True:
            found: dict[str, Any] = self.compute("GET", f"/servers/{server}").json()["server"]
            if found["status"] == status and found["OS-EXT-STS:task_state"] is None:
                return found
            assert found["status"] != "ERROR" or status == "ERROR", found.get("fault")
            assert time.monotonic() < end, f"{found['status']}, not {status}: {found}"
            time.sleep(0.5)
