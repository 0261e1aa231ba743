# SPDX-License-Identifier: Apache-2.0
"""The reporter against the real Placement service, in this process."""

import dataclasses
import uuid

import pytest

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import names
from nova_vcache.placement.capacity import Capacity
from nova_vcache.placement.client import PlacementError
from nova_vcache.placement.reporter import CLOSED, NoComputeNode, Reporter
from tests.openstack.placements import Placement

NODE = "node1"
FULL = Capacity(tags=65535, tags_reserved=3, cache_mb=9000, largest_mb=6000, elastic=True,
                modes=frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH}))
BOTH = {names.TAG: 1, names.CACHE_MB: 4000}


@pytest.fixture
def node(placement: Placement) -> str:
    return placement.make_node()


@pytest.fixture
def reporter(placement: Placement, node: str) -> Reporter:
    return Reporter(placement.client, NODE)


def ask(specs: dict[str, int], *traits: str) -> dict[str, str]:
    query = {"resources": ",".join(f"{name}:{amount}" for name, amount in specs.items())}
    return query | ({"required": ",".join(traits)} if traits else {})


def test_a_first_report_makes_the_whole_picture(placement, node, reporter):
    report = reporter.report(FULL)
    assert report.created and report.changed and not report.overcommitted
    found = placement.client.provider(report.provider)
    assert (found["name"], found["parent_provider_uuid"]) == ("node1_vcache", node)
    inventories, _ = placement.client.inventories(report.provider)
    assert inventories == FULL.inventories({})
    assert inventories[names.CACHE_MB]["max_unit"] == 6000
    traits, _ = placement.client.traits(report.provider)
    assert traits == {names.OWNER, names.FLUSH_ISOLATION, names.ELASTIC, names.WRITEBACK,
                      names.WRITETHROUGH}


def test_a_second_report_of_the_same_writes_nothing(placement, reporter):
    first = reporter.report(FULL)
    generation = placement.client.provider(first.provider)["generation"]
    assert reporter.report(FULL) == type(first)(first.provider, False, False, {})
    assert Reporter(placement.client, NODE).report(FULL).changed is False
    assert placement.client.provider(first.provider)["generation"] == generation


def test_while_nothing_changes_a_report_is_one_request(placement, reporter, monkeypatch):
    provider = reporter.report(FULL).provider
    asked: list[str] = []
    real = placement.http.request

    def request(path, method, **options):
        asked.append(f"{method} {path}")
        return real(path, method, **options)

    monkeypatch.setattr(placement.http, "request", request)
    at = f"/resource_providers/{provider}"
    reporter.report(FULL)
    assert asked == [f"GET {at}/allocations"]
    # An allocation of somebody else needs no write.
    consumer = placement.allocate(provider, BOTH)
    reads = [f"GET {at}/allocations", f"GET {at}/traits", f"GET {at}/inventories"]
    asked.clear()
    reporter.report(FULL)
    assert asked == reads

    def follow(found: dict) -> Capacity:
        return dataclasses.replace(FULL, tags_reserved=3 - len(found))

    asked.clear()
    reporter.report(follow)
    assert asked == [*reads, f"PUT {at}/inventories"]
    asked.clear()
    reporter.report(follow)
    assert asked == reads[:1]
    placement.free(consumer)
    asked.clear()
    reporter.report(follow)
    assert asked == [*reads, f"PUT {at}/inventories"], "the generation is still the same"


def test_flavors_find_the_host_by_its_traits(placement, node, reporter):
    provider = reporter.report(FULL).provider
    query = ask({"VCPU": 1, **BOTH}, names.FLUSH_ISOLATION, names.WRITEBACK)
    (found,) = placement.candidates(**query)
    assert found["allocations"][provider]["resources"] == BOTH
    assert placement.candidates(**ask({"VCPU": 1, **BOTH}, names.TAGGED_SSD)) == []
    # More than one pool has, though all pools together have it.
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: 6001})) == []
    # A host without a cache is still there for who does not ask for one.
    assert len(placement.candidates(**ask({"VCPU": 1}))) == 1


