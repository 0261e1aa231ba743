# SPDX-License-Identifier: Apache-2.0
"""The command openstack as an operator runs it, with all services; Nova is only its API."""

import json
from typing import Any

import pytest

from nova_vcache.extra_specs import parse
from nova_vcache.placement.flavor import placement_keys
from tests.box.steps import at_end
from tests.cloud.processes import wait_for
from tests.openstack.agents import GIB, uuid_of
from tests.openstack_api.conftest import MINE, THEIRS

HARD = {"vcache:mode": "writeback", "vcache:min_mb": "1000", "vcache:required": "true"}


def good(cloud, *words: str, **who: str) -> str:
    done = cloud.openstack(*words, **who)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(cloud, *words: str, **who: str) -> Any:
    return json.loads(good(cloud, *words, "-f", "json", **who))


def bad(cloud, *words: str, status: int = 1, **who: str) -> str:
    done = cloud.openstack(*words, **who)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    return " ".join(done.stderr.split())


def test_hosts_and_pools(cloud, hosts):
    found = {item["Node"]: item for item in read(cloud, "vcache", "host", "list", "--long")}
    assert found["n1"]["State"] == "up"
    assert found["n1"]["Cache Free MiB"] == 9116
    assert found["n2"]["Modes"] == ["flush-only", "writeback", "writethrough"]
    # More than one page.
    limited = read(cloud, "vcache", "host", "list", "--limit", "1")
    after = read(cloud, "vcache", "host", "list", "--marker", limited[0]["Node"])
    assert [item["Node"] for item in limited + after] == sorted(found)
    assert read(cloud, "vcache", "host", "show", "n1")["policy"] == "weighted"
    pools = read(cloud, "vcache", "pool", "list", "--host", "n1")
    assert [(item["ID"], item["Size"]) for item in pools] == [("n1/pool", 10 * GIB)]
    assert read(cloud, "vcache", "pool", "show", "n1/pool")["guaranteed_bytes"] == 100 << 20
    assert "Pool 'x' of host 'n1' could not be found. (HTTP 404, req-" in bad(
        cloud, "vcache", "pool", "show", "n1/x")


def test_a_host_is_set_and_drained(cloud, hosts):
    agent = hosts["n2"].agent
    good(cloud, "vcache", "host", "set", "n2", "--policy", "static")
    assert agent.answer["policy"]["name"] == "static"
    good(cloud, "vcache", "host", "set", "n2", "--policy", "configured")
    assert agent.answer["policy"]["name"] == "weighted"
    with at_end(good, cloud, "vcache", "host", "set", "n2", "--no-draining"):
        said = bad(cloud, "vcache", "host", "drain", "n2", "--wait", "--timeout", "2")
        assert "is not drained after 2 s: its instances have 12.0 KiB of dirty data" in said
        assert agent.answer["draining"]
        for disk in agent.answer["disks"]:
            disk["dirty_bytes"] = disk["cache_dirty_bytes"] = 0
        good(cloud, "vcache", "host", "drain", "n2", "--wait", "--timeout", "60")
    assert not agent.answer["draining"]


def test_who_sees_what(cloud, hosts):
    mine: dict[str, Any] = {"who": "member", "project": "mine"}
    found = read(cloud, "vcache", "instance", "list", **mine)
    assert [item["UUID"] for item in found] == [MINE, uuid_of(3)]
    assert "Host" not in found[0]
    assert "host" not in read(cloud, "vcache", "instance", "show", MINE, **mine)
    assert f"Instance {THEIRS} could not be found." in bad(
        cloud, "vcache", "instance", "show", THEIRS, **mine)
    assert "Policy does not allow vcache:hosts:list" in bad(
        cloud, "vcache", "host", "list", **mine)
    assert "Policy does not allow vcache:instances:override" in bad(
        cloud, "vcache", "instance", "set", MINE, "--weight", "5", **mine)
    every = read(cloud, "vcache", "instance", "list", "--all-projects")
    assert {MINE: "n1", THEIRS: "n1", uuid_of(3): "n2"}.items() <= {
        item["UUID"]: item["Host"] for item in every}.items()
    theirs = read(cloud, "vcache", "instance", "list", "--project", "theirs")
    assert [item["UUID"] for item in theirs] == [THEIRS]


