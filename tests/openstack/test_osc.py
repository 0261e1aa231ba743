# SPDX-License-Identifier: Apache-2.0
"""The commands openstack vcache for hosts, instances and pools: requests and output."""

import json
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
import requests_mock

from nova_vcache.api import openapi
from tests.openstack.agents import uuid_of
from tests.openstack.clouds import VCACHE, Cloud

MINE = uuid_of(1)
HOST = {"node": "n1", "state": "up", "problem": "", "policy": "weighted", "draining": False,
        "pools": 1, "instances": 2, "dirty_bytes": 3 << 20, "age_s": 1.0,
        "modes": ["flush-only", "writeback"], "flush_isolation": True, "tags_free": 9,
        "cache_mb": 900, "cache_free_mb": 800, "largest_free_mb": 700, "a_newer_field": 1}
POOL = {"id": "n1/fast", "host": "n1", "host_state": "up", "name": "fast", "state": "ok",
        "size_bytes": 10 << 30, "free_bytes": 9 << 30, "used_bytes": 1 << 30, "dirty_bytes": 0,
        "volumes": 1, "guaranteed_bytes": 0}
INSTANCE = {
    "uuid": MINE, "project_id": "p", "phase": "running", "stale": False, "slo_missed": None,
    "specs": {"mode": "writeback", "weight": 7, "persist": True, "slo_iops": None},
    "flavor": {"weight": 100}, "override": {"weight": 7},
    "disks": [{"disk": "vda", "mode": "writeback", "state": "isolated", "cached_bytes": 1 << 20,
               "share_bytes": 4 << 20, "dirty_bytes": 512, "flush_p99_us": 900.0,
               "read_p99_us": 120.5},
              {"disk": "vdb", "mode": "none", "state": "untagged", "cached_bytes": None,
               "share_bytes": None, "dirty_bytes": None, "flush_p99_us": None}]}
NEWER = {**INSTANCE, "slo_state": "missed", "hit_ratio": 0.5, "flush_p50_us": 300.0,
         "flush_p99_us": 900.0, "objectives": [
             {"disk": "vda", "objective": "slo_flush_ms", "promised": 0.5, "measured": 0.9,
              "state": "missed", "cause": "neighbour", "text": "tag 8"},
             {"disk": "vda", "objective": "slo_iops", "promised": 5.0, "measured": None,
              "state": "unknown", "cause": ""}],
         "disks": [{**INSTANCE["disks"][0], "hit_ratio": 0.5,  # type: ignore[index]
                    "flush_p50_us": 300.0, "requests_per_s": 5.0}]}
OF_HOST = {**INSTANCE, "host": "n1", "name": "instance-1", "problem": ""}


@pytest.fixture
def cloud(monkeypatch) -> Iterator[Cloud]:
    monkeypatch.setattr("nova_vcache.osc.host._LOOK", 0.01)
    with requests_mock.Mocker() as mocker:
        yield Cloud(mocker)


class TestPlugin:
    def test_each_command_can_be_loaded(self):
        found = entry_points(group="openstack.vcache.v1")
        assert len(found) == 17
        assert all(callable(item.load()) for item in found)

    def test_completion_has_the_commands(self, cloud):
        import io
        from contextlib import redirect_stdout

        from openstackclient.shell import OpenStackShell
        with redirect_stdout(io.StringIO()) as out:
            shell = OpenStackShell()
            shell.stdout = out
            assert shell.run(["complete"]) == 0
        assert "cmds_vcache='flavor host instance pool'" in out.getvalue()
        assert "cmds_vcache_host='drain list set show'" in out.getvalue()
        assert "--no-draining" in out.getvalue()

    def test_the_endpoint_is_the_catalog_s_or_the_one_that_is_given(self, cloud, monkeypatch):
        cloud.api("GET", "/v1/hosts", {"hosts": []})
        cloud.good("host", "list")
        assert cloud.http.last_request.url == f"{VCACHE}/v1/hosts"
        cloud.http.get("http://other.invalid", json={"versions": []})
        other = cloud.http.get("http://other.invalid/v1/hosts", json={"hosts": []})
        monkeypatch.setenv("OS_VCACHE_ENDPOINT_OVERRIDE", "http://other.invalid")
        cloud.good("host", "list")
        assert other.called
        assert other.last_request.headers["X-Auth-Token"] == "token"

    def test_no_endpoint(self, cloud, monkeypatch):
        monkeypatch.setenv("OS_INTERFACE", "internal")
        said = cloud.bad("host", "list")
        assert "internal endpoint for vcache service in RegionOne region not found" in said
        assert "--os-vcache-endpoint-override" in said