def test_a_host_without_a_pool_has_tags_only(placement, reporter):
    provider = reporter.report(Capacity(tags=100)).provider
    inventories, _ = placement.client.inventories(provider)
    assert set(inventories) == {names.TAG}
    assert len(placement.candidates(
        **ask({"VCPU": 1, names.TAG: 1}, names.FLUSH_ISOLATION))) == 1
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1}, names.WRITEBACK)) == []


def test_what_is_reserved_cannot_be_allocated(placement, reporter):
    reporter.report(Capacity(tags=10, tags_reserved=10))
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1})) == []


def test_a_deleted_tree_is_made_again(placement, node, reporter):
    """As `openstack compute service delete` does it, child and root."""
    provider = reporter.report(FULL).provider
    placement.client.delete(provider)
    placement.client.delete(node)
    with pytest.raises(NoComputeNode, match=NODE):
        reporter.report(FULL)
    # nova-compute keeps its UUID over that, by its file compute_id.
    placement.make_node(node_uuid=node)
    report = reporter.report(FULL)
    assert report.created and report.provider == provider
    assert placement.client.inventories(provider)[0] == FULL.inventories({})


def test_a_node_that_comes_back_with_another_uuid_is_found(placement, node, reporter):
    first = reporter.report(FULL).provider
    placement.client.delete(first)
    placement.client.delete(node)
    other = placement.make_node()
    report = reporter.report(FULL)
    assert report.created and report.provider == names.provider_uuid(other) != first


def test_only_the_child_is_gone(placement, reporter):
    provider = reporter.report(FULL).provider
    placement.client.delete(provider)
    assert reporter.report(FULL).created


def test_a_pool_that_grows_and_shrinks(placement, reporter):
    provider = reporter.report(FULL).provider
    larger = Capacity(tags=65535, cache_mb=20000, largest_mb=20000)
    assert reporter.report(larger).changed
    assert len(placement.candidates(**ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: 15000}))) == 1
    placement.allocate(provider, {names.TAG: 1, names.CACHE_MB: 15000})
    report = reporter.report(Capacity(tags=65535, cache_mb=10000, largest_mb=10000))
    assert report.overcommitted == {names.CACHE_MB: 5000}
    inventories, _ = placement.client.inventories(provider)
    assert inventories[names.CACHE_MB]["total"] == 10000
    assert (inventories[names.CACHE_MB]["max_unit"] == 15000)
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: 1})) == []


def test_a_pool_that_vanishes_under_allocations(placement, reporter):
    provider = reporter.report(FULL).provider
    consumer = placement.allocate(provider, BOTH)
    gone = Capacity(tags=65535)
    report = reporter.report(gone)
    assert report.overcommitted == {names.CACHE_MB: 4000}
    inventory = placement.client.inventories(provider)[0][names.CACHE_MB]
    assert inventory["total"] == inventory["reserved"] == 4000
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: 1})) == []
    assert reporter.report(gone).changed is False
    placement.free(consumer)
    assert reporter.report(gone).changed
    assert set(placement.client.inventories(provider)[0]) == {names.TAG}


@pytest.mark.parametrize("now", [
    CLOSED, Capacity(tags=65535), dataclasses.replace(FULL, closed=True),
    Capacity(tags=65535, cache_mb=9000, largest_mb=2000),
    Capacity(tags=9, cache_mb=10, largest_mb=9),
    Capacity(tags=9, cache_mb=4500, largest_mb=1500, cache_reserved_mb=200)],
    ids=["silent", "no pool", "draining", "smaller pools", "tiny", "reserved"])
def test_an_allocation_can_move_away_from_any_host(placement, reporter, now):
    """Placement checks the units of an allocation that only changes its consumer."""
    provider = reporter.report(FULL).provider
    source = placement.allocate(provider, BOTH)
    reporter.report(now)
    target = str(uuid.uuid4())
    answer = placement.move(provider, source, target)
    assert answer.status_code == 204, answer.text
    # What a revert of the migration does.
    assert placement.move(provider, target, source).status_code == 204
    # Nothing larger than a pool is granted meanwhile.
    assert placement.candidates(
        **ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: max(1, now.largest_mb) + 1})) == []