def test_an_instance_is_set_and_unset(cloud, hosts):
    (item,) = [item for item in hosts["n1"].agent.answer["domains"] if item["uuid"] == MINE]
    good(cloud, "vcache", "instance", "set", MINE, "--weight", "300", "--slo-read-us", "250.5")
    assert item["override"] == {"weight": 300, "slo_read_us": 250.5}

    def shown() -> Any:
        return read(cloud, "vcache", "instance", "show", MINE)["override"]

    # The next process of the API may not have the report yet.
    wait_for(lambda: shown() == {"weight": 300, "slo_read_us": 250.5}, "all processes know", 20)
    good(cloud, "vcache", "instance", "unset", MINE, "--weight")
    assert item["override"] == {"slo_read_us": 250.5}
    good(cloud, "vcache", "instance", "unset", MINE, "--all")
    assert item["override"] == {}


def test_what_cannot_be_reached(cloud, hosts):
    assert "internalURL endpoint" not in bad(
        cloud, "--os-vcache-endpoint-override", "http://127.0.0.1:9", "vcache", "host", "list")
    assert "--os-vcache-endpoint-override" in bad(
        cloud, "--os-interface", "admin", "vcache", "host", "list")


def test_completion(cloud):
    done = good(cloud, "complete")
    assert "cmds_vcache_flavor='check set show unset'" in done


@pytest.fixture(scope="module")
def nova(cloud) -> str:
    url: str = cloud.nova_api()
    for name in ("gold", "plain"):
        cloud.people["admin"].session.post(f"{url}/flavors", json={"flavor": {
            "id": name, "name": name, "ram": 256, "vcpus": 1, "disk": 1,
            "os-flavor-access:is_public": False}})
    return url


def specs_of(cloud, nova: str, name: str) -> Any:
    # Without the command, which takes seconds to start.
    answer = cloud.people["admin"].session.get(f"{nova}/flavors/{name}/os-extra_specs")
    return answer.json()["extra_specs"]


def test_a_flavor_is_set_in_one_step_and_checked(cloud, nova):
    good(cloud, "vcache", "flavor", "set", "gold", "--mode", "writeback", "--min-mb", "1000",
         "--required", "--weight", "200")
    wanted = {**HARD, **placement_keys(parse(HARD))}
    assert specs_of(cloud, nova, "gold") == {**wanted, "vcache:weight": "200"}
    good(cloud, "vcache", "flavor", "unset", "gold", "--weight")
    assert specs_of(cloud, nova, "gold") == wanted
    assert read(cloud, "vcache", "flavor", "check") == []
    assert read(cloud, "vcache", "flavor", "show", "gold")["min_mb"] == 1000

    # By hand, so that they disagree.
    good(cloud, "flavor", "set", "gold", "--property", "vcache:min_mb=2000")
    done = cloud.openstack("vcache", "flavor", "check", "-f", "json")
    assert done.returncode == 1
    assert [(item["Flavor"], item["Key"], item["Has"], item["Should Be"])
            for item in json.loads(done.stdout)] == [
        ("gold", "resources:CUSTOM_VCACHE_MB", "1000", "2000")]
    good(cloud, "vcache", "flavor", "set", "gold")
    assert good(cloud, "vcache", "flavor", "check").strip() == ""
    good(cloud, "vcache", "flavor", "set", "gold", "--mode", "none", "--no-required")
    assert specs_of(cloud, nova, "gold") == {
        "vcache:mode": "none", "vcache:required": "false", "vcache:min_mb": "2000"}


def test_what_a_flavor_cannot_have(cloud, nova):
    assert "No flavor 'glod'" in bad(cloud, "vcache", "flavor", "set", "glod", "--weight", "5")
    assert "must be an integer from 1 to 1000" in bad(
        cloud, "vcache", "flavor", "set", "plain", "--weight", "0", status=2)
    assert "vcache:min_mb: '20' is not allowed, must be at most vcache:max_mb, which is 10" in bad(
        cloud, "vcache", "flavor", "set", "plain", "--min-mb", "20", "--max-mb", "10")
    assert specs_of(cloud, nova, "plain") == {}
    # Nova decides on the permissions of a tenant's role.
    done = bad(cloud, "vcache", "flavor", "set", "plain", "--weight", "5", who="member",
               project="mine")
    assert "No flavor 'plain'" in done
    # Nova refuses what our own check would refuse, if it validates.
    assert "vcache:weight: '0' is not allowed" in bad(
        cloud, "--os-compute-api-version", "2.86", "flavor", "set", "plain", "--property",
        "vcache:weight=0")
