# SPDX-License-Identifier: Apache-2.0
"""vcache-api, microversion 1.2: objectives and causes, lists, curves, reasons, lanes, drain."""

from collections.abc import Iterator
from typing import Any

import oslo_messaging as messaging
import pytest
import requests_mock

from nova_vcache.api import openapi
from nova_vcache.rpc import host_side
from nova_vcache.rpc.errors import HostError
from tests.openstack.agents import GIB, FakeAgent, uuid_of
from tests.openstack.apis import Api

OTHER = "c" * 32
MINE, THEIRS = uuid_of(1), uuid_of(2)
CURVES, WHY = f"/v1/instances/{MINE}/curves", f"/v1/instances/{MINE}/why"


@pytest.fixture
def agent() -> FakeAgent:
    agent = FakeAgent()
    agent.add(1, slo_flush_ms=0.5)
    agent.add(2, OTHER, mode="flush-only")
    return agent


@pytest.fixture
def second() -> FakeAgent:
    agent = FakeAgent()
    agent.add(4, OTHER, slo_flush_ms=1.0)
    agent.add(5, OTHER, slo_read_us=100.0, mode="writethrough")
    return agent


@pytest.fixture
def api(tmp_path, agent, second) -> Iterator[Api]:
    with requests_mock.Mocker() as http:
        api = Api(tmp_path, http)
        api.host("n2", second)
        api.host("n1", agent)
        yield api
        api.close()


def shown(api: Api, uuid: str = MINE, who: str = "admin") -> dict[str, Any]:
    found: dict[str, Any] = api.ask("GET", f"/v1/instances/{uuid}", who, "1.2").json["instance"]
    return found


class TestVersions:
    @pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
    def test_each_has_its_fields_and_no_other(self, api, version):
        schemas = openapi.document()["components"]["schemas"]

        def fields(name: str) -> set[str]:
            return {field for field, schema in schemas[name]["properties"].items()
                    if schema.get("x-since", "1.0") <= version}

        host = api.ask("GET", "/v1/hosts/n1", version=version).json["host"]
        pool = api.ask("GET", "/v1/hosts/n1/pools/pool", version=version).json["pool"]
        instance = api.ask("GET", f"/v1/instances/{MINE}", version=version).json["instance"]
        assert (set(host), set(pool), set(instance)) == (
            fields("Host"), fields("Pool"), fields("Instance"))
        assert set(instance["disks"][0]) == fields("Disk")

    @pytest.mark.parametrize("version", ["1.0", "1.1"])
    def test_older_ones_do_not_have_what_is_new(self, api, version):
        for path in (CURVES, WHY):
            answer = api.ask("GET", path, version=version)
            assert answer.status == 404
            assert f"with microversion {version}, but only from 1.2 on" in answer.detail
        for query in ("slo_state=met", "mode=none", "sort_key=uuid", "sort_dir=asc"):
            answer = api.ask("GET", f"/v1/instances?{query}", version=version)
            assert answer.status == 400 and "is unknown, must be one of all_projects" in \
                answer.detail
        assert api.ask("GET", "/v1/instances", version=version).status == 200


