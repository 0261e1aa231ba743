# SPDX-License-Identifier: Apache-2.0
"""The real Placement service in this process, and requests of other users."""

import threading
import uuid
from typing import Any

from keystoneauth1 import adapter, session, token_endpoint

from nova_vcache.placement.client import Client


class _OneByOne(adapter.Adapter):
    """One request at a time: the fixture's database has one connection for all threads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = threading.Lock()

    def request(self, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return super().request(*arguments, **options)


class Placement:
    """The service.

    :param endpoint: that of placement's fixture
    """

    def __init__(self, endpoint: str) -> None:
        self.http = _OneByOne(
            session.Session(token_endpoint.Token(endpoint, "admin"), timeout=30),
            service_type="placement", endpoint_override=endpoint,
            default_microversion="1.36", raise_exc=False)
        self.client = Client(self.http)

    def make_node(self, node: str = "node1", node_uuid: str | None = None) -> str:
        node_uuid = node_uuid or str(uuid.uuid4())
        answer = self.http.post("/resource_providers", json={"name": node, "uuid": node_uuid})
        assert answer.status_code == 200
        self.put(node_uuid, "inventories", inventories={"VCPU": {"total": 64}})
        return node_uuid

    def put(self, provider: str, what: str, **body: object) -> None:
        generation = self.http.get(f"/resource_providers/{provider}").json()["generation"]
        answer = self.http.put(f"/resource_providers/{provider}/{what}",
                               json={"resource_provider_generation": generation, **body})
        assert answer.status_code == 200, answer.text

    def allocate(self, provider: str, resources: dict[str, int], consumer: str = "") -> str:
        consumer = consumer or str(uuid.uuid4())
        answer = self.http.put(f"/allocations/{consumer}", json={
            "allocations": {provider: {"resources": resources}} if resources else {},
            "project_id": "p", "user_id": "u",
            "consumer_generation": None if resources else 1})
        assert answer.status_code == 204, answer.text
        return consumer

    def move(self, provider: str, source: str, target: str) -> Any:
        """Move an allocation to another consumer in one step, as Nova does in a migration."""
        has = self.http.get(f"/allocations/{source}").json()

        def wanted(allocations: dict[str, Any], generation: int | None) -> dict[str, Any]:
            return {"allocations": allocations, "project_id": "p", "user_id": "u",
                    "consumer_generation": generation, "consumer_type": "INSTANCE"}

        return self.http.post("/allocations", microversion="1.38", json={
            source: wanted({}, has["consumer_generation"]),
            target: wanted({provider: {"resources": has["allocations"][provider]["resources"]}},
                           None)})

    def free(self, consumer: str) -> None:
        assert self.http.delete(f"/allocations/{consumer}").status_code == 204

    def candidates(self, **query: str) -> list[dict]:
        answer = self.http.get("/allocation_candidates", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["allocation_requests"]
