# SPDX-License-Identifier: Apache-2.0
"""Client of Placement with the requests that the reporter needs."""

from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from nova_vcache.placement.capacity import Inventory

#: Microversion of all requests. Since 1.26 an inventory may be reserved completely.
#: Placement has it since 2018.
MICROVERSION = "1.26"


class PlacementError(Exception):
    """A request to Placement failed; the text names the request and the reason."""


class Conflict(PlacementError):
    """Another client has changed the provider meanwhile; read it again."""


class NotFound(PlacementError):
    """The object of the request does not exist."""


class InUse(PlacementError):
    """The object cannot be deleted, because it has allocations."""


#: Error codes of Placement that have their own exception.
_CODES: dict[str, type[PlacementError]] = {
    "placement.concurrent_update": Conflict,
    "placement.inventory.inuse": InUse,
    "placement.resource_provider.inuse": InUse,
}


class Client:
    """Client of Placement.

    All methods raise :class:`PlacementError` if a request fails.

    :param adapter: keystoneauth adapter for the service type placement; the ``timeout`` of
        its session limits each request
    """

    def __init__(self, adapter: adapter.Adapter) -> None:
        self._adapter = adapter
        self._traits: set[str] = set()

    def provider(self, uuid: str) -> dict[str, Any] | None:
        """Return a resource provider; None if it does not exist."""
        try:
            return self._ask("GET", f"/resource_providers/{uuid}")
        except NotFound:
            return None

    def providers(self, name: str) -> list[dict[str, Any]]:
        """Return the resource providers with a name, at most one."""
        found: list[dict[str, Any]] = self._ask(
            "GET", "/resource_providers", params={"name": name})["resource_providers"]
        return found

    def create(self, uuid: str, name: str, parent: str) -> None:
        """Create a resource provider.

        :param parent: UUID of its parent
        :raises PlacementError: also if a provider with this UUID or name exists
        """
        self._ask("POST", "/resource_providers", json={
            "uuid": uuid, "name": name, "parent_provider_uuid": parent})

    def delete(self, uuid: str) -> None:
        """Delete a resource provider, if it exists.

        :raises InUse: if it has allocations
        """
        try:
            self._ask("DELETE", f"/resource_providers/{uuid}")
        except NotFound:
            pass

    def inventories(self, uuid: str) -> tuple[dict[str, Inventory], int]:
        """Return a provider's inventories by resource class, and its generation."""
        found = self._ask("GET", f"/resource_providers/{uuid}/inventories")
        return found["inventories"], found["resource_provider_generation"]

    def set_inventories(self, uuid: str, inventories: Mapping[str, Inventory],
                        generation: int) -> int:
        """Replace a provider's inventories; return its new generation."""
        answer = self._ask("PUT", f"/resource_providers/{uuid}/inventories", json={
            "inventories": inventories, "resource_provider_generation": generation})
        return int(answer["resource_provider_generation"])

    def traits(self, uuid: str) -> tuple[set[str], int]:
        """Return a provider's traits, and its generation."""
        found = self._ask("GET", f"/resource_providers/{uuid}/traits")
        return set(found["traits"]), found["resource_provider_generation"]

    def set_traits(self, uuid: str, traits: Iterable[str], generation: int) -> int:
        """Replace a provider's traits; return its new generation."""
        answer = self._ask("PUT", f"/resource_providers/{uuid}/traits", json={
            "traits": sorted(traits), "resource_provider_generation": generation})
        return int(answer["resource_provider_generation"])

    def allocations(self, uuid: str) -> tuple[dict[str, dict[str, int]], int]:
        """Return a provider's allocations, and its generation.

        The allocations are amounts by resource class, by consumer.
        """
        found = self._ask("GET", f"/resource_providers/{uuid}/allocations")
        return ({consumer: item["resources"] for consumer, item in found["allocations"].items()},
                found["resource_provider_generation"])

    def with_trait(self, trait: str) -> list[dict[str, Any]]:
        """Return the providers with a trait; none if the trait does not exist."""
        # Placement rejects a query for a trait that does not exist.
        if trait not in self._traits:
            if not self.has_trait(trait):
                return []
            self._traits.add(trait)
        found: list[dict[str, Any]] = self._ask(
            "GET", "/resource_providers", params={"required": trait})["resource_providers"]
        return found

    def has_class(self, name: str) -> bool:
        """Return True if a resource class exists."""
        return self._exists(f"/resource_classes/{name}")

    def has_trait(self, name: str) -> bool:
        """Return True if a trait exists."""
        return self._exists(f"/traits/{name}")

    def ensure_class(self, name: str) -> None:
        """Create a resource class, unless it exists."""
        self._ask("PUT", f"/resource_classes/{name}")

    def ensure_trait(self, name: str) -> None:
        """Create a trait, unless it exists."""
        self._ask("PUT", f"/traits/{name}")

    def _exists(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except NotFound:
            return False
        return True

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request; return the JSON of the answer, or None if it has no body."""
        what = f"Placement: {method} {path}"
        try:
            answer = self._adapter.request(
                path, method, raise_exc=False, microversion=MICROVERSION, **arguments)
        except ks_exc.ClientException as error:
            raise PlacementError(f"{what}: {error}") from error
        if answer.status_code >= 400:
            raise _error(what, answer)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise PlacementError(f"{what}: the answer is not JSON: {error}") from error


def _error(what: str, answer: Any) -> PlacementError:
    """Return the exception for an error response."""
    code, detail = "", answer.reason
    try:
        first = answer.json()["errors"][0]
        code, detail = first.get("code", ""), " ".join(first.get("detail", "").split()) or detail
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # the answer of a proxy; use the status only
    kind = _CODES.get(code, NotFound if answer.status_code == 404 else PlacementError)
    return kind(f"{what}: {answer.status_code}: {detail}")
