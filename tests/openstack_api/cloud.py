# SPDX-License-Identifier: Apache-2.0
"""Keystone, Placement, RabbitMQ, vcache-api and hosts; all of it from nothing in half a minute."""

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import requests
from keystoneauth1 import session
from keystoneauth1.identity import v3

from tests.openstack.agents import FakeAgent
from tests.openstack_api.processes import BIN, Process, free_port, run, uwsgi, wait_for
from tests.openstack_api.rabbit import Rabbit

PASSWORD = "secret"  # noqa: S105

_KEYSTONE = """
[database]
connection = sqlite:///{folder}/keystone.sqlite?timeout=60
[fernet_tokens]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credentials
[cache]
enabled = false
"""
_AUTH = """
auth_type = password
auth_url = {auth}
username = {user}
password = secret
project_name = service
user_domain_id = default
project_domain_id = default
"""
_PLACEMENT = """
[placement_database]
connection = sqlite:///{folder}/placement.sqlite?timeout=60
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = {auth}
"""
_NOVA = """
[DEFAULT]
transport_url = fake://
state_path = {folder}
[api_database]
connection = sqlite:///{folder}/nova-api.sqlite?timeout=60
[database]
connection = sqlite:///{folder}/nova.sqlite?timeout=60
"""
_API = """
[DEFAULT]
transport_url = {bus}
[api]
{options}
[oslo_messaging_notifications]
driver = messagingv2
topics = vcache_notifications
[oslo_messaging_rabbit]
kombu_reconnect_delay = 0.2
rabbit_retry_interval = 1
heartbeat_timeout_threshold = 10
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
"""


class Person:
    """A user with a token of one project."""

    def __init__(self, auth_url: str, name: str, project: str) -> None:
        auth = v3.Password(auth_url=auth_url, username=name, password=PASSWORD,
                           project_name=project, user_domain_id="default",
                           project_domain_id="default")
        self.session = session.Session(auth, timeout=60)
        self.token = str(self.session.get_token())


class HostProcess:
    """A compute host: a real vcache-host, and an agent that only answers."""

    def __init__(self, folder: Path, node: str, config: str) -> None:
        self.node = node
        self.agent = FakeAgent()
        self._socket = folder / f"{node}.sock"
        self._server = self.agent.serve(self._socket)
        (folder / f"{node}.conf").write_text(
            config.replace("{node}", node).replace("{socket}", str(self._socket)))
        self.process = Process(folder, f"host-{node}", [
            str(BIN / "vcache-host"), "--config-file", str(folder / f"{node}.conf")])

    def stop_agent(self) -> None:
        self._server.stop()

    def start_agent(self) -> None:
        self._server = self.agent.serve(self._socket)

    def close(self) -> None:
        self.process.stop()
        self._server.stop()