class TestObjectives:
    def test_figures(self, api):
        found = shown(api)
        assert (found["hit_ratio"], found["flush_p50_us"], found["flush_p99_us"]) == (
            0.875, 300.0, 900.0)
        disk = found["disks"][0]
        assert (disk["hit_ratio"], disk["requests_per_s"]) == (0.875, 250.0)

    def test_without_a_verdict_the_cause_is_unknown(self, api):
        found = shown(api)
        assert (found["slo_state"], found["slo_missed"]) == ("missed", True)
        assert found["objectives"] == [{
            "disk": "vda", "objective": "slo_flush_ms", "promised": 0.5, "measured": 0.9,
            "state": "missed", "cause": "unknown", "text": ""}]
        assert (shown(api, uuid_of(4))["slo_state"], shown(api, uuid_of(4))["objectives"][0][
            "cause"]) == ("met", "")
        assert shown(api, uuid_of(5))["slo_state"] == "unknown"
        assert (shown(api, THEIRS)["slo_state"], shown(api, THEIRS)["objectives"]) == ("none", [])

    @pytest.mark.parametrize(("cause", "owner"), [
        ("neighbour", "platform"), ("host", "platform"), ("device", "platform"),
        ("own-burst", "own-burst"), ("own-share", "own-share")])
    def test_the_owner_learns_nothing_of_others(self, api, agent, cause, owner):
        agent.answer["disks"][0]["missed"] = [{
            "objective": "slo_flush_ms", "cause": cause, "text": "from tag 8 on device 254:3",
            "measured": 0.7, "promised": 0.5}]
        api.know("n1")
        (seen,) = shown(api)["objectives"]
        assert (seen["cause"], seen["text"]) == (cause, "from tag 8 on device 254:3")
        assert seen["measured"] == 0.9, "it is missed in the last minute, too"
        (seen,) = shown(api, who="member")["objectives"]
        assert seen == {"disk": "vda", "objective": "slo_flush_ms", "promised": 0.5,
                        "measured": 0.9, "state": "missed", "cause": owner}

    def test_a_host_with_an_older_agent(self, api, agent):
        agent.old()
        api.know("n1")
        found = shown(api)
        assert (found["slo_state"], found["hit_ratio"]) == ("missed", None)
        assert found["disks"][0]["hit_ratio"] is None
        assert api.ask("GET", "/v1/hosts/n1/pools/pool", version="1.2").json["pool"]["lanes"] == []
        for path in (CURVES, WHY):
            answer = api.ask("GET", path, version="1.2")
            assert (answer.status, "is unknown, must be one of host" in answer.detail) == (
                503, True)
            assert "host" not in api.ask("GET", CURVES, "member", "1.2").detail.replace(
                "The host of the instance", "")


class TestLists:
    def ask(self, api: Api, query: str) -> list[str]:
        found: list[str] = []
        path = f"/v1/instances?all_projects=true&limit=1&{query}"
        while path:
            answer = api.ask("GET", path, version="1.2")
            assert answer.status == 200, answer.text
            assert len(found) < 5, "a page again"
            found += [item["uuid"] for item in answer.json["instances"]]
            links = answer.json["links"]
            path = links[0]["href"].removeprefix("http://localhost") if links else ""
        return [str(int(uuid[:8], 16)) for uuid in found]

    @pytest.mark.parametrize(("query", "found"), [
        ("", "1245"), ("sort_dir=desc", "5421"), ("slo_state=missed", "1"),
        ("slo_state=met", "4"), ("slo_state=unknown", "5"), ("slo_state=none", "2"),
        ("mode=writeback", "14"), ("mode=none", ""), ("mode=writeback&host=n2", "4"),
        ("sort_key=host", "1245"), ("sort_key=host&sort_dir=desc", "5421"),
        # flush-only, writeback, writeback, writethrough
        ("sort_key=mode", "2145"), ("sort_key=mode&sort_dir=desc", "5412"),
        # met, missed, none, unknown
        ("sort_key=slo_state", "4125"), (f"project_id={OTHER}&sort_key=slo_state", "425")])
    def test_selected_and_sorted_in_pages(self, api, query, found):
        assert "".join(self.ask(api, query)) == found

    def test_a_marker_that_is_gone(self, api):
        path = f"/v1/instances?all_projects=true&marker={uuid_of(3)}"
        assert len(api.ask("GET", path, version="1.2").json["instances"]) == 2
        answer = api.ask("GET", f"{path}&sort_key=mode", version="1.2")
        assert answer.status == 400 and "start with the first page" in answer.detail

    @pytest.mark.parametrize("query", ["slo_state=bad", "mode=fast", "sort_key=name",
                                       "sort_dir=up"])
    def test_values_that_are_none(self, api, query):
        answer = api.ask("GET", f"/v1/instances?{query}", version="1.2")
        assert answer.status == 400 and "must be one of" in answer.detail