class TestErrors:
    def test_the_api_s_own_words(self, cloud):
        cloud.error("GET", "/v1/hosts/n9", 404, "Host 'n9' could not be found.")
        assert cloud.bad("host", "show", "n9") == (
            "Host 'n9' could not be found. (HTTP 404, req-1)")

    def test_who_else_answers(self, cloud):
        cloud.http.get(f"{VCACHE}/v1/hosts/n9", status_code=502, text="<html>", reason="Bad")
        assert cloud.bad("host", "show", "n9") == "GET /v1/hosts/n9: HTTP 502 Bad"
        cloud.http.get(f"{VCACHE}/v1/hosts/n9", text="<html>")
        assert "is not a JSON object. Check that the URL is the endpoint" in cloud.bad(
            "host", "show", "n9")

    def test_a_name_cannot_be_a_path(self, cloud):
        cloud.http.get(requests_mock.ANY, status_code=404)
        cloud.bad("host", "show", "../pools?x")
        assert cloud.http.last_request.url == f"{VCACHE}/v1/hosts/..%2Fpools%3Fx"


class TestLists:
    def test_all_pages(self, cloud):
        more = [{"rel": "next", "href": "http://inside.invalid/v1/hosts?marker=n1"}]
        hosts = cloud.api("GET", "/v1/hosts", {"hosts": [HOST], "links": more},
                          {"hosts": [{**HOST, "node": "n2"}], "links": []})
        assert [item["Node"] for item in cloud.json("host", "list")] == ["n1", "n2"]
        assert [item.query for item in hosts.request_history] == ["", "marker=n1"]

    def test_no_more_than_wanted(self, cloud):
        more = [{"rel": "next", "href": "x"}]
        hosts = cloud.api("GET", "/v1/hosts", {"hosts": [HOST], "links": more})
        assert len(cloud.json("host", "list", "--limit", "2", "--marker", "a")) == 2
        assert [item.query for item in hosts.request_history] == [
            "limit=2&marker=a", "limit=1&marker=n1"]
        for text in ("0", "-1", "x"):
            assert "must be an integer of at least 1" in cloud.bad(
                "host", "list", f"--limit={text}", status=2)


