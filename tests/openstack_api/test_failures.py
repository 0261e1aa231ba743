# SPDX-License-Identifier: Apache-2.0
"""Requests while an agent, a host, the message bus or Placement is down."""

import concurrent.futures
import time

from tests.box.limits import Deadline
from tests.box.steps import at_end
from tests.cloud.processes import wait_for
from tests.openstack_api.conftest import MINE

OVERRIDE = f"/v1/instances/{MINE}/override"


def sets(host):
    return [item for item in host.agent.requests if item["op"] == "instance-set"]


def test_an_agent_that_is_down(cloud, hosts):
    hosts["n1"].stop_agent()
    with at_end(hosts["n1"].start_agent):
        cloud.await_states(20, n1="stale", n2="up")
        shown = cloud.ask("GET", "/v1/hosts/n1").json()["host"]
        assert "vcache-agent is not running" in shown["problem"]
        answer = cloud.ask("PUT", OVERRIDE, json={"weight": 5})
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "5"), answer.text
        assert "vcache-agent is not running" in answer.json()["errors"][0]["detail"]
        # The last known state is still shown, with a note.
        mine = cloud.ask("GET", f"/v1/instances/{MINE}", "member").json()["instance"]
        assert mine["stale"] is True
        found = cloud.placement("GET", "/resource_providers?name=n1_vcache").json()
        at = f"/resource_providers/{found['resource_providers'][0]['uuid']}/traits"
        wait_for(lambda: cloud.placement("GET", at).json()["traits"] == ["CUSTOM_OWNER_VCACHE"],
                 "Placement offers nothing there", 30)
    cloud.await_states(20, n1="up")
    wait_for(lambda: len(cloud.placement("GET", at).json()["traits"]) > 1, "it is offered again")


def test_a_host_that_is_killed(cloud, hosts):
    before = len(sets(hosts["n1"]))
    hosts["n1"].process.kill()
    with at_end(hosts["n1"].process.start):
        cloud.await_states(20, n1="stale", n2="up")
        began = time.monotonic()
        answer = cloud.ask("PUT", OVERRIDE, json={"weight": 5})
        assert answer.status_code == 504
        assert time.monotonic() - began < 10
        began = time.monotonic()
        assert cloud.ask("GET", "/v1/hosts").status_code == 200
        assert time.monotonic() - began < 2, "a dead host keeps nobody waiting"
        assert "check that vcache-host is running" in cloud.ask(
            "GET", "/v1/hosts/n1").json()["host"]["problem"]
    cloud.await_states(30, n1="up")
    time.sleep(1)
    assert len(sets(hosts["n1"])) == before, "what was given up is not done later"


def test_a_bus_that_is_restarted(cloud, hosts):
    cloud.rabbit.stop()
    with at_end(cloud.rabbit.start):
        began = time.monotonic()
        assert cloud.ask("GET", "/v1/hosts").status_code == 200
        assert cloud.ask("GET", "/v1/instances", "member").status_code == 200
        assert time.monotonic() - began < 5, "lists need no bus"
        began = time.monotonic()
        answer = cloud.ask("PUT", OVERRIDE, json={"weight": 5})
        assert answer.status_code in (503, 504), answer.text
        assert time.monotonic() - began < 30
        cloud.await_states(30, n1="stale", n2="stale")
        wait_for(lambda: _health(cloud) == {503}, "all processes are unhealthy", 60)
    cloud.await_states(60, n1="up", n2="up")
    wait_for(lambda: _health(cloud) == {200}, "all processes are healthy again", 60)
    wait_for(lambda: cloud.ask("PUT", OVERRIDE, json={}).status_code == 200, "changes work", 60)


def test_changes_in_an_api_that_starts_without_a_bus(cloud, hosts):
    """All of its processes answer in time, and make changes as soon as there is a bus."""
    def drain(_number):
        deadline = Deadline(60)
        while True:
            began = time.monotonic()
            status = cloud.ask("PATCH", "/v1/hosts/n1", json={"draining": False}).status_code
            # Not found: this process has not got the list of hosts yet.
            if status != 404 or deadline.passed():
                return status, time.monotonic() - began
            time.sleep(0.5)

    nodes = set(cloud.states())
    cloud.rabbit.stop()
    with at_end(cloud.rabbit.start):
        cloud.api.stop()
        cloud.api.start()
        wait_for(lambda: _answers(cloud), "the API")
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for status, seconds in threads.map(drain, range(4)):
                assert status == 503
                assert seconds < 30
    cloud.await_states(60, n1="up", n2="up")
    wait_for(lambda: drain(0)[0] == 200, "changes work", 60)
    _await_list(cloud, nodes)


def test_an_api_that_is_restarted_knows_all_again(cloud, hosts):
    nodes = set(cloud.states())
    cloud.api.stop()
    cloud.api.start()
    wait_for(lambda: _answers(cloud), "the API")
    # The first response of a process waits for the reports of the hosts.
    found = cloud.states()
    assert (found["n1"], found["n2"]) == ("up", "up")
    _await_list(cloud, nodes)


def _await_list(cloud, nodes):
    """Wait until all processes of the API have the list of hosts from Placement."""
    wait_for(lambda: all(
        {item["node"] for item in cloud.ask("GET", "/v1/hosts").json()["hosts"]} == nodes
        for _ in range(8)), "the list of hosts", 60)


def _health(cloud):
    """Return the statuses of several requests, which reach all processes."""
    return {cloud.ask("GET", "/healthcheck", None).status_code for _ in range(8)}


def _answers(cloud):
    import requests
    try:
        return cloud.ask("GET", "/healthcheck", None).status_code == 200
    except requests.ConnectionError:
        return False