class TestQueries:
    def test_curves(self, api, agent):
        (curve,) = api.ask("GET", CURVES, "member", "1.2").json["curves"]
        assert (curve["disk"], curve["footprint_bytes"], len(curve["points"])) == (
            "vda", 2 * GIB, 33)
        assert agent.requests[-1] == {"op": "instance-curves", "uuid": MINE}

    def test_what_a_newer_host_adds_is_left_out(self, api, agent, monkeypatch):
        monkeypatch.setattr("tests.openstack.agents.curve_of", lambda _disk: {
            "disk": "vda", "points": [], "tag": 5})
        (curve,) = api.ask("GET", CURVES, "member", "1.2").json["curves"]
        assert curve == {"disk": "vda", "points": []}

    def test_why(self, api):
        (found,) = api.ask("GET", WHY, version="1.2").json["disks"]
        assert (found["disk"], found["notes"]) == ("vda", ["its note"])
        assert found["decisions"][0] == {"what": "weight", "value": 100,
                                         "because": ["flavor of vm: 100"]}

    def test_an_instance_that_has_moved(self, api, agent):
        api.backend.ready()
        agent.answer["disks"] = []
        for path in (CURVES, WHY):
            answer = api.ask("GET", path, version="1.2")
            assert (answer.status, answer.detail) == (
                404, f"Instance {MINE} could not be found.")

    def test_a_dead_host(self, api):
        api.backend.ready()
        api._servers[1].stop()
        api._servers[1].wait()
        assert api.ask("GET", CURVES, version="1.2").status == 504
        assert "n1" not in api.ask("GET", CURVES, "member", "1.2").detail

    @pytest.mark.parametrize("answer", [5, [5], None])
    def test_an_answer_that_is_none(self, api, monkeypatch, answer):
        monkeypatch.setattr(host_side.HostClient, "_send", lambda *_, **__: answer)
        found = api.ask("GET", CURVES, version="1.2")
        assert found.status == 502 and "it is not a list of objects" in found.detail


def test_a_vcache_host_that_is_older(tmp_path):
    with requests_mock.Mocker() as http:
        api = Api(tmp_path, http)
        try:
            server = messaging.get_rpc_server(
                api.transport, messaging.Target(topic=host_side.TOPIC, server="n1"), [Older()])
            server.start()
            api._servers.append(server)
            api.backend.ready()
            with pytest.raises(HostError, match="too old for instance_curves"):
                api.backend.hosts.instance_curves({}, "n1", MINE)
        finally:
            api.close()


class Older:
    """A host whose RPC interface has no queries."""

    target = messaging.Target(version="1.2")

    def report_now(self, _context: dict[str, Any]) -> None:
        """Send nothing."""


def test_while_hosts_of_two_releases_run(tmp_path, agent):
    with requests_mock.Mocker() as http:
        api = Api(tmp_path, http, "[api]\nrpc_host_cap = 1.2\n")
        try:
            api.host("n1", agent)
            answer = api.ask("GET", CURVES, version="1.2")
            assert answer.status == 502
            assert "not possible while rpc_host_cap is below 1.3" in answer.detail
        finally:
            api.close()


class TestHosts:
    def test_lanes(self, api, agent):
        agent.answer["pools"][0]["lanes"].append(
            {"size_bytes": GIB, "free_bytes": None, "dedicated": True, "uuid": MINE})
        api.know("n1")
        pool = api.ask("GET", "/v1/hosts/n1/pools/pool", version="1.2").json["pool"]
        assert pool["lanes"] == [
            {"size_bytes": 10 * GIB, "free_bytes": 9 * GIB, "dedicated": False, "instance": ""},
            {"size_bytes": GIB, "free_bytes": None, "dedicated": True, "instance": MINE}]

    def test_the_progress_of_a_drain(self, api, agent):
        def drain() -> Any:
            return api.ask("GET", "/v1/hosts/n1", version="1.2").json["host"]["drain"]

        host = api.hosts["n1"]
        api.backend.ready()
        assert drain() is None
        # Data of stopped instances counts, too.
        agent.answer["pools"][0]["dirty_bytes"] = 3 * GIB
        for item in agent.answer["disks"]:
            item["dirty_bytes"] = 0
        host.change({"op": "drain-set", "draining": True})
        seen = []
        for left in (3 * GIB, 4 * GIB, 2 * GIB, 1, 0):
            agent.answer["pools"][0]["dirty_bytes"] = left
            api.know("n1")
            seen.append(drain())
        assert [item["percent"] for item in seen] == [0, 0, 50, 99, 100]
        assert [item["done"] for item in seen] == [False] * 4 + [True]
        assert seen[2] == {"left_bytes": 2 * GIB, "total_bytes": 4 * GIB, "percent": 50,
                           "done": False}
        host.change({"op": "drain-set", "draining": False})
        api.know("n1")
        assert drain() is None
        # The next drain has a total of its own; one with nothing to write is done at once.
        host.change({"op": "drain-set", "draining": True})
        api.know("n1")
        assert drain() == {"left_bytes": 0, "total_bytes": 0, "percent": 100, "done": True}