class TestHost:
    def test_list(self, cloud):
        cloud.api("GET", "/v1/hosts", {"hosts": [HOST]})
        assert cloud.json("host", "list") == [{
            "Node": "n1", "State": "up", "Draining": False, "Instances": 2, "Cache MiB": 900,
            "Cache Free MiB": 800, "Tags Free": 9, "Dirty": 3 << 20, "Problem": ""}]
        table = cloud.good("host", "list", "--long", "-c", "Dirty", "-c", "Modes", "-f", "value")
        assert table == "3145728 ['flush-only', 'writeback']\n"
        table = cloud.good("host", "list", "--long")
        assert "3.0 MiB" in table
        assert "flush-only, writeback" in table

    def test_the_progress_of_a_drain(self, cloud):
        drain = {"left_bytes": 1 << 30, "total_bytes": 2 << 30, "percent": 50, "done": False}
        cloud.api("GET", "/v1/hosts", {"hosts": [{**HOST, "drain": drain},
                                                 {**HOST, "drain": None}]})
        assert [item["Drain"] for item in cloud.json("host", "list", "--long")] == [drain, None]
        assert "50 %, 1.0 GiB left" in cloud.good("host", "list", "--long")

    def test_show_has_every_field(self, cloud):
        cloud.api("GET", "/v1/hosts/n1", {"host": HOST})
        assert cloud.json("host", "show", "n1") == HOST

    @pytest.mark.parametrize(("words", "body"), [
        (["--draining"], {"draining": True}), (["--no-draining"], {"draining": False}),
        (["--policy", "static"], {"policy": "static"}),
        (["--policy", "configured", "--draining"], {"policy": None, "draining": True})])
    def test_set(self, cloud, words, body):
        asked = cloud.api("PATCH", "/v1/hosts/n1", {"host": HOST})
        assert cloud.good("host", "set", *words, "n1") == ""
        assert asked.last_request.json() == body

    def test_what_set_takes(self, cloud):
        assert cloud.bad("host", "set", "n1") == (
            "Nothing to set: use --policy, --draining or --no-draining.")
        assert "choose from" in cloud.bad("host", "set", "n1", "--policy", "x", status=2)
        policies = openapi.document()["components"]["schemas"]["HostChange"]["properties"][
            "policy"]["enum"]
        asked = cloud.api("PATCH", "/v1/hosts/n1", {"host": HOST})
        for name in policies:
            cloud.good("host", "set", "n1", "--policy", name or "configured")
            assert asked.last_request.json() == {"policy": name}

    def test_drain(self, cloud):
        asked = cloud.api("PATCH", "/v1/hosts/n1", {"host": HOST})
        cloud.good("host", "drain", "n1")
        assert asked.last_request.json() == {"draining": True}

    def test_drain_waits_until_nothing_is_dirty_anywhere(self, cloud):
        cloud.api("PATCH", "/v1/hosts/n1", {"host": HOST})
        draining = {**HOST, "draining": True}
        clean = {**draining, "dirty_bytes": 0}
        shown = cloud.api(
            "GET", "/v1/hosts/n1", {"host": {**HOST, "dirty_bytes": 0}}, {"host": draining},
            {"host": {**clean, "state": "stale", "problem": "no agent"}}, {"host": clean})
        pools = cloud.api("GET", "/v1/pools", {"pools": [{**POOL, "dirty_bytes": 1}]},
                          {"pools": [POOL]})
        cloud.good("host", "drain", "n1", "--wait")
        assert shown.call_count == 5
        assert [item.query for item in pools.request_history] == ["host=n1"] * 2

    @pytest.mark.parametrize(("change", "said"), [
        ({"draining": False}, "it has not reported yet that it drains"),
        ({"state": "stale", "problem": "no agent"}, "it is stale: no agent"),
        ({"dirty_bytes": 2048}, "its instances have 2.0 KiB of dirty data"),
        ({}, "dirty data in pools: fast 7 B")])
    def test_drain_says_what_is_left(self, cloud, change, said):
        cloud.api("PATCH", "/v1/hosts/n1", {"host": HOST})
        cloud.api("GET", "/v1/hosts/n1",
                  {"host": {**HOST, "draining": True, "dirty_bytes": 0, **change}})
        cloud.api("GET", "/v1/pools", {"pools": [{**POOL, "dirty_bytes": 7}]})
        found = cloud.bad("host", "drain", "n1", "--wait", "--timeout", "0.03")
        assert f"Host 'n1' is not drained after 0.03 s: {said}." in found


class TestPool:
    def test_list(self, cloud):
        pools = cloud.api("GET", "/v1/pools", {"pools": [POOL]})
        (found,) = cloud.json("pool", "list", "--host", "n1")
        assert (found["ID"], found["Size"], found["Host State"]) == ("n1/fast", 10 << 30, "up")
        assert pools.last_request.query == "host=n1"
        assert "10.0 GiB" in cloud.good("pool", "list")

    def test_show(self, cloud):
        cloud.api("GET", "/v1/hosts/n1/pools/fast", {"pool": POOL})
        assert cloud.json("pool", "show", "n1/fast") == POOL
        for text in ("fast", "/fast", "n1/"):
            assert "must be <node>/<pool>" in cloud.bad("pool", "show", text)

    def test_set(self, cloud):
        asked = cloud.api("PATCH", "/v1/hosts/n1/pools/fast", {"pool": POOL})
        cloud.good("pool", "set", "n1/fast", "--hot-percent", "0", "--reads-percent", "100")
        assert asked.last_request.json() == {"hot_percent": 0, "reads_percent": 100}
        cloud.good("pool", "set", "n1/fast", "--hot-percent", "30")
        assert asked.last_request.json() == {"hot_percent": 30}
        assert "Nothing to set" in cloud.bad("pool", "set", "n1/fast")
        assert "must be <node>/<pool>" in cloud.bad("pool", "set", "fast", "--hot-percent", "1")


