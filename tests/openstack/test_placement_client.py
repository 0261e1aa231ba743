# SPDX-License-Identifier: Apache-2.0
"""The reporter when Placement fails or another client interferes, with fake HTTP."""

import pytest
import requests
import requests_mock
from keystoneauth1 import adapter, session, token_endpoint

from nova_vcache.placement import names
from nova_vcache.placement.capacity import Capacity, guaranteed_mb
from nova_vcache.placement.client import Client, Conflict, NotFound, PlacementError
from nova_vcache.placement.reporter import Reporter

URL = "http://placement.invalid"
ROOT = "11111111-2222-4333-8444-555555555555"
CHILD = names.provider_uuid(ROOT)
AT = f"{URL}/resource_providers"
CAPACITY = Capacity(tags=10)


def error(code: str, detail: str = "no") -> dict:
    return {"errors": [{"status": 409, "code": code, "detail": detail}]}


@pytest.fixture
def http():
    with requests_mock.Mocker() as mocker:
        yield mocker


@pytest.fixture
def client() -> Client:
    return Client(adapter.Adapter(
        session.Session(token_endpoint.Token(URL, "t"), timeout=5),
        service_type="placement", endpoint_override=URL))


@pytest.fixture
def reporter(client: Client, http: requests_mock.Mocker) -> Reporter:
    """Return one for a host whose picture is true but for what a test changes."""
    http.put(requests_mock.ANY, status_code=204)
    http.get(f"{AT}?name=n1", json={"resource_providers": [{"uuid": ROOT}]})
    http.get(f"{AT}/{CHILD}", json={
        "uuid": CHILD, "parent_provider_uuid": ROOT, "generation": 7})
    http.get(f"{AT}/{CHILD}/traits", json={
        "traits": sorted(CAPACITY.traits), "resource_provider_generation": 7})
    http.get(f"{AT}/{CHILD}/inventories", json={
        "inventories": CAPACITY.inventories({}), "resource_provider_generation": 7})
    http.get(f"{AT}/{CHILD}/allocations", json={
        "allocations": {}, "resource_provider_generation": 7})
    return Reporter(client, "n1")


def test_requests_name_the_microversion(reporter, http):
    assert not reporter.report(CAPACITY).changed
    assert {request.headers["OpenStack-API-Version"] for request in http.request_history} == {
        "placement 1.26"}


def test_names_are_made_once(reporter, http):
    reporter.report(CAPACITY)
    first = http.call_count
    reporter.report(CAPACITY)
    again = http.request_history[first:]
    assert [request.method for request in again] == ["GET"]


@pytest.mark.parametrize(("answer", "text"), [
    ({"status_code": 503, "text": "<html>busy</html>", "reason": "Busy"}, "503: Busy"),
    ({"status_code": 500, "json": {"errors": []}, "reason": "Oops"}, "500: Oops"),
    ({"status_code": 500, "json": ["x"], "reason": "Oops"}, "500: Oops"),
    ({"status_code": 403, "json": error("", "not  you\n")}, "403: not you"),
    ({"text": "<html>login</html>"}, "is not JSON"),
    ({"exc": requests.exceptions.ConnectTimeout}, "timed out"),
    ({"exc": requests.exceptions.ConnectionError}, "Unable to establish connection"),
])
def test_an_answer_that_is_none_is_an_error_that_says_what_was_asked(
        reporter, http, answer, text):
    http.get(f"{AT}/{CHILD}/traits", **answer)
    with pytest.raises(PlacementError, match=text) as caught:
        reporter.report(CAPACITY)
    assert f"GET /resource_providers/{CHILD}/traits" in str(caught.value)


def test_after_a_failure_the_next_report_works(reporter, http):
    http.get(f"{AT}/{CHILD}/traits", [
        {"status_code": 503},
        {"json": {"traits": [], "resource_provider_generation": 8}}])
    http.put(f"{AT}/{CHILD}/traits", json={"resource_provider_generation": 9})
    with pytest.raises(PlacementError):
        reporter.report(CAPACITY)
    assert reporter.report(CAPACITY).changed


