# SPDX-License-Identifier: Apache-2.0
"""A real Nova in this process: API, scheduler, conductor, computes, and Placement."""

import logging
import time
from typing import Any, ClassVar

import pytest
from keystoneauth1 import adapter, session, token_endpoint
from nova.tests.functional.api import client as api_client
from nova.tests.functional.libvirt import base

from nova_vcache.extra_specs import Mode, parse
from nova_vcache.placement import names
from nova_vcache.placement.capacity import Capacity
from nova_vcache.placement.client import Client
from nova_vcache.placement.flavor import placement_keys
from nova_vcache.placement.reporter import Reporter
from nova_vcache.scheduler import filter as filter_module
from nova_vcache.scheduler import snapshot
from nova_vcache.summary import HostSummary, Summary

CACHED = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY})
CAPACITY = Capacity(tags=65535, cache_mb=4000, largest_mb=4000, elastic=True, modes=CACHED)
GOLD = {"vcache:mode": "writeback", "vcache:min_mb": "1000", "vcache:required": "true"}


class NovaTest(base.ServersTestBase):
    """A Nova with our filter and weigher."""

    microversion = "latest"
    ADDITIONAL_FILTERS: ClassVar[list[str]] = ["VCacheFilter"]

    def setUp(self) -> None:
        # Before the scheduler is started, which makes its filters then.
        self.flags(
            available_filters=["nova.scheduler.filters.all_filters",
                               "nova_vcache.scheduler.filter.VCacheFilter"],
            weight_classes=["nova_vcache.scheduler.weigher.VCacheWeigher"],
            group="filter_scheduler")
        self._summaries: dict[str, HostSummary] = {}
        self._api_works = True
        snapshot.replace_shared(snapshot.SummaryCache(self._fetch, 0.05, 60))
        super().setUp()
        self.addCleanup(snapshot.replace_shared, None)

    def run(self, result: Any = None) -> Any:
        """Run the test; pytest's runner takes an attribute away that Nova's has removed."""
        name = self._testMethodName
        found = super().run(result)
        self.__dict__.setdefault(name, None)
        return found

    def _fetch(self) -> Any:
        if not self._api_works:
            raise OSError("vcache-api is down")
        return Summary(dict(self._summaries)).to_json()

    def host(self, name: str, capacity: Capacity | None = CAPACITY, **summary: Any) -> None:
        """Start a compute host, with a cache or without."""
        self.start_compute(hostname=name)
        if capacity is not None:
            self.reporter(name).report(capacity)
            self.know(name, **summary)

    def know(self, name: str, **fields: Any) -> None:
        values: dict[str, Any] = {
            "age_s": 0.0, "modes": CACHED, "flush_isolation": True, "tags_free": 9,
            "cache_mb": 4000, "cache_free_mb": 4000, "largest_free_mb": 4000}
        self._summaries[name] = HostSummary(name, **values | fields)

    def reporter(self, name: str) -> Reporter:
        url = self.placement.fixture.endpoint
        return Reporter(Client(adapter.Adapter(
            session.Session(token_endpoint.Token(url, "admin"), timeout=30),
            service_type="placement", endpoint_override=url)), name)

    def flavor(self, specs: dict[str, str]) -> str:
        """Make a flavor as the CLI does: with the keys that Placement needs."""
        return str(self._create_flavor(
            vcpu=1, memory_mb=256, disk=1, ephemeral=0,
            extra_spec={**specs, **placement_keys(parse(specs))}))

    def boot(self, flavor: str, state: str = "ACTIVE") -> dict[str, Any]:
        found: dict[str, Any] = self._create_server(
            flavor_id=flavor, networks="none", expected_state=state)
        return found

    def node_of(self, server: dict[str, Any]) -> str:
        return str(self.admin_api.get_server(server["id"])["OS-EXT-SRV-ATTR:host"])

    def ours(self, server: dict[str, Any]) -> dict[str, dict[str, int]]:
        """Return what an instance has of our classes, by provider."""
        found = {}
        for provider, item in self._get_allocations_by_server_uuid(server["id"]).items():
            resources = {name: amount for name, amount in item["resources"].items()
                         if name in names.RESOURCE_CLASSES}
            if resources:
                found[provider] = resources
        return found

    def child(self, name: str) -> str:
        return names.provider_uuid(self.compute_rp_uuids[name])