class TestInstance:
    def test_list_of_a_tenant_has_no_hosts(self, cloud):
        asked = cloud.api("GET", "/v1/instances", {"instances": [INSTANCE]})
        assert cloud.json("instance", "list") == [{
            "UUID": MINE, "Project": "p", "Phase": "running", "Mode": "writeback", "Weight": 7,
            "Cached": 1 << 20, "Dirty": 512, "Missed": None, "Stale": False}]
        assert asked.last_request.query == ""

    def test_list_of_an_administrator(self, cloud):
        asked = cloud.api("GET", "/v1/instances", {"instances": [OF_HOST]})
        (found,) = cloud.json("instance", "list", "--all-projects", "--host", "n1")
        assert found["Host"] == "n1"
        assert asked.last_request.query == "all_projects=true&host=n1"
        cloud.good("instance", "list", "--project", "theirs")
        assert asked.last_request.query == f"project_id={'q' * 32}"

    def test_what_a_newer_api_has(self, cloud):
        cloud.microversions("1.0", "1.2")
        asked = cloud.api("GET", "/v1/instances", {"instances": [NEWER]})
        (found,) = cloud.json("instance", "list", "--slo-state", "missed", "--mode", "flush-only",
                              "--sort", "slo_state:desc")
        assert (found["SLO State"], found["Hit Ratio"], found["Flush p99 us"]) == (
            "missed", 0.5, 900.0)
        assert asked.last_request.query == (
            "mode=flush-only&slo_state=missed&sort_key=slo_state&sort_dir=desc")
        cloud.good("instance", "list", "--sort", "host")
        assert asked.last_request.query == "sort_key=host&sort_dir=asc"
        for word in ("name", "host:up"):
            assert "must be one of uuid, host, mode, slo_state" in cloud.bad(
                "instance", "list", "--sort", word, status=2)
        assert "choose from" in cloud.bad("instance", "list", "--slo-state", "bad", status=2)

    @pytest.mark.parametrize("words", [
        ["list", "--sort", "mode"], ["list", "--slo-state", "met"], ["list", "--mode", "none"],
        ["why", MINE], ["curve", MINE]])
    def test_what_an_older_api_lacks(self, cloud, words):
        for highest in ("1.1", None):
            cloud.microversions("1.0" if highest else None, highest)
            said = cloud.bad("instance", *words)
            assert f"needs microversion 1.2 of vcache-api, but {highest or '1.0'} is used" in said

    def test_why(self, cloud):
        cloud.microversions("1.0", "1.2")
        cloud.api("GET", f"/v1/instances/{MINE}", {"instance": NEWER})
        cloud.api("GET", f"/v1/instances/{MINE}/why", {"disks": [{
            "disk": "vda", "tag": 5, "notes": ["a note"], "decisions": [
                {"what": "weight", "value": 7, "because": ["first", "second"]},
                {"what": "share", "value": {"min_bytes": 0, "max_bytes": None}, "because": []},
                {"what": "lanes", "value": [1, 2], "because": []},
                {"what": "mode", "value": None, "because": []}]}]})
        rows = cloud.json("instance", "why", MINE)
        assert [(row["What"], row["Value"]) for row in rows] == [
            ("slo_flush_ms", "missed: 0.9, promised 0.5 (neighbour)"),
            ("slo_iops", "unknown: nothing measured, promised 5"), ("weight", "7"),
            ("share", "min 0 B\nmax unlimited"), ("lanes", "1, 2"), ("mode", "unknown"),
            ("notes", "")]
        assert [row["Because"] for row in rows][:3] == [["tag 8"], [], ["first", "second"]]
        assert rows[-1]["Because"] == ["a note"]
        assert "first" in cloud.good("instance", "why", MINE)

    def test_curves(self, cloud):
        cloud.microversions("1.0", "1.2")
        cloud.api("GET", f"/v1/instances/{MINE}/curves", {"curves": [{
            "disk": "vda", "points": [
                {"size_bytes": 0, "read_miss_ratio": 1.0, "write_miss_ratio": None},
                {"size_bytes": 1 << 30, "read_miss_ratio": 0.25, "write_miss_ratio": None}]}]})
        assert cloud.json("instance", "curve", MINE)[1] == {
            "Disk": "vda", "Cache": 1 << 30, "Read Miss Ratio": 0.25, "Write Miss Ratio": None}
        assert "1.0 GiB" in cloud.good("instance", "curve", MINE)

    def test_show_what_a_newer_api_has(self, cloud):
        cloud.api("GET", f"/v1/instances/{MINE}", {"instance": NEWER})
        assert cloud.json("instance", "show", MINE) == NEWER
        table = cloud.good("instance", "show", MINE)
        assert "vda: slo_flush_ms missed: 0.9, promised 0.5 (neighbour)" in table
        assert "hit ratio 0.5, flush p50 300 us, flush p99 900 us" in table

    def test_show(self, cloud):
        cloud.api("GET", f"/v1/instances/{MINE}", {"instance": OF_HOST})
        assert cloud.json("instance", "show", MINE) == OF_HOST
        assert cloud.json("instance", "show", MINE.replace("-", "").upper()) == OF_HOST
        table = cloud.good("instance", "show", MINE)
        assert "vda: writeback, isolated, 1.0 MiB cached of 4.0 MiB, 512 B dirty" in table
        assert "vdb: none, untagged " in table
        assert "persist=true" in table
        assert "slo_iops" not in table

    def test_by_name(self, cloud):
        cloud.api("GET", f"/v1/instances/{MINE}", {"instance": INSTANCE})
        nova = "http://nova.invalid/v2.1/servers"
        cloud.http.get(f"{nova}/web", status_code=404)
        cloud.http.get(nova, json={"servers": [{"id": MINE, "name": "web"}]})
        assert cloud.json("instance", "show", "web")["uuid"] == MINE
        cloud.http.get(f"{nova}/wbe", status_code=404)
        cloud.http.get(nova, json={"servers": []})
        assert "No server 'wbe' in this project" in cloud.bad("instance", "show", "wbe")

    def test_set(self, cloud):
        asked = cloud.api("PATCH", f"/v1/instances/{MINE}/override", {"instance": INSTANCE})
        cloud.good("instance", "set", MINE, "--weight", "300", "--slo-flush-ms", "0.5",
                   "--slo-iops", "100")
        assert asked.last_request.json() == {"weight": 300, "slo_flush_ms": 0.5,
                                             "slo_iops": 100.0}
        assert json.dumps(asked.last_request.json()["weight"]) == "300"

    def test_what_set_takes(self, cloud):
        assert "--weight, --slo-flush-ms, --slo-read-us, --slo-iops" in cloud.bad(
            "instance", "set", MINE)
        assert ("argument --weight: '1001' is not allowed, must be an integer from 1 to 1000"
                in cloud.bad("instance", "set", MINE, "--weight", "1001", status=2))
        assert "--mode" in cloud.bad("instance", "set", MINE, "--mode", "none", status=2)

    def test_unset(self, cloud):
        path = f"/v1/instances/{MINE}/override"
        some = cloud.api("PATCH", path, {"instance": INSTANCE})
        cloud.good("instance", "unset", MINE, "--weight", "--slo-iops")
        assert some.last_request.json() == {"weight": None, "slo_iops": None}
        every = cloud.http.delete(VCACHE + path, status_code=204)
        cloud.good("instance", "unset", MINE, "--all")
        assert every.called
        for words in ([], ["--all", "--weight"]):
            assert "Use either --all, or one or more of" in cloud.bad(
                "instance", "unset", MINE, *words)