def test_endless_conflicts_end(reporter, http):
    http.put(f"{AT}/{CHILD}/traits", status_code=409,
             json=error("placement.concurrent_update"))
    http.get(f"{AT}/{CHILD}/traits", json={
        "traits": ["CUSTOM_X"], "resource_provider_generation": 1})
    with pytest.raises(Conflict):
        reporter.report(CAPACITY)
    tries = [request for request in http.request_history
             if request.method == "PUT" and request.path.endswith(f"{CHILD}/traits")]
    assert len(tries) == 5
    assert tries[0].json() == {
        "traits": ["CUSTOM_OWNER_VCACHE", "CUSTOM_VCACHE_FLUSH_ISOLATION", "CUSTOM_X"],
        "resource_provider_generation": 7}


def test_one_that_somebody_else_makes_at_the_same_moment_is_used(reporter, http):
    http.get(f"{AT}/{CHILD}", [
        {"status_code": 404},
        {"json": {"uuid": CHILD, "parent_provider_uuid": ROOT, "generation": 7}}])
    http.post(AT, status_code=409, json=error("placement.duplicate_name"))
    assert reporter.report(CAPACITY).created is False


def test_a_tree_that_is_deleted_between_two_requests_is_made_again(reporter, http):
    http.get(f"{AT}/{CHILD}", [
        {"json": {"uuid": CHILD, "parent_provider_uuid": ROOT, "generation": 7}},
        {"status_code": 404}])
    http.get(f"{AT}/{CHILD}/inventories", [
        {"status_code": 404, "json": error("placement.undefined_code")},
        {"json": {"inventories": {}, "resource_provider_generation": 0}}])
    http.post(AT, json={})
    http.put(f"{AT}/{CHILD}/inventories", json={"resource_provider_generation": 1})
    assert reporter.report(CAPACITY).created
    assert [request.json() for request in http.request_history if request.method == "POST"] == [
        {"uuid": CHILD, "name": "n1_vcache", "parent_provider_uuid": ROOT}]


def test_a_provider_elsewhere_in_the_tree_is_left_alone(reporter, http):
    http.get(f"{AT}/{CHILD}", json={"uuid": CHILD, "parent_provider_uuid": CHILD})
    with pytest.raises(PlacementError, match=f"not a child of {ROOT}"):
        reporter.report(CAPACITY)
    assert not [request for request in http.request_history
                if request.method != "GET" and "resource_providers" in request.path]


def test_a_name_that_was_deleted_is_made_again_by_the_next_report(reporter, http):
    reporter.report(CAPACITY)
    http.get(f"{AT}/{CHILD}/allocations", json={
        "allocations": {}, "resource_provider_generation": 8})
    http.get(f"{AT}/{CHILD}/traits", json={"traits": [], "resource_provider_generation": 8})
    http.put(f"{AT}/{CHILD}/traits", status_code=400, json=error("", "No such trait"))
    with pytest.raises(PlacementError, match="No such trait"):
        reporter.report(CAPACITY)
    http.put(f"{AT}/{CHILD}/traits", json={"resource_provider_generation": 8})
    before = http.call_count
    reporter.report(CAPACITY)
    made = {request.path for request in http.request_history[before:] if request.method == "PUT"}
    assert f"/traits/{names.FLUSH_ISOLATION.lower()}" in made


def test_a_missing_provider_is_found_out(client, http):
    http.get(f"{AT}/{CHILD}/allocations", status_code=404, json=error(""))
    with pytest.raises(NotFound):
        client.allocations(CHILD)


def test_nine_tenths_of_a_pool_can_be_guaranteed():
    assert guaranteed_mb(1000 << 20) == 900
    assert guaranteed_mb((1 << 20) - 1) == 0


@pytest.mark.parametrize(("values", "text"), [
    ({"tags": -1}, "tags is -1"),
    ({"tags": 1, "step_mb": 0}, "step_mb is 0"),
    ({"tags": 1, "largest_mb": 5, "cache_mb": 4}, "largest_mb is 5"),
])
def test_a_capacity_that_cannot_be_is_refused(values, text):
    with pytest.raises(ValueError, match=text):
        Capacity(**values)


def test_a_pool_smaller_than_one_step_guarantees_nothing():
    assert names.CACHE_MB not in Capacity(
        tags=1, cache_mb=30, largest_mb=15, step_mb=16).inventories({})
