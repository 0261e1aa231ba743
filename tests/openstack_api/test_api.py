# SPDX-License-Identifier: Apache-2.0
"""Permissions with real tokens, and the effects on Placement and the message bus."""

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from nova_vcache.placement import names
from nova_vcache.summary import Summary
from tests.box.steps import at_end
from tests.cloud.processes import wait_for
from tests.openstack.agents import uuid_of
from tests.openstack_api.conftest import MINE, THEIRS

OVERRIDE = f"/v1/instances/{MINE}/override"


@pytest.mark.parametrize(("method", "path", "table"), [
    ("GET", "/v1/hosts", {None: 401, "x": 401, "admin": 200, "service": 200, "member": 403}),
    ("GET", "/v1/pools", {None: 401, "admin": 200, "member": 403, "service": 403}),
    ("GET", "/v1/instances", {None: 401, "admin": 200, "member": 200, "nobody": 403}),
    ("GET", f"/v1/instances/{MINE}", {None: 401, "admin": 200, "member": 200, "other": 404}),
    ("GET", f"/v1/instances/{THEIRS}", {"member": 404, "other": 200}),
    ("PUT", OVERRIDE, {None: 401, "member": 403, "other": 404, "nobody": 404, "admin": 200}),
    ("GET", "/v1/openapi.json", {None: 200}), ("GET", "/healthcheck", {None: 200}),
])
def test_who(cloud, hosts, method, path, table):
    body: dict = {"json": {}} if method == "PUT" else {}
    assert {who: cloud.ask(method, path, who, **body).status_code for who in table} == table


def test_a_tenant_sees_its_own_on_all_hosts_and_no_host(cloud, hosts):
    answer = cloud.ask("GET", "/v1/instances", "member")
    assert [item["uuid"] for item in answer.json()["instances"]] == [MINE, uuid_of(3)]
    assert "n1" not in answer.text and "host" not in answer.text


def test_the_scheduler_reads_the_summary_as_nova_would(cloud, hosts, tmp_path):
    from nova_vcache import conf as vcache_conf

    path = tmp_path / "nova.conf"
    path.write_text(
        f"[vcache]\nendpoint_override = {cloud.url}\nauth_type = password\n"
        f"auth_url = {cloud.auth_url}\nusername = service\npassword = secret\n"
        "project_name = service\nuser_domain_id = default\nproject_domain_id = default\n")
    conf = cfg.ConfigOpts()
    vcache_conf.register(conf)
    conf([], default_config_files=[str(path)])
    document = vcache_conf.load_adapter(conf).get("/v1/hosts?view=summary").json()
    found = Summary.parse(document).hosts
    assert found["n1"].cache_free_mb == 9116
    assert found["n1"].age_s is not None and found["n1"].age_s < 3


def test_placement_has_the_hosts_and_follows_them(cloud, hosts):
    found = cloud.placement("GET", f"/resource_providers?required={names.OWNER}").json()
    children = {item["name"]: item["uuid"] for item in found["resource_providers"]}
    assert {"n1_vcache", "n2_vcache"} <= children.keys()
    at = f"/resource_providers/{children['n1_vcache']}/inventories"

    def reserved() -> tuple[int, int]:
        inventories = cloud.placement("GET", at).json()["inventories"]
        return (inventories[names.CACHE_MB]["reserved"], inventories[names.TAG]["reserved"])

    wait_for(lambda: reserved() == (100, 2), "what nobody has allocated is reserved")
    cloud.placement("PUT", f"/allocations/{MINE}", json={
        "allocations": {children["n1_vcache"]: {"resources": {
            names.CACHE_MB: 100, names.TAG: 1}}},
        "project_id": "p", "user_id": "u", "consumer_generation": None}).raise_for_status()
    wait_for(lambda: reserved() == (0, 1), "what is allocated is not")


def test_a_service_delete_is_healed(cloud, hosts):
    host = cloud.host("n3")
    with at_end(host.process.stop):
        def child() -> list[str]:
            found = cloud.placement("GET", "/resource_providers?name=n3_vcache").json()
            return [item["uuid"] for item in found["resource_providers"]]

        wait_for(child, "a provider")
        (old,) = child()
        root = cloud.placement("GET", f"/resource_providers/{old}").json()["parent_provider_uuid"]

        def deleted() -> bool:
            # In between, the host may create its provider again; then Placement keeps the root.
            return all(cloud.placement("DELETE", f"/resource_providers/{uuid}").status_code == 204
                       for uuid in (*child(), root))

        wait_for(deleted, "the node is deleted")
        cloud.compute_node("n3")
        wait_for(lambda: child() not in ([], [old]), "a new provider")


class Listener:
    """Receives notifications."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict]] = []

    def info(self, _context, _publisher, event_type, payload, _metadata) -> None:
        self.got.append((event_type, payload))


def test_an_override_reaches_the_agent_all_processes_and_who_listens(cloud, hosts):
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    listener = Listener()
    server = messaging.get_notification_listener(
        messaging.get_notification_transport(conf, cloud.bus),
        [messaging.Target(topic="vcache_notifications")], [listener], executor="threading")
    server.start()
    with at_end(server.wait), at_end(server.stop):
        answer = cloud.ask("PUT", OVERRIDE, json={"weight": 333, "slo_flush_ms": 1.5})
        assert answer.status_code == 200
        assert answer.json()["instance"]["override"] == {"weight": 333, "slo_flush_ms": 1.5}
        assert hosts["n1"].agent.requests[-1]["op"] in ("host", "instance-set")

        def everywhere() -> bool:
            return all(cloud.ask("GET", f"/v1/instances/{MINE}").json()["instance"]["specs"][
                "weight"] == 333 for _ in range(6))

        wait_for(everywhere, "all processes know", 10)
        wait_for(lambda: any(payload["new"].get("weight") == 333
                             for event, payload in listener.got
                             if event == "instance.override"), "a notification", 10)
        assert cloud.ask("DELETE", OVERRIDE).status_code == 204


def test_a_host_drains(cloud, hosts):
    assert cloud.ask("PATCH", "/v1/hosts/n2", json={"draining": True}).json()["host"]["draining"]
    found = cloud.placement("GET", "/resource_providers?name=n2_vcache").json()
    at = f"/resource_providers/{found['resource_providers'][0]['uuid']}/inventories"

    def closed() -> bool:
        inventories = cloud.placement("GET", at).json()["inventories"]
        return all(item["reserved"] == item["total"] for item in inventories.values())

    wait_for(closed, "nothing is left to allocate")
    cloud.ask("PATCH", "/v1/hosts/n2", json={"draining": False})
    wait_for(lambda: not closed(), "it is open again")