class TestMicroversions:
    @pytest.mark.parametrize(("lowest", "highest", "wanted", "sent"), [
        ("1.0", "1.1", "1", "vcache 1.1"), ("1.0", "1.0", "1", "vcache 1.0"),
        ("1.0", "1.99", "1", "vcache 1.2"), ("1.5", "1.9", "1", "vcache 1.5"),
        ("1.0", "1.99", "1.57", "vcache 1.57"), (None, None, "1", None)])
    def test_the_newest_that_both_sides_support(self, cloud, lowest, highest, wanted, sent):
        cloud.microversions(lowest, highest)
        asked = cloud.api("GET", "/v1/hosts", {"hosts": [HOST], "links": []})
        status, _, err = cloud.run("host", "list", options=("--os-vcache-api-version", wanted))
        assert status == 0, err
        assert asked.last_request.headers.get("OpenStack-API-Version") == sent

    @pytest.mark.parametrize(("lowest", "wanted", "text"), [
        ("1.0", "1.3", f"1.3 is not supported by the vcache-api at {VCACHE}/v1, must be from"),
        (None, "1.1", "has no microversions, so --os-vcache-api-version must be 1, not 1.1")])
    def test_one_that_the_api_does_not_support(self, cloud, lowest, wanted, text):
        cloud.microversions(lowest, "1.1")
        status, _, err = cloud.run("host", "list", options=("--os-vcache-api-version", wanted))
        assert status == 1 and text in " ".join(err.split())

    def test_one_that_is_none(self, cloud):
        status, _, err = cloud.run("host", "list", options=("--os-vcache-api-version", "2"))
        assert status == 2 and "'2' is not allowed, must be 1 or 1.N" in err
