# SPDX-License-Identifier: Apache-2.0
"""The cloud of tests/openstack_api, with what the pages of Horizon also ask, and Horizon."""

import os
import sys
from pathlib import Path

from tests.cloud import glance
from tests.cloud.processes import BIN, Process, free_port, listens, run, wait_for
from tests.openstack.agents import GIB, uuid_of
from tests.openstack_api.cloud import Cloud

ROOT = Path(__file__).parents[3]
#: The environment that .ci/horizon-venv has made.
VENV = ROOT / "build/horizon/venv"


#: In the project "mine": name, host and number of its agent's instance.
INSTANCES = (("database", "compute1", 1), ("web", "compute1", 2), ("build", "compute2", 3))


class HorizonCloud(Cloud):
    """All services."""

    # No test is about hosts that answer late, and a page asks several services.
    api_options = "stale_after = 60\nhosts_interval = 1\nrpc_timeout = 60"

    def start(self) -> None:
        """Start everything, in order."""
        super().start()
        glance.start(self, self.service_user)
        self._nova()
        self._hosts()
        self._horizon()

    def _nova(self) -> None:
        self.nova = self.nova_api()
        config = str(self.folder / "nova.conf")

        def manage(*words: str) -> None:
            run(self.folder, "nova-manage", "nova-manage", "--config-file", config, *words)

        manage("cell_v2", "map_cell0", "--database_connection", self.database("nova-cell0"))
        manage("cell_v2", "create_cell", "--name", "cell1")
        manage("db", "sync")
        for name, specs in (("m1.db", {"vcache:mode": "writeback", "vcache:slo_flush_ms": "0.5"}),
                            ("m1.plain", {})):
            answer = self.compute("POST", "/flavors", json={"flavor": {
                "name": name, "ram": 512, "vcpus": 1, "disk": 1}})
            if specs:
                self.compute("POST", f"/flavors/{answer['flavor']['id']}/os-extra_specs",
                             json={"extra_specs": specs})
        user = self.people["member"].session.get_user_id()
        run(self.folder, "seed", sys.executable, str(Path(__file__).with_name("seed.py")), config,
            self.projects["mine"], str(user), "m1.db",
            *(f"{uuid_of(number)}={name}={host}" for name, host, number in INSTANCES))

    def compute(self, method: str, path: str, **options: object) -> dict:
        """Send a request to nova-api as an administrator."""
        answer = self.people["admin"].session.request(
            self.nova + path, method, headers={"OpenStack-API-Version": "compute 2.86"}, **options)
        return dict(answer.json())

    def extra_specs(self, flavor: str) -> dict[str, str]:
        """Return the extra specs of a flavor."""
        (found,) = [item for item in self.compute("GET", "/flavors/detail")["flavors"]
                    if item["name"] == flavor]
        return dict(found["extra_specs"])

    def _hosts(self) -> None:
        self.hosts = {node: self.host(node) for node in ("compute1", "compute2")}
        first, second = (host.agent for host in self.hosts.values())
        first.add(1, self.projects["mine"], slo_flush_ms=0.5, min_mb=1024, weight=200)
        first.add(2, self.projects["mine"], slo_flush_ms=5.0)
        first.add(9, self.projects["theirs"], mode="flush-only")
        second.add(3, self.projects["mine"], mode="writethrough")
        first.answer["disks"][0]["missed"] = [{
            "objective": "slo_flush_ms", "cause": "neighbour", "measured": 0.9, "promised": 0.5,
            "text": "the p99 of its flushes is 0.9 ms, the objective 0.5 ms: much more traffic "
                    "than usual comes from tag 2 on device 254:0"}]
        first.answer["disks"][1] |= {"hit_ratio": 0.42, "flush_p50_us": 210.0}
        first.answer["pools"][0] |= {
            "used_bytes": 6 * GIB, "free_bytes": 4 * GIB, "dirty_bytes": 2 * GIB,
            "lanes_bytes": [6 * GIB, 2 * GIB, 2 * GIB], "lanes_free": 1, "lanes": [
                {"size_bytes": 6 * GIB, "free_bytes": 2 * GIB, "dedicated": False, "uuid": ""},
                {"size_bytes": 2 * GIB, "free_bytes": GIB // 4, "dedicated": True,
                 "uuid": uuid_of(1)},
                {"size_bytes": 2 * GIB, "free_bytes": 2 * GIB, "dedicated": False, "uuid": ""}]}
        self.await_states(300, compute1="up", compute2="up")

    def _horizon(self) -> None:
        folder = self.folder / "horizon"
        (folder / "sessions").mkdir(parents=True)
        port = free_port()
        environment = {
            "HORIZON_FOLDER": str(folder), "HORIZON_KEYSTONE": self.auth_url,
            "DJANGO_SETTINGS_MODULE": "tests.horizon.browser.settings", "PYTHONPATH": str(ROOT)}
        # The server of build/openstack/venv, with the packages of Horizon's own.
        made = Process(self.folder, "horizon", [
            str(BIN / "uwsgi"), "--http-socket", f"127.0.0.1:{port}", "--home", str(VENV),
            "--module", "django.core.wsgi:get_wsgi_application()", "--master", "--lazy-apps",
            "--threads", "4", "--enable-threads", "--buffer-size", "65535", "--die-on-term",
            "--need-app", "--static-map", f"/static={static()}", "--add-header",
            "Connection: close"], environment)
        self.at_end("horizon", made.stop, made)
        wait_for(lambda: listens(port), "Horizon", 120)
        self.dashboard = f"http://127.0.0.1:{port}"


def static() -> Path:
    """Return the folder of Horizon's static files, which the virtual environment has."""
    (found,) = VENV.glob("lib/python3*/site-packages/static")
    return found


# Variables of the caller's environment, which would override the files.
for _name in [name for name in os.environ if name.startswith("OS_")]:
    del os.environ[_name]
