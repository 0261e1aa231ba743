# SPDX-License-Identifier: Apache-2.0
"""Start Keystone, Placement, RabbitMQ and vcache-api, in half a minute."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from keystoneauth1 import session
from keystoneauth1.identity import v3

from tests.box.steps import each, on_error, step
from tests.cloud import shell
from tests.cloud.processes import Process, free_port, run, uwsgi, wait_for
from tests.cloud.rabbit import Rabbit

PASSWORD = "secret"  # noqa: S105

_KEYSTONE = """
[database]
connection = {database}
[fernet_tokens]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credentials
[cache]
enabled = false
[identity]
# Each command and service asks for tokens. To check a password takes 0.4 s by default.
password_hash_rounds = 4
"""
_CLIENT = """
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
connection = {database}
[api]
auth_strategy = keystone
"""
_TOKENS = """
[keystone_authtoken]
www_authenticate_uri = {auth}
interface = public
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
[placement]
valid_interfaces = public
"""


class Person:
    """A user with a token of one project."""

    def __init__(self, auth_url: str, name: str, project: str) -> None:
        auth = v3.Password(auth_url=auth_url, username=name, password=PASSWORD,
                           project_name=project, user_domain_id="default",
                           project_domain_id="default")
        self.session = session.Session(auth, timeout=60)
        self.token = str(self.session.get_token())


def _close(item: tuple[str, Callable[[], None]]) -> None:
    name, close = item
    with step(f"ending {name}"):
        close()


class Control:
    """The services that do not depend on compute hosts.

    Programs find their endpoints in the catalog: those on this machine use the public ones,
    those on compute hosts the internal ones.

    :param folder: folder for all files
    """

    #: Lines of the API's section [api]: tests use short intervals.
    api_options = "stale_after = 3\nhosts_interval = 1\nrpc_timeout = 4\nbus_timeout = 8"
    #: Users of Placement, Nova and other services in Keystone.
    service_user = "vcache"
    services: tuple[str, ...] = ()
    #: Address and port of RabbitMQ; None: any port on loopback.
    rabbit_at: str | None = None
    #: Address of this machine's loopback interface on compute hosts.
    inward = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Known before anything runs, so that hosts can be configured at once.
        self._keystone_port = free_port()
        self._rabbit_at = self.rabbit_at or f"127.0.0.1:{free_port()}"
        self.auth_url = f"http://127.0.0.1:{self._keystone_port}/v3"
        self.bus = f"rabbit://guest:guest@{self._rabbit_at}/"
        self._closing: list[tuple[str, Callable[[], None]]] = []
        self.running: dict[str, Process] = {}
        with on_error(self.close):
            self.start()

    def start(self) -> None:
        """Start everything, in order."""
        self._keystone()
        self._people()
        self._placement()
        self.rabbit = Rabbit(self.folder / "rabbit", self._rabbit_at)
        self.at_end("RabbitMQ", self.rabbit.close, self.rabbit.process)
        self._api()

    def at_end(self, name: str, close: Callable[[], None], process: Process | None = None) -> None:
        """Register a function for close(), which calls the last one first.

        :param process: a process that it stops
        """
        self._closing.append((name, close))
        if process is not None:
            self.running[name] = process

    def close(self) -> None:
        """Stop everything; a failure does not prevent the rest."""
        closing, self._closing = self._closing[::-1], []
        each(_close, closing)

    def database(self, name: str) -> str:
        """Return the URL of a database."""
        return f"sqlite:///{self.folder}/{name}.sqlite?timeout=60"

    def write(self, name: str, *texts: str, **values: object) -> Path:
        """Write a configuration file."""
        path = self.folder / name
        path.write_text("".join(text.format(folder=self.folder, auth=self.auth_url, **values)
                                for text in texts))
        return path

    def credentials(self, user: str) -> str:
        """Return the options of a client on this machine."""
        return _CLIENT.format(auth=self.auth_url, user=user)

    def tokens(self, user: str) -> str:
        """Return the section of a service that validates tokens."""
        return _TOKENS.format(auth=self.auth_url) + self.credentials(user)

    def outward(self, url: str) -> str:
        """Return a service's URL for compute hosts."""
        return url.replace("127.0.0.1", self.inward)

    def _keystone(self) -> None:
        config = str(self.write("keystone.conf", _KEYSTONE, database=self.database("keystone")))
        for name in ("fernet", "credentials"):
            (self.folder / name).mkdir(mode=0o700)

        def manage(*words: str) -> None:
            run(self.folder, "keystone-manage", "keystone-manage", "--config-file", config, *words)

        manage("db_sync")
        manage("fernet_setup", "--keystone-user", "root", "--keystone-group", "root")
        manage("credential_setup", "--keystone-user", "root", "--keystone-group", "root")
        manage("bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", "RegionOne",
               "--bootstrap-admin-url", self.auth_url, "--bootstrap-public-url", self.auth_url,
               "--bootstrap-internal-url", self.outward(self.auth_url))
        made = uwsgi(self.folder, "keystone", "keystone.wsgi.api", self._keystone_port,
                     OS_KEYSTONE_CONFIG_DIR=str(self.folder),
                     OS_KEYSTONE_CONFIG_FILES="keystone.conf")
        self.at_end("keystone", made.stop, made)

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
                # The role "service" is enough for ours; it is on all compute hosts.
                *((name, "service", ["service"] if name == "vcache" else ["admin", "service"])
                  for name in (self.service_user, *self.services))):
            user = make("user", name=name, password=PASSWORD, domain_id="default")
            for role in wanted:
                admin.session.put(f"{self.auth_url}/projects/{self.projects[project]}"
                                  f"/users/{user}/roles/{roles[role]}")
            self.people[name] = Person(self.auth_url, name, project)
        self._make = make

    def _placement(self) -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        path = self.write("placement.conf", _PLACEMENT, self.tokens(self.service_user),
                          database=self.database("placement"))
        run(self.folder, "placement-manage", "placement-manage", "--config-file", str(path),
            "db", "sync")
        made = uwsgi(self.folder, "placement", "placement.wsgi.api", port,
                     OS_PLACEMENT_CONFIG_DIR=str(self.folder))
        self.at_end("placement", made.stop, made)
        self.register("placement", url)
        self.placement_url = url

    def register(self, kind: str, url: str) -> None:
        """Add a service to the catalog."""
        service = self._make("service", name=kind, type=kind)
        for interface, at in (("public", url), ("internal", self.outward(url))):
            self._make("endpoint", service_id=service, interface=interface, url=at,
                       region_id="RegionOne")

    def _api(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = self.write(
            "vcache-api.conf", _API, self.credentials("vcache"), self.tokens("vcache"),
            bus=self.bus, options=self.api_options)
        self.api = uwsgi(self.folder, "vcache-api", "nova_vcache.wsgi.api", port, processes=2,
                         OS_VCACHE_CONFIG_FILES=str(config))
        self.at_end("vcache-api", self.api.stop, self.api)
        self.register("vcache", self.url)

    def placement(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request to Placement."""
        return requests.request(method, self.placement_url + path, timeout=60, headers={
            "X-Auth-Token": self.people["admin"].token,
            "OpenStack-API-Version": "placement 1.36"}, **options)

    def environment(self, who: str = "admin", project: str = "admin") -> dict[str, str]:
        """Return the environment variables for the command openstack."""
        return {"OS_AUTH_URL": self.auth_url, "OS_USERNAME": who, "OS_PASSWORD": PASSWORD,
                "OS_PROJECT_NAME": project, "OS_USER_DOMAIN_ID": "default",
                "OS_PROJECT_DOMAIN_ID": "default", "OS_REGION_NAME": "RegionOne"}

    def openstack(self, *words: str, who: str = "admin", project: str = "admin",
                  ) -> subprocess.CompletedProcess[str]:
        """Run the command openstack."""
        return shell.openstack(words, 900, self.folder,
                               {**os.environ, **self.environment(who, project)})

    def ask(self, method: str, path: str, who: str | None = "admin", **options: Any,
            ) -> requests.Response:
        """Send a request to vcache-api."""
        headers = {"X-Auth-Token": self.people[who].token} if who in self.people else {}
        if who and who not in self.people:
            headers = {"X-Auth-Token": who}
        return requests.request(method, self.url + path, timeout=120, headers=headers, **options)

    def states(self) -> dict[str, str]:
        """Return the states of the hosts, from all processes of the API one after another."""
        found: dict[str, str] = {}
        for _ in range(4):
            for item in self.ask("GET", "/v1/hosts").json()["hosts"]:
                seen = found.setdefault(item["node"], item["state"])
                if seen != item["state"]:
                    found[item["node"]] = f"{seen} or {item['state']}"
        return found

    def await_states(self, seconds: float = 60.0, **wanted: str) -> None:
        """Wait until hosts are in the given states."""
        wait_for(lambda: wanted.items() <= self.states().items(), json.dumps(wanted), seconds)
