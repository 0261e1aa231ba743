# SPDX-License-Identifier: Apache-2.0
"""vcache-api: visibility, refusals and their texts; every response follows the document."""

import json
import time
from collections.abc import Callable, Iterator

import oslo_messaging as messaging
import pytest
import requests_mock

from nova_vcache.api import app, openapi, policies
from nova_vcache.extra_specs import KEYS, OVERRIDABLE
from nova_vcache.rpc import api_side
from nova_vcache.summary import Summary
from tests.openstack.agents import PROJECT, FakeAgent, uuid_of
from tests.openstack.apis import TOKENS, Answer, Api, conforms

MINE, THEIRS = uuid_of(1), uuid_of(2)
OVERRIDE = f"/v1/instances/{MINE}/override"


@pytest.fixture
def http() -> Iterator[requests_mock.Mocker]:
    with requests_mock.Mocker() as mocker:
        yield mocker


@pytest.fixture
def agent() -> FakeAgent:
    agent = FakeAgent()
    agent.add(1, slo_flush_ms=1.0)
    agent.add(2, "c" * 32)
    agent.add(3, "")
    return agent


@pytest.fixture
def api(tmp_path, http, agent) -> Iterator[Api]:
    api = Api(tmp_path, http)
    api.host("n1", agent)
    api.host("n2", FakeAgent())
    yield api
    api.close()


