# SPDX-License-Identifier: Apache-2.0
"""A user of Horizon, and a vcache-api that answers at the HTTP edge."""

from typing import Any

import requests_mock
from openstack_dashboard.test import helpers

API = "http://vcache.invalid"
MINE = "00000001-0000-4000-8000-000000000000"
GIB = 1 << 30
#: One that must not become part of a page as it is.
EVIL = "<script>alert(1)<script>"

HOST: dict[str, Any] = {
    "node": "n1", "state": "up", "problem": "", "policy": "weighted", "draining": False,
    "drain": None, "pools": 1, "instances": 2, "dirty_bytes": 3 << 20, "age_s": 1.0,
    "modes": ["flush-only", "writeback"], "flush_isolation": True, "tags_free": 9,
    "cache_mb": 9216, "cache_free_mb": 8192, "largest_free_mb": 8192, "lanes_free": 1,
    "flush_p99_ms": 0.9, "read_p99_us": None, "slo_tags": 3, "slo_missed": 1}
POOL: dict[str, Any] = {
    "id": "n1/fast", "host": "n1", "host_state": "up", "name": "fast", "state": "ok",
    "size_bytes": 10 * GIB, "free_bytes": 6 * GIB, "used_bytes": 4 * GIB, "dirty_bytes": GIB,
    "volumes": 1, "guaranteed_bytes": GIB, "chunk_bytes": 1 << 20, "lanes": [
        {"size_bytes": 8 * GIB, "free_bytes": 6 * GIB, "dedicated": False, "instance": ""},
        {"size_bytes": 2 * GIB, "free_bytes": None, "dedicated": True, "instance": MINE}]}
INSTANCE: dict[str, Any] = {
    "uuid": MINE, "project_id": "1", "phase": "running", "stale": False, "host": "n1",
    "name": "instance-1", "problem": "", "slo_missed": True, "slo_state": "missed",
    "hit_ratio": 0.875, "flush_p50_us": 300.0, "flush_p99_us": 900.0,
    "specs": {"mode": "writeback", "weight": 7, "slo_flush_ms": 0.5}, "override": {"weight": 7},
    "flavor": {"mode": "writeback", "weight": 100, "slo_flush_ms": 0.5},
    "objectives": [
        {"disk": "vda", "objective": "slo_flush_ms", "promised": 0.5, "measured": 0.9,
         "state": "missed", "cause": "neighbour", "text": "from tag 8 on device 254:3"},
        {"disk": "vda", "objective": "slo_iops", "promised": 500.0, "measured": None,
         "state": "unknown", "cause": "", "text": ""}],
    "disks": [{"disk": "vda", "mode": "writeback", "state": "isolated", "tag": 5,
               "pool": "254:9", "note": "its note", "cached_bytes": GIB // 4,
               "share_bytes": GIB, "dirty_bytes": 512, "flush_p50_us": 300.0,
               "flush_p99_us": 900.0, "read_p99_us": None, "hit_ratio": 0.875,
               "requests_per_s": 250.0}]}
CURVE: dict[str, Any] = {
    "disk": "vda", "reads": 100, "writes": 0, "footprint_bytes": 2 * GIB,
    "cached_bytes": GIB // 4, "share_bytes": GIB, "points": [
        {"size_bytes": 0, "read_miss_ratio": 1.0, "write_miss_ratio": None},
        {"size_bytes": GIB, "read_miss_ratio": 0.25, "write_miss_ratio": None},
        {"size_bytes": 2 * GIB, "read_miss_ratio": 0.1, "write_miss_ratio": None}]}
WHY: dict[str, Any] = {
    "disk": "vda", "tag": 5, "notes": ["a note"], "decisions": [
        {"what": "weight", "value": 7, "because": ["an operator set weight 7"]},
        {"what": "share", "value": {"min_bytes": 0, "share_bytes": GIB}, "because": []},
        {"what": "lanes", "value": [], "because": []}]}


class Edge(helpers.TestCase):
    """A member of a project, whose catalog has vcache-api.

    :cvar newest: the newest microversion of vcache-api; None: it has none
    """

    newest: str | None = "1.2"

    def setUp(self) -> None:
        super().setUp()
        self.http = requests_mock.Mocker()
        self.http.start()
        self.addCleanup(self.http.stop)
        version: dict[str, Any] = {"id": "v1", "status": "CURRENT",
                                   "links": [{"rel": "self", "href": f"{API}/v1"}]}
        if self.newest:
            version |= {"min_version": "1.0", "max_version": self.newest}
        self.http.get(API, json={"versions": [version]})

    def _setup_test_data(self) -> None:
        super()._setup_test_data()
        self.service_catalog.append({
            "type": "vcache", "name": "vcache", "endpoints_links": [],
            "endpoints": [{"region": "RegionOne", "interface": "public", "url": API}]})

    def api(self, path: str, answer: Any, status: int = 200, method: str = "GET") -> Any:
        """Have vcache-api answer."""
        return self.http.register_uri(method, API + path, json=answer, status_code=status)

    def fails(self, path: str, status: int, detail: str) -> None:
        self.api(path, {"errors": [{"status": status, "title": "t", "detail": detail,
                                    "request_id": "req-1"}]}, status)

    def has(self, page: str, *texts: str) -> None:
        """Check that a page, which is long, has texts."""
        for text in texts:
            if text not in page:
                self.fail(f"the page has no {text!r}")

    def lacks(self, page: str, *texts: str) -> None:
        """Check that a page has none of the texts."""
        for text in texts:
            if text in page:
                self.fail(f"the page has {text!r}")

    def page(self, path: str, **options: Any) -> str:
        """Return a page that must be there."""
        response = self.client.get(path, **options)
        self.assertEqual(response.status_code, 200)
        return str(response.content.decode())

    def said(self, response: Any) -> list[str]:
        """Return the messages of a response."""
        return [str(message) for message in response.context["messages"]]


class Panels(Edge, helpers.BaseAdminViewTests):
    """An administrator."""
