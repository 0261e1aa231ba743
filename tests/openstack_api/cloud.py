# SPDX-License-Identifier: Apache-2.0
"""The services of tests/cloud, with hosts whose agents only answer."""

import uuid

from tests.box.steps import at_end
from tests.cloud.control import Control
from tests.cloud.processes import BIN, Process, free_port, run, uwsgi
from tests.openstack.agents import FakeAgent

_NOVA = """
[DEFAULT]
transport_url = fake://
state_path = {folder}
[api_database]
connection = {api_database}
[database]
connection = {database}
"""
_HOST = """
[DEFAULT]
transport_url = {bus}
[host]
node = {node}
admin_socket = {socket}
look_interval = 0.3
report_interval = 1
placement_interval = 2
close_after = 4
agent_timeout = 2
[oslo_messaging_rabbit]
kombu_reconnect_delay = 0.2
rabbit_retry_interval = 1
heartbeat_timeout_threshold = 10
[placement]
"""


class HostProcess:
    """A compute host: a real vcache-host, and an agent that only answers."""

    def __init__(self, cloud: "Cloud", node: str) -> None:
        self.node = node
        self.agent = FakeAgent()
        self._socket = cloud.folder / f"{node}.sock"
        self._server = self.agent.serve(self._socket)
        config = cloud.write(f"{node}.conf", _HOST, cloud.credentials("vcache"),
                             bus=cloud.bus, node=node, socket=self._socket)
        self.process = Process(cloud.folder, f"host-{node}", [
            str(BIN / "vcache-host"), "--config-file", str(config)])

    def stop_agent(self) -> None:
        self._server.stop()

    def start_agent(self) -> None:
        self._server = self.agent.serve(self._socket)

    def close(self) -> None:
        with at_end(self._server.stop):
            self.process.stop()


class Cloud(Control):
    """All services."""

    def nova_api(self) -> str:
        """Run nova-api with our validators. It has flavors, but no computes."""
        port = free_port()
        config = str(self.write(
            "nova.conf", _NOVA, self.tokens(self.service_user), database=self.database("nova"),
            api_database=self.database("nova-api")))
        for name, words in (("api_db", ["api_db", "sync"]), ("db", ["db", "sync", "--local_cell"])):
            run(self.folder, f"nova-manage-{name}", "nova-manage", "--config-file", config, *words)
        paste = BIN.parent / "etc/nova/api-paste.ini"
        made = uwsgi(self.folder, "nova-api", "nova.wsgi.osapi_compute", port,
                     OS_NOVA_CONFIG_FILES=f"{paste};{config}")
        self.at_end("nova-api", made.stop)
        url = f"http://127.0.0.1:{port}/v2.1"
        self.register("compute", url)
        return url

    def compute_node(self, node: str) -> str:
        """Create a compute node's provider, as nova-compute does."""
        made = str(uuid.uuid4())
        answer = self.placement("POST", "/resource_providers", json={"name": node, "uuid": made})
        assert answer.status_code < 300, answer.text
        return made

    def host(self, node: str, *, registered: bool = True) -> HostProcess:
        """Run a compute host."""
        if registered:
            self.compute_node(node)
        host = HostProcess(self, node)
        self.at_end(node, host.close)
        return host