class Cloud:
    """All of it.

    :param folder: for all files
    """

    #: Who Placement and Nova are to Keystone, and where RabbitMQ listens; None: anywhere.
    service_user = "vcache"
    rabbit_at: str | None = None
    #: Lines of the API's section [api]: tests have no time to wait.
    api_options = "stale_after = 3\nhosts_interval = 1\nrpc_timeout = 4"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closing: list[Any] = []
        try:
            self._keystone()
            self._people()
            self._placement()
            self.rabbit = Rabbit(folder / "rabbit", self.rabbit_at)
            self._closing.append(self.rabbit.close)
            self._api()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for close in reversed(self._closing):
            close()

    def _write(self, name: str, *texts: str, **values: str) -> Path:
        path = self.folder / name
        path.write_text("".join(text.format(folder=self.folder, auth=self.auth_url, **values)
                                for text in texts))
        return path

    def _keystone(self) -> None:
        port = free_port()
        self.auth_url = f"http://127.0.0.1:{port}/v3"
        config = str(self._write("keystone.conf", _KEYSTONE))
        for name in ("fernet", "credentials"):
            (self.folder / name).mkdir(mode=0o700)

        def manage(*words: str) -> None:
            run(self.folder, "keystone-manage", "keystone-manage", "--config-file", config, *words)

        manage("db_sync")
        manage("fernet_setup", "--keystone-user", "root", "--keystone-group", "root")
        manage("credential_setup", "--keystone-user", "root", "--keystone-group", "root")
        manage("bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", "RegionOne",
               *(f"--bootstrap-{kind}-url={self.auth_url}"
                 for kind in ("admin", "internal", "public")))
        made = uwsgi(self.folder, "keystone", "keystone.wsgi.api", port,
                     OS_KEYSTONE_CONFIG_DIR=str(self.folder),
                     OS_KEYSTONE_CONFIG_FILES="keystone.conf")
        self._closing.append(made.stop)

    def _people(self) -> None:
        admin = Person(self.auth_url, "admin", "admin")
        self.people = {"admin": admin}
        self.projects: dict[str, str] = {}

        def make(kind: str, **values: Any) -> str:
            answer = admin.session.post(f"{self.auth_url}/{kind}s", json={kind: values})
            return str(answer.json()[kind]["id"])

        roles = {item["name"]: item["id"] for item in admin.session.get(
            f"{self.auth_url}/roles").json()["roles"]}
        roles["stranger"] = make("role", name="stranger")
        for project in ("mine", "theirs", "service"):
            self.projects[project] = make("project", name=project, domain_id="default")
        for name, project, wanted in (
                ("member", "mine", ["member"]), ("other", "theirs", ["member"]),
                ("nobody", "mine", ["stranger"]), ("service", "service", ["service"]),
                (self.service_user, "service", ["admin", "service"])):
            user = make("user", name=name, password=PASSWORD, domain_id="default")
            for role in wanted:
                admin.session.put(f"{self.auth_url}/projects/{self.projects[project]}"
                                  f"/users/{user}/roles/{roles[role]}")
            self.people[name] = Person(self.auth_url, name, project)
        self._make = make

    def _placement(self) -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        self._write("placement.conf", _PLACEMENT, _AUTH, user=self.service_user)
        run(self.folder, "placement-manage", "placement-manage", "--config-file",
            str(self.folder / "placement.conf"), "db", "sync")
        made = uwsgi(self.folder, "placement", "placement.wsgi.api", port,
                     OS_PLACEMENT_CONFIG_DIR=str(self.folder))
        self._closing.append(made.stop)
        self._register("placement", url)
        self.placement_url = url

    def _register(self, kind: str, url: str) -> None:
        """Have the catalog know a service."""
        service = self._make("service", name=kind, type=kind)
        for interface in ("public", "internal"):
            self._make("endpoint", service_id=service, interface=interface, url=url,
                       region_id="RegionOne")

    def _api(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = self._write(
            "vcache-api.conf", _API, "[placement]", _AUTH,
            "[keystone_authtoken]\nwww_authenticate_uri = {auth}", _AUTH, bus=self.rabbit.url,
            options=self.api_options, user="vcache")
        self._host_config = (_HOST.replace("{bus}", self.rabbit.url) + "[placement]"
                             + _AUTH.format(auth=self.auth_url, user="vcache"))
        self.api = uwsgi(self.folder, "vcache-api", "nova_vcache.wsgi.api", port, processes=2,
                         OS_VCACHE_CONFIG_FILES=str(config))
        self._closing.append(self.api.stop)
        self._register("vcache", self.url)

    def nova_api(self) -> str:
        """Have a nova-api run, with our validators; it has flavors, and nothing to run them."""
        port = free_port()
        config = str(self._write("nova.conf", _NOVA, "[keystone_authtoken]", _AUTH,
                                 user=self.service_user))
        for name, words in (("api_db", ["api_db", "sync"]), ("db", ["db", "sync", "--local_cell"])):
            run(self.folder, f"nova-manage-{name}", "nova-manage", "--config-file", config, *words)
        paste = BIN.parent / "etc/nova/api-paste.ini"
        made = uwsgi(self.folder, "nova-api", "nova.wsgi.osapi_compute", port,
                     OS_NOVA_CONFIG_FILES=f"{paste};{config}")
        self._closing.append(made.stop)
        url = f"http://127.0.0.1:{port}/v2.1"
        self._register("compute", url)
        return url

    def compute_node(self, node: str) -> str:
        """Make a compute node's provider, as nova-compute does."""
        made = str(uuid.uuid4())
        answer = self.placement("POST", "/resource_providers", json={"name": node, "uuid": made})
        assert answer.status_code < 300, answer.text
        return made

    def host(self, node: str, *, registered: bool = True) -> HostProcess:
        """Have a compute host run."""
        if registered:
            self.compute_node(node)
        host = HostProcess(self.folder, node, self._host_config)
        self._closing.append(host.close)
        return host

    def placement(self, method: str, path: str, **options: Any) -> requests.Response:
        return requests.request(method, self.placement_url + path, timeout=60, headers={
            "X-Auth-Token": self.people["admin"].token,
            "OpenStack-API-Version": "placement 1.36"}, **options)

    def openstack(self, *words: str, who: str = "admin", project: str = "admin",
                  ) -> subprocess.CompletedProcess[str]:
        """Run the command openstack."""
        return subprocess.run(
            [str(BIN / "openstack"), *words], cwd=self.folder, check=False, timeout=300,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env={
                **os.environ, "OS_AUTH_URL": self.auth_url, "OS_USERNAME": who,
                "OS_PASSWORD": PASSWORD, "OS_PROJECT_NAME": project,
                "OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default",
                "OS_REGION_NAME": "RegionOne"})

    def ask(self, method: str, path: str, who: str | None = "admin", **options: Any,
            ) -> requests.Response:
        headers = {"X-Auth-Token": self.people[who].token} if who in self.people else {}
        if who and who not in self.people:
            headers = {"X-Auth-Token": who}
        return requests.request(method, self.url + path, timeout=120, headers=headers, **options)

    def states(self) -> dict[str, str]:
        """Return the states of the hosts; of all processes of the API, one after another."""
        found: dict[str, str] = {}
        for _ in range(4):
            for item in self.ask("GET", "/v1/hosts").json()["hosts"]:
                seen = found.setdefault(item["node"], item["state"])
                if seen != item["state"]:
                    found[item["node"]] = f"{seen} or {item['state']}"
        return found

    def await_states(self, seconds: float = 60.0, **wanted: str) -> None:
        wait_for(lambda: wanted.items() <= self.states().items(), json.dumps(wanted), seconds)