class TestDocument:
    def test_each_operation_has_a_handler_and_each_handler_an_operation(self):
        ids = [item.id for item in openapi.operations()]
        assert sorted(ids) == sorted(app.HANDLERS)
        assert {rule.endpoint.id for rule in openapi.routes().iter_rules()} == set(ids)

    def test_each_operation_has_a_rule_and_each_rule_its_operations(self):
        rules = {rule.name: rule for rule in policies.list_rules()}
        wanted = {(item.method, item.path, item.policy) for item in openapi.operations()
                  if not item.public}
        found = {(item["method"], item["path"].partition("?")[0], name)
                 for name, rule in rules.items() for item in getattr(rule, "operations", ())}
        assert wanted <= found
        assert {(method, path) for method, path, _ in found} == {
            (method, path) for method, path, _ in wanted}
        assert all(item.policy in rules for item in openapi.operations() if not item.public)

    def test_an_override_has_the_ranges_of_the_schema(self):
        properties = openapi.document()["components"]["schemas"]["Override"]["properties"]
        assert tuple(properties) == OVERRIDABLE
        for key in KEYS:
            if key.name in properties:
                found = properties[key.name]
                assert (found["minimum"], found["maximum"], found["type"][0]) == (
                    key.minimum, key.maximum, str(key.kind.value))

    def test_it_is_served_without_a_token(self, api):
        assert api.ask("GET", "/v1/openapi.json", None).json == openapi.document()
        (version,) = api.ask("GET", "/", None).json["versions"]
        assert version["id"] == "v1"
        assert version["links"][0]["href"] == "http://localhost/v1"
        assert api.ask("GET", "/v1", None).json["version"] == version

    def test_the_document_is_valid(self):
        # As far as JSON Schema goes; schemathesis reads it as a whole in the functional suite.
        import jsonschema

        for schema in openapi.document()["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)


class TestWho:
    @pytest.mark.parametrize("operation", [
        item for item in openapi.operations() if not item.public], ids=lambda item: item.id)
    def test_without_a_token(self, api, operation):
        path = operation.path.format(node="n1", pool="pool", uuid=MINE)
        for token in (None, "unknown"):
            answer = api.ask(operation.method, path, token)
            assert answer.status == 401
            assert "WWW-Authenticate" in answer.headers

    # By token: what the operations answer.
    TABLE = (
        ("GET", "/v1/hosts", {"admin": 200, "service": 200, "member": 403, "nobody": 403}),
        ("GET", "/v1/hosts?view=summary", {"admin": 200, "service": 200, "member": 403}),
        ("GET", "/v1/hosts/n1", {"admin": 200, "service": 200, "member": 403, "nobody": 403}),
        ("PATCH", "/v1/hosts/n1", {"admin": 200, "service": 403, "member": 403, "nobody": 403}),
        ("GET", "/v1/pools", {"admin": 200, "service": 403, "member": 403, "nobody": 403}),
        ("GET", "/v1/hosts/n1/pools/pool", {"admin": 200, "service": 403, "member": 403}),
        ("PATCH", "/v1/hosts/n1/pools/pool", {"admin": 200, "service": 403, "member": 403,
                                              "nobody": 403}),
        ("GET", "/v1/instances", {"admin": 200, "service": 403, "member": 200, "nobody": 403}),
        ("GET", "/v1/instances?all_projects=true", {"admin": 200, "member": 403, "other": 403}),
        ("GET", f"/v1/instances?project_id={PROJECT}", {"admin": 200, "member": 200,
                                                       "other": 403}),
        ("GET", "/v1/instances?host=n1", {"admin": 200, "member": 403}),
        ("GET", f"/v1/instances/{MINE}", {"admin": 200, "member": 200, "other": 404,
                                          "service": 404, "nobody": 404}),
        ("GET", f"/v1/instances/{MINE}/curves", {"admin": 200, "member": 200, "other": 404,
                                                 "service": 404, "nobody": 404}),
        ("GET", f"/v1/instances/{MINE}/why", {"admin": 200, "member": 403, "other": 404,
                                              "service": 404, "nobody": 404}),
        ("GET", "/v1/instances?sort_key=host", {"admin": 200, "member": 403}),
        ("PUT", OVERRIDE, {"admin": 200, "member": 403, "other": 404, "nobody": 404}),
        ("PATCH", OVERRIDE, {"admin": 200, "member": 403, "other": 404, "service": 404}),
        ("DELETE", OVERRIDE, {"admin": 204, "member": 403, "other": 404, "nobody": 404}),
        ("POST", "/v1/flavors/check", {"admin": 200, "member": 200, "nobody": 403}),
    )
    BODIES = {"hosts": {"draining": False}, "pools": {"hot_percent": 30},  # noqa: RUF012
              "instances": {"weight": 5}, "flavors": {"extra_specs": {}}}

    @pytest.mark.parametrize(("method", "path", "table"), TABLE)
    def test_each_role(self, api, method, path, table):
        what = "pools" if "/pools/" in path else path.split("/")[2]
        body = {} if method in ("GET", "DELETE") else {"json": self.BODIES[what]}
        found = {token: api.ask(method, path, token, "latest", **body).status for token in table}
        assert found == table

    def test_every_operation_is_in_the_table(self):
        import re
        asked = {(method, path.partition("?")[0]) for method, path, _ in self.TABLE}
        for item in openapi.operations():
            pattern = re.sub(r"\{[^}]*\}", "[^/]+", item.path)
            assert item.public or any(method == item.method and re.fullmatch(pattern, path)
                                      for method, path in asked)

    def test_a_token_of_the_whole_system_is_refused(self, api):
        token = {"system": {"all": True}}
        api._tokens.add_token_data("system", user_id="u", role_list=["admin"])
        api._tokens._token_data["system"]["token"] |= token
        assert api.ask("GET", "/v1/hosts", "system").status == 403

    def test_what_a_tenant_sees_tells_of_no_host_and_no_other_tenant(self, api):
        api.backend.ready()
        for path in (f"/v1/instances/{MINE}", "/v1/instances", f"/v1/instances/{MINE}/curves"):
            answer = api.ask("GET", path, "member", "latest")
            assert answer.status == 200
            for word in ("n1", "host", "pool", "254:9", "instance-", THEIRS, '"tag"', "note"):
                assert word not in answer.text, word
        (shown,) = api.ask("GET", "/v1/instances", "member").json["instances"]
        assert (shown["uuid"], shown["project_id"]) == (MINE, PROJECT)
        admin = api.ask("GET", f"/v1/instances/{MINE}").json["instance"]
        assert (admin["host"], admin["disks"][0]["tag"]) == ("n1", 1)

    def test_anothers_instance_is_as_one_that_is_not_there(self, api):
        theirs = api.ask("GET", f"/v1/instances/{THEIRS}", "member")
        nowhere = api.ask("GET", f"/v1/instances/{uuid_of(9)}", "member")
        assert theirs.status == nowhere.status == 404
        assert theirs.detail.replace(THEIRS, "X") == nowhere.detail.replace(uuid_of(9), "X")

    def test_of_an_instance_without_an_owner_nobody_is_the_owner(self, api):
        assert api.ask("GET", f"/v1/instances/{uuid_of(3)}").status == 200
        assert {api.ask("GET", f"/v1/instances/{uuid_of(3)}", name).status
                for name in TOKENS if name != "admin"} == {404}


class TestRefused:
    @pytest.mark.parametrize(("path", "words"), [
        ("/v1/hosts?limit=0", "Query parameter 'limit': '0' is not allowed, must be integer, "
                              "from 1 to 10000"),
        ("/v1/hosts?limit=ten", "'ten' is not allowed, must be integer"),
        ("/v1/hosts?limit=1&limit=2", "'limit' occurs 2 times, must occur once"),
        ("/v1/hosts?view=all", "'all' is not allowed, must be one of default, summary"),
        ("/v1/hosts?colour=red", "'colour' is unknown, must be one of view, limit, marker"),
        ("/v1/hosts/n1?x=1", "'x' is unknown, there are none here"),
        ("/v1/hosts?view=summary&limit=5", "are not allowed with view=summary"),
        ("/v1/instances?all_projects=yes", "'yes' is not allowed, must be boolean"),
        ("/v1/instances?marker=", "has 0 characters, must have 1 to 512"),
    ])
    def test_a_query(self, api, path, words):
        answer = api.ask("GET", path)
        assert answer.status == 400
        assert words in answer.detail

    @pytest.mark.parametrize(("body", "words"), [
        (b"{", "The body is not JSON"), (b"[" * 100000, "The body is not JSON"),
        (b'{"weight": NaN}', "NaN is not a JSON number"), (b"", "The body is not JSON"),
        (b"[]", "Body: '[]' is not allowed, must be object"),
        (b'{"weight": 0}', "Body: weight: '0' is not allowed, must be integer or null, from "
                           "1 to 1000"),
        (b'{"weight": "5"}', "weight: '5' is not allowed, must be integer or null"),
        (b'{"mode": "none"}', "'mode' is unknown, must be one of weight, slo_flush_ms"),
    ])
    def test_a_body(self, api, body, words):
        answer = api.ask("PUT", OVERRIDE, data=body, content_type="application/json")
        assert answer.status == 400
        assert words in answer.detail

    def test_other_bodies(self, api):
        answer = api.ask("PUT", OVERRIDE, data=b"{}", content_type="text/plain")
        assert (answer.status, "must be application/json" in answer.detail) == (415, True)
        answer = api.ask("PATCH", "/v1/hosts/n1", json={})
        assert "it is empty, must have at least one of policy, draining" in answer.detail
        answer = api.ask("PATCH", "/v1/hosts/n1", json={"policy": "best"})
        assert ("'best' is not allowed, must be one of static, weighted, throughput, mrc, null"
                in answer.detail)
        answer = api.ask("POST", "/v1/flavors/check", json={})
        assert "'extra_specs' is missing" in answer.detail
        answer = api.ask("POST", "/v1/flavors/check", json={"extra_specs": {"a": 5}})
        assert "extra_specs.a: '5' is not allowed, must be string" in answer.detail
        assert api.client.post("/v1/flavors/check", data=b"x" * 200_000, headers={
            "X-Auth-Token": "admin"}).status_code == 413

    def test_what_is_not_there(self, api):
        assert api.ask("GET", "/v1/hosts/n9").detail == "Host 'n9' could not be found."
        assert api.ask("GET", "/v1/hosts/n1/pools/x").status == 404
        assert api.ask("GET", "/v1/instances/x").status == 404
        assert api.ask("GET", "/v1/nothing").status == 404
        assert api.ask("GET", "/v1/hosts/").status == 404
        answer = api.ask("DELETE", "/v1/hosts")
        assert (answer.status, set(answer.headers["Allow"].split(", "))) == (405, {"GET", "HEAD"})

    def test_an_error_has_the_request_id_and_nothing_of_the_inside(self, api, monkeypatch):
        def broken() -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr(api.backend, "ready", broken)
        response = api.client.get("/v1/hosts", headers={"X-Auth-Token": "admin"})
        (error,) = json.loads(response.get_data())["errors"]
        assert (response.status_code, error["status"]) == (500, 500)
        assert error["request_id"] == response.headers["x-openstack-request-id"]
        assert "secret" not in error["detail"]


class TestMicroversions:
    def ask(self, api, *headers: str, path: str = "/v1/hosts/n1") -> Answer:
        answer = Answer(api.client.get(path, headers=[
            ("X-Auth-Token", "admin"), *(("OpenStack-API-Version", text) for text in headers)]))
        conforms("GET", path, answer)
        return answer

    def test_discovery(self, api):
        for path in ("/", "/v1"):
            found = api.ask("GET", path, None).json
            (version,) = found.get("versions", [found.get("version")])
            assert (version["min_version"], version["max_version"]) == ("1.0", "1.2")

    @pytest.mark.parametrize(("headers", "given"), [
        ((), "1.0"), (("vcache 1.0",), "1.0"), (("vcache 1.1",), "1.1"),
        (("vcache latest",), "1.2"), (("vcache 1.2",), "1.2"),
        (("compute 2.96, vcache 1.1",), "1.1"), (("compute 2.96",), "1.0"),
        (("VCACHE 1.1",), "1.1")])
    def test_a_client_gets_the_version_that_it_asks_for(self, api, headers, given):
        answer = self.ask(api, *headers)
        assert answer.status == 200
        assert answer.headers["OpenStack-API-Version"] == f"vcache {given}"
        assert "OpenStack-API-Version" in answer.headers["Vary"]
        assert ("report_age_s" in answer.json["host"]) is (given != "1.0")

    @pytest.mark.parametrize("text", ["1.3", "0.9", "2.0", "1.10", "999.0"])
    def test_one_that_is_not_supported(self, api, text):
        answer = self.ask(api, f"vcache {text}")
        (error,) = answer.json["errors"]
        assert (answer.status, error["min_version"], error["max_version"]) == (406, "1.0", "1.2")
        assert f"Microversion {text} is not supported, must be from 1.0 to 1.2" in error["detail"]
        # The documents that tell a client what it may ask for have no version.
        assert self.ask(api, f"vcache {text}", path="/").status == 200

    @pytest.mark.parametrize("text", [
        "1", "1.0.0", "new", "1.-1", "1.+1", "\u0661.0", "1." + "9" * 99])
    def test_one_that_is_none(self, api, text):
        answer = self.ask(api, f"vcache {text}")
        assert answer.status == 400 and "vcache X.Y, with X.Y from 1.0 to 1.2" in answer.detail

    def test_each_operation_has_it(self):
        for item in openapi.operations():
            assert (("header", "OpenStack-API-Version") in item.parameters) is not item.public
            responses = openapi.document()["paths"][item.path][item.method.lower()]["responses"]
            assert ("406" in responses) is not item.public


class TestBrowsers:
    def test_other_origins_are_allowed_if_they_are_configured(self, tmp_path, http, agent):
        api = Api(tmp_path, http, "[cors]\nallowed_origin = https://horizon.invalid\n")
        try:
            for origin, allowed in (("https://horizon.invalid", True),
                                    ("https://x.invalid", False)):
                answer = api.client.options("/v1/hosts", headers={
                    "Origin": origin, "Access-Control-Request-Method": "PATCH",
                    "Access-Control-Request-Headers": "X-Auth-Token,OpenStack-API-Version"})
                assert (answer.headers.get("Access-Control-Allow-Origin") == origin) is allowed
                answer = api.client.get("/", headers={"Origin": origin})
                assert ("OpenStack-API-Version" in answer.headers.get(
                    "Access-Control-Expose-Headers", "")) is allowed
        finally:
            api.close()

    def test_links_are_those_of_the_proxy(self, tmp_path, http, agent):
        api = Api(tmp_path, http, "[oslo_middleware]\nenable_proxy_headers_parsing = true\n")
        try:
            answer = api.client.get("/", headers={
                "X-Forwarded-Proto": "https", "X-Forwarded-Host": "cloud.invalid",
                "X-Forwarded-Prefix": "/vcache"})
            (version,) = json.loads(answer.get_data())["versions"]
            assert version["links"][0]["href"] == "https://cloud.invalid/vcache/v1"
        finally:
            api.close()


class TestHealth:
    def test_a_process_whose_bus_is_dead_is_not_healthy(self, tmp_path, http, monkeypatch):
        works = True

        def ping(*_arguments: object) -> None:
            if not works:
                raise messaging.MessagingTimeout

        monkeypatch.setattr(api_side, "ping", ping)
        api = Api(tmp_path, http, "[api]\nbus_timeout = 0.4\n")
        try:
            def status() -> int:
                return api.client.get("/healthcheck").status_code

            for _ in range(10):
                assert status() == 200
                time.sleep(0.05)
            works = False
            await_(lambda: status() == 503)
            answer = api.client.get("/healthcheck")
            assert "the message bus has not answered for" in answer.get_data(as_text=True)
            assert api.client.head("/healthcheck").get_data() == b""
            works = True
            await_(lambda: status() == 200)
        finally:
            api.close()

    def test_it_can_be_ignored(self, tmp_path, http, monkeypatch):
        api = Api(tmp_path, http, "[api]\nbus_timeout = 0\n")
        try:
            assert api.client.get("/healthcheck").status_code == 200
            api.backend._bus_answered -= 9999
            assert api.client.get("/healthcheck").status_code == 200
        finally:
            api.close()


def await_(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


class TestHosts:
    def test_pages(self, api, http):
        api.nodes("n1", "n2", "n3")
        api.backend.ready()
        api.backend.directory.refresh()
        seen: list[tuple[str, str]] = []
        path = "/v1/hosts?limit=1"
        while path:
            answer = api.ask("GET", path).json
            assert len(seen) < 3, "a page again"
            seen += [(item["node"], item["state"]) for item in answer["hosts"]]
            path = answer["links"][0]["href"] if answer["links"] else ""
            path = path.removeprefix("http://localhost")
        assert seen == [("n1", "up"), ("n2", "up"), ("n3", "unknown")]
        assert api.ask("GET", "/v1/hosts?marker=n1x").json["hosts"][0]["node"] == "n2"

    def test_max_limit(self, tmp_path, http, agent):
        api = Api(tmp_path, http, "[api]\nmax_limit = 2\n")
        api.host("n1", agent)
        try:
            for path in ("/v1/instances?all_projects=true",
                         "/v1/instances?all_projects=true&limit=5"):
                answer = api.ask("GET", path).json
                assert len(answer["instances"]) == 2
                assert "all_projects=true" in answer["links"][0]["href"]
        finally:
            api.close()

    def test_without_credentials_for_placement_it_says_so(self, tmp_path, http, caplog):
        api = Api(tmp_path, http, "[placement]\nauth_type =\nendpoint_override =\n")
        try:
            api.backend.directory.refresh()
            api.backend.directory.refresh()
        finally:
            api.close()
        assert caplog.text.count("section [placement] has no credentials; set auth_type") == 1

    def test_the_summary_is_what_the_scheduler_reads(self, api):
        document = api.ask("GET", "/v1/hosts?view=summary", "service").json
        hosts = Summary.parse(document).hosts
        assert set(hosts) == {"n1", "n2"}
        assert hosts["n1"].cache_mb == 9216 and hosts["n1"].slo_tags == 1
        assert set(document["hosts"][0]) == set(hosts["n1"].to_json())

    def test_a_host_that_is_set(self, api, agent):
        answer = api.ask("PATCH", "/v1/hosts/n1", json={"draining": True, "policy": "static"})
        assert answer.json["host"]["draining"] is True
        assert answer.json["host"]["policy"] == "static"
        assert api.ask("GET", "/v1/hosts/n1").json["host"]["modes"] == []
        assert answer.json["host"]["dirty_bytes"] == 3 * (4096 + 8192)

    def test_pools(self, api):
        pools = api.ask("GET", "/v1/pools").json["pools"]
        assert [item["id"] for item in pools] == ["n1/pool", "n2/pool"]
        (only,) = api.ask("GET", "/v1/pools?host=n2").json["pools"]
        assert only["host"] == "n2"
        assert api.ask("GET", "/v1/hosts/n2/pools/pool").json["pool"] == pools[1]

    def test_what_is_set_of_a_pool(self, api):
        path = "/v1/hosts/n1/pools/pool"
        answer = api.ask("PATCH", path, json={"reads_percent": 0, "hot_percent": 100})
        assert answer.status == 200
        found = api.ask("GET", path).json["pool"]
        assert found == answer.json["pool"]
        assert (found["reads_percent"], found["hot_percent"]) == (0, 100)
        for body, words in (({}, "must have at least one of reads_percent, hot_percent"),
                            ({"hot_percent": 101}, "101"), ({"hot_percent": 5.5}, "5.5"),
                            ({"hot_percent": True}, "integer"),
                            ({"size": 5}, "size")):
            refused = api.ask("PATCH", path, json=body)
            assert refused.status == 400
            assert words in refused.json["errors"][0]["detail"]
        # An integer, as JSON Schema has it; the agent takes nothing but one.
        written = api.ask("PATCH", path, data=b'{"reads_percent": 97.0, "hot_percent": 1e1}',
                          content_type="application/json").json["pool"]
        assert [str(written[name]) for name in ("reads_percent", "hot_percent")] == ["97", "10"]
        for path in ("/v1/hosts/n1/pools/x", "/v1/hosts/x/pools/pool"):
            assert api.ask("PATCH", path, json={"hot_percent": 5}).status == 404

    def test_placement_that_is_down_takes_nobody_away(self, api, http):
        api.backend.ready()
        http.get(requests_mock.ANY, status_code=503)
        api.backend.directory.refresh()
        assert len(api.ask("GET", "/v1/hosts").json["hosts"]) == 2

    def test_a_name_that_was_cut_off_is_looked_up(self, api, http):
        long = "n" * 220
        http.get("http://placement.invalid/resource_providers", json={"resource_providers": [
            {"uuid": "u", "name": "n" * 193 + "_vcache", "parent_provider_uuid": "p"}]})
        http.get("http://placement.invalid/resource_providers/p", json={"name": long})
        assert api.backend._known() == {long}


class TestOverride:
    def test_from_set_to_gone(self, api, agent):
        answer = api.ask("PUT", OVERRIDE, json={"weight": 7, "slo_iops": 10.5}).json["instance"]
        assert answer["override"] == {"weight": 7, "slo_iops": 10.5}
        assert (answer["specs"]["weight"], answer["flavor"]["weight"]) == (7, 100)
        answer = api.ask("PATCH", OVERRIDE, json={"weight": None}).json["instance"]
        assert answer["override"] == {"slo_iops": 10.5}
        assert api.ask("PUT", OVERRIDE, json={"weight": 3}).json["instance"]["override"] == {
            "weight": 3}
        assert api.ask("DELETE", OVERRIDE).status == 204
        assert agent.answer["domains"][0]["override"] == {}
        assert [item["replace"] for item in agent.requests if item["op"] == "instance-set"] == [
            True, False, True, True]

    def test_others_are_told(self, api):
        from oslo_messaging.notify import _impl_test

        _impl_test.reset()
        api.ask("PUT", OVERRIDE, json={"weight": 7})
        api.ask("PUT", OVERRIDE, json={"weight": 0})
        (_, message, priority, _), = _impl_test.NOTIFICATIONS
        assert (message["event_type"], priority) == ("instance.override", "INFO")
        payload = message["payload"]
        assert (payload["instance_uuid"], payload["old"], payload["new"]) == (MINE, {}, {
            "weight": 7})
        assert payload["request_id"].startswith("req-") and payload["user_id"] == "user-admin"

    @pytest.mark.parametrize(("error", "kind", "status", "words"), [
        ("instance 'x' is not on this host", "not-here", 404, "could not be found"),
        ("the change is saved, but was not applied to the kernel within 20 s", "unfinished",
         503, "the change is saved, but"),
        ("weight 7 is not liked today", "", 400, "weight 7 is not liked"),
    ])
    def test_what_the_host_cannot_do(self, api, agent, error, kind, status, words):
        api.backend.ready()
        agent.error, agent.kind = error, kind
        answer = api.ask("PUT", OVERRIDE, json={"weight": 7})
        assert answer.status == status
        assert words in answer.detail
        assert ("Retry-After" in answer.headers) == (status == 503)

    def test_a_dead_host_keeps_nobody_else_waiting(self, api):
        api.backend.ready()
        api._servers[0].stop()
        api._servers[0].wait()
        answer = api.ask("PUT", OVERRIDE, json={"weight": 7})
        assert (answer.status, answer.headers["Retry-After"]) == (504, "5")
        assert "host n1: no answer to instance_set in time" in answer.detail
        assert api.ask("GET", "/v1/hosts").status == 200


class TestFlavors:
    def check(self, api: Api, **specs: str) -> dict:
        body = {"extra_specs": {name.replace("__", ":"): text for name, text in specs.items()}}
        found: dict = api.ask("POST", "/v1/flavors/check", "member", json=body).json
        return found

    def test_one_that_is_well(self, api):
        found = self.check(api, vcache__mode="writeback", vcache__min_mb="5",
                           resources__CUSTOM_VCACHE_MB="5", resources__CUSTOM_VCACHE_VTAG="1")
        assert found["valid"] and found["placement_keys"] == {
            "resources:CUSTOM_VCACHE_MB": "5", "resources:CUSTOM_VCACHE_VTAG": "1"}

    def test_one_that_disagrees_with_itself(self, api):
        found = self.check(api, vcache__mode="writeback", vcache__min_mb="5")
        assert not found["valid"]
        assert [item["key"] for item in found["disagreements"]] == [
            "resources:CUSTOM_VCACHE_MB", "resources:CUSTOM_VCACHE_VTAG"]

    def test_one_that_cannot_be_used(self, api):
        found = self.check(api, vcache__weight="x")
        assert found["problems"] == [{"key": "vcache:weight", "value": "x",
                                      "allowed": "an integer from 1 to 1000"}]


def test_the_healthcheck_needs_no_token(api):
    assert api.client.get("/healthcheck").status_code == 200