class ValidatorTest(NovaTest):
    """nova-api refuses what the schema refuses."""

    def refused(self, specs: dict[str, str]) -> str:
        flavor = self._create_flavor(vcpu=1, memory_mb=256, disk=1, ephemeral=0)
        with pytest.raises(api_client.OpenStackApiException) as caught:
            self.admin_api.post_extra_spec(flavor, {"extra_specs": specs})
        response = caught.value.response
        assert response.status_code == 400
        return str(response.json()["badRequest"]["message"])

    def test_a_bad_value(self) -> None:
        message = self.refused({"vcache:weight": "1001"})
        assert ("vcache:weight: '1001' is not allowed, must be an integer from 1 to 1000"
                in message)
        message = self.refused({"vcache:slo_flush_ms": "soon"})
        assert "vcache:slo_flush_ms: 'soon' is not allowed, must be a number from" in message

    def test_an_unknown_key(self) -> None:
        message = self.refused({"vcache:wieght": "5"})
        assert "vcache:wieght" in message
        assert "the keys are vcache:mode, vcache:weight" in message

    def test_good_ones_are_taken(self) -> None:
        flavor = self.flavor({**GOLD, "vcache:slo_flush_ms": "0.5"})
        found = self.admin_api.get_extra_spec(flavor, "vcache:slo_flush_ms")
        assert found == {"vcache:slo_flush_ms": "0.5"}


class SchedulingTest(NovaTest):
    """Where instances go, and why they do not."""

    def log(self) -> str:
        return str(self.stdlog.logger.output)

    def test_a_guarantee_is_allocated_from_the_cache_s_provider(self) -> None:
        self.host("with")
        self.host("without", None)
        server = self.boot(self.flavor(GOLD))
        assert self.node_of(server) == "with"
        assert {self.child("with"): {names.CACHE_MB: 1000, names.TAG: 1}} == self.ours(server)
        # nova-compute's own reports leave it alone.
        self._run_periodics()
        assert {self.child("with"): {names.CACHE_MB: 1000, names.TAG: 1}} == self.ours(server)
        assert not self.reporter("with").report(CAPACITY).changed
        self._delete_server(server)
        usages = self.placement.get(
            f"/resource_providers/{self.child('with')}/usages").body["usages"]
        assert usages == {names.CACHE_MB: 0, names.TAG: 0}

    def test_without_required_a_host_without_a_cache_will_do(self) -> None:
        self.host("without", None)
        server = self.boot(self.flavor({"vcache:mode": "writeback"}))
        assert self.ours(server) == {}
        self.boot(self.flavor(GOLD), "ERROR")

    def test_a_full_cache_is_said_in_the_log(self) -> None:
        """Placement counts all pools together; that none has room the summary knows."""
        self.host("full", largest_free_mb=10)
        server = self.boot(self.flavor(GOLD), "ERROR")
        assert "No valid host" in server["fault"]["message"]
        assert "VCacheFilter rejected 1 of 1 hosts" in self.log()
        assert "cache full, 1 (full: 1000 MiB to be guaranteed, 10 MiB free)" in self.log()

    def test_what_placement_has_no_more_of(self) -> None:
        self.host("small", Capacity(tags=9, cache_mb=1500, largest_mb=1500, modes=CACHED))
        flavor = self.flavor(GOLD)
        self.boot(flavor)
        server = self.boot(flavor, "ERROR")
        assert "No valid host" in server["fault"]["message"]

    def test_the_stale_policy(self) -> None:
        self.host("a", age_s=None)
        flavor = self.flavor(GOLD)
        self.boot(flavor)
        filter_module.CONF.set_override("stale_policy", "fail", "vcache")
        self.addCleanup(filter_module.CONF.clear_override, "stale_policy", "vcache")
        self.boot(flavor, "ERROR")
        assert "its agent has never reported" in self.log()

    def test_the_weigher_s_choice(self) -> None:
        self.host("a", loss_per_gb=900.0)
        self.host("b", loss_per_gb=1.0)
        self.host("c", None)
        flavor = self.flavor({"vcache:mode": "writeback"})
        assert self.node_of(self.boot(flavor)) == "b"
        self.know("b", loss_per_gb=900.0)
        self.know("a", loss_per_gb=1.0)
        view = snapshot.shared(filter_module.CONF).view
        self._wait_until(lambda: view().hosts["b"].loss_per_gb == 900.0)
        assert self.node_of(self.boot(flavor)) == "a"

    def _wait_until(self, condition: Any) -> None:
        limit = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < limit
            time.sleep(0.02)

    def test_a_deleted_service_heals(self) -> None:
        self.host("a")
        child = self.child("a")
        (service,) = self.admin_api.get_services(host="a", binary="nova-compute")
        self.admin_api.put_service(service["id"], {"forced_down": True})
        self.computes["a"].stop()
        self.admin_api.api_delete(f"/os-services/{service['id']}")
        assert self.placement.get(f"/resource_providers/{child}").status == 404
        # The compute node's provider comes again, as nova-compute starts.
        root = self.compute_rp_uuids["a"]
        self.placement.post("/resource_providers", {"name": "a", "uuid": root})
        report = self.reporter("a").report(CAPACITY)
        assert report.created
        assert child == report.provider
        found = self.placement.get(f"/resource_providers/{child}/inventories").body
        assert found["inventories"][names.CACHE_MB]["total"] == 4000


logging.getLogger("nova_vcache").setLevel(logging.INFO)
