# SPDX-License-Identifier: Apache-2.0
"""vcache-api in this process: real middleware, a bus in memory, hosts with fake agents."""

import concurrent.futures
import json
import re
from typing import Any

import jsonschema
import oslo_messaging as messaging
import requests_mock
from keystonemiddleware.fixture import AuthTokenFixture
from oslo_config import cfg
from oslo_messaging import conffixture
from werkzeug.test import Client, TestResponse

from nova_vcache.api import app, openapi
from nova_vcache.api import conf as api_conf
from nova_vcache.api.backend import Backend
from nova_vcache.host.service import Endpoint, Host
from nova_vcache.placement import names
from nova_vcache.rpc import api_side, host_side
from tests.openstack.agents import PROJECT, FakeAgent

PLACEMENT = "http://placement.invalid"
CONF = f"""
[DEFAULT]
transport_url = fake://
[placement]
auth_type = none
endpoint_override = {PLACEMENT}
[api]
rpc_timeout = 1
first_wait = 5
hosts_interval = 0.2
[oslo_messaging_notifications]
driver = test
[keystone_authtoken]
auth_type = none
"""

#: By what a test calls them.
TOKENS = {
    "admin": {"project_id": "a" * 32, "role_list": ["admin", "member", "reader"]},
    "service": {"project_id": "b" * 32, "role_list": ["service"]},
    "member": {"project_id": PROJECT, "role_list": ["member", "reader"]},
    "other": {"project_id": "c" * 32, "role_list": ["member", "reader"]},
    "nobody": {"project_id": PROJECT, "role_list": ["stranger"]}}


class Answer:
    """An answer that has been held against the document."""

    def __init__(self, response: TestResponse) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.get_data(as_text=True)
        self.json: Any = json.loads(self.text) if response.mimetype == "application/json" else None

    @property
    def detail(self) -> str:
        return str(self.json["errors"][0]["detail"])


class Api:
    """The application and who asks it."""

    def __init__(self, path: Any, http: requests_mock.Mocker, extra: str = "") -> None:
        (path / "api.conf").write_text(CONF + extra)
        # Not the global one, which is Nova's in these tests.
        self.conf = cfg.ConfigOpts()
        api_conf.register(self.conf)
        self.conf([], project="vcache", default_config_files=[str(path / "api.conf")])
        # What oslo.messaging registers at import, with the global one.
        self._messaging = conffixture.ConfFixture(self.conf)
        self._messaging.setUp()
        self._http = http
        self.nodes("n1", "n2")
        http.get(f"{PLACEMENT}/traits/{names.OWNER}", status_code=204)
        self.transport = messaging.get_rpc_transport(
            self.conf, allowed_remote_exmods=host_side.EXMODS)
        self.backend = Backend(self.conf, self.transport)
        self.client = Client(app.make_application(self.conf, self.backend))
        self._tokens = AuthTokenFixture()
        self._tokens.setUp()
        for name, values in TOKENS.items():
            self._tokens.add_token_data(
                name, user_id=f"user-{name}", user_name=name, user_domain_id="default",
                user_domain_name="Default", project_name=name, project_domain_id="default",
                project_domain_name="Default", **values)
        self._servers: list[Any] = []
        self.hosts: dict[str, Host] = {}

    def close(self) -> None:
        # A listener in memory takes a second to end.
        with concurrent.futures.ThreadPoolExecutor() as threads:
            threads.submit(self.backend.stop)
            for server in self._servers:
                threads.submit(server.stop)
        self._tokens.cleanUp()
        self._messaging.cleanUp()

    def nodes(self, *nodes: str) -> None:
        """Have Placement know hosts."""
        self._http.get(f"{PLACEMENT}/resource_providers", json={"resource_providers": [
            {"uuid": node, "name": f"{node}_vcache", "parent_provider_uuid": "p"}
            for node in nodes]})

    def host(self, node: str, agent: FakeAgent) -> Host:
        """Have a host run, which has looked once."""
        host = Host(node, agent.ask, api_side.ApiClient(self.transport).report)
        host.look()
        server = messaging.get_rpc_server(
            self.transport, messaging.Target(topic=host_side.TOPIC, server=node),
            [Endpoint(host)])
        server.start()
        self._servers.append(server)
        self.hosts[node] = host
        return host

    def know(self, node: str) -> None:
        """Have the API know what the agent of a host answers now."""
        self.backend.ready()
        self.hosts[node].look()
        self.backend.directory.took(self.hosts[node].stamp(self.hosts[node].report()))

    def ask(self, method: str, path: str, token: str | None = "admin",  # noqa: S107
            version: str = "", **options: Any) -> Answer:
        headers = {"X-Auth-Token": token} if token else {}
        if version:
            headers["OpenStack-API-Version"] = f"vcache {version}"
        response = self.client.open(path, method=method, headers=headers, **options)
        answer = Answer(response)
        if answer.status != 401:
            conforms(method, path, answer)
        return answer


def conforms(method: str, path: str, answer: Answer) -> None:
    """See to it that an answer is one of those that the document has."""
    plain = path.partition("?")[0]
    for operation in openapi.operations():
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", operation.path)
        if operation.method == method and re.fullmatch(pattern, plain):
            break
    else:
        assert answer.status in (404, 405), "an operation that is not in the document"
        return
    responses = openapi.document()["paths"][operation.path][method.lower()]["responses"]
    found = openapi.resolve(responses[str(answer.status)])
    if "content" in found:
        schema = found["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator(
            {**schema, "components": openapi.document()["components"]}).validate(answer.json)
    else:
        assert not answer.text