def test_small_requests_fit_beside_an_allocation_that_is_larger_than_a_pool(placement, reporter):
    provider = reporter.report(FULL).provider
    consumer = placement.allocate(provider, BOTH)
    reporter.report(Capacity(tags=65535, cache_mb=9000, largest_mb=2000))
    inventory = placement.client.inventories(provider)[0][names.CACHE_MB]
    assert (inventory["max_unit"], inventory["reserved"]) == (4000, 3000)
    assert len(placement.candidates(
        **ask({"VCPU": 1, names.TAG: 1, names.CACHE_MB: 2000}))) == 1
    placement.free(consumer)
    reporter.report(Capacity(tags=65535, cache_mb=9000, largest_mb=2000))
    inventory = placement.client.inventories(provider)[0][names.CACHE_MB]
    assert (inventory["max_unit"], inventory["reserved"]) == (2000, 0)


def test_a_host_that_drains_is_not_short_of_anything(placement, reporter):
    provider = reporter.report(FULL).provider
    placement.allocate(provider, BOTH)
    assert reporter.report(dataclasses.replace(FULL, closed=True)).overcommitted == {}
    inventories = placement.client.inventories(provider)[0]
    assert all(item["reserved"] == item["total"] for item in inventories.values())


def test_what_others_put_there_stays(placement, node, reporter):
    provider = reporter.report(FULL).provider
    placement.client.ensure_trait("CUSTOM_RACK_7")
    placement.client.ensure_class("CUSTOM_OTHER")
    placement.put(provider, "traits", traits=["CUSTOM_RACK_7", names.TAGGED_SSD])
    placement.put(provider, "inventories", inventories={"CUSTOM_OTHER": {"total": 7}})
    reporter.report(FULL)
    traits, _ = placement.client.traits(provider)
    assert traits == FULL.traits | {"CUSTOM_RACK_7"}
    inventories, _ = placement.client.inventories(provider)
    assert set(inventories) == {"CUSTOM_OTHER", names.TAG, names.CACHE_MB}
    # Nothing of ours on the compute node's own provider.
    assert placement.client.traits(node)[0] == set()
    assert set(placement.client.inventories(node)[0]) == {"VCPU"}


def test_a_conflict_is_read_and_written_again(placement, reporter, monkeypatch):
    provider = reporter.report(FULL).provider
    real = placement.client.inventories
    calls: list[str] = []

    def stale(asked):
        found = real(asked)
        if not calls:
            placement.allocate(provider, BOTH)  # the generation goes on
        calls.append(asked)
        return found

    monkeypatch.setattr(placement.client, "inventories", stale)
    assert reporter.report(Capacity(tags=9, cache_mb=5000, largest_mb=5000)).changed
    assert len(calls) == 2
    assert real(provider)[0][names.CACHE_MB]["total"] == 5000


def test_an_allocation_that_comes_just_before_an_inventory_goes(
        placement, reporter, monkeypatch):
    provider = reporter.report(FULL).provider
    real = placement.client.allocations
    calls: list[str] = []

    def late(asked):
        found = real(asked)
        if not calls:
            placement.allocate(provider, BOTH)
        calls.append(asked)
        return found

    monkeypatch.setattr(placement.client, "allocations", late)
    assert reporter.report(Capacity(tags=65535)).overcommitted == {names.CACHE_MB: 4000}
    inventory = placement.client.inventories(provider)[0][names.CACHE_MB]
    assert inventory["reserved"] == inventory["total"] == 4000


def test_a_host_that_withdraws(placement, node, reporter):
    provider = reporter.report(FULL).provider
    consumer = placement.allocate(provider, BOTH)
    assert reporter.withdraw() is False
    assert placement.candidates(**ask({"VCPU": 1, names.TAG: 1})) == []
    assert placement.client.traits(provider)[0] == {names.OWNER}
    placement.free(consumer)
    assert reporter.withdraw() is True
    assert placement.client.provider(provider) is None
    assert placement.client.provider(node) is not None
    assert reporter.withdraw() is True


def test_a_name_that_another_provider_has_is_an_error_that_says_so(placement, node, reporter):
    placement.make_node("node1_vcache")
    with pytest.raises(PlacementError, match=r"409.*node1_vcache"):
        reporter.report(FULL)


def test_a_child_is_not_taken_for_a_compute_node(placement, reporter):
    reporter.report(FULL)
    with pytest.raises(PlacementError, match="parent"):
        Reporter(placement.client, "node1_vcache").report(FULL)
