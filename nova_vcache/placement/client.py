# SPDX-License-Identifier: Apache-2.0
"""The few requests to Placement that the reporter needs."""

from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from nova_vcache.placement.capacity import Inventory

#: The microversion of all requests: 1.26 lets all of an inventory be reserved.
#: Placement has it since 2018.
MICROVERSION = "1.26"


class PlacementError(Exception):
    """Placement does not answer, or refuses; the text says which and why."""


class Conflict(PlacementError):
    """Somebody else changed the provider meanwhile; read it again."""


class NotFound(PlacementError):
    """What the request is about is not there (any more)."""


class InUse(PlacementError):
    """Something is allocated from what was to be removed."""


#: Placement's error codes that mean more than that it failed.
_CODES: dict[str, type[PlacementError]] = {
    "placement.concurrent_update": Conflict,
    "placement.inventory.inuse": InUse,
    "placement.resource_provider.inuse": InUse,
}


class Client:
    """Placement by a keystoneauth adapter.

    :param adapter: of service type placement; what time a request may take is its
        session's ``timeout``
    """

    def __init__(self, adapter: adapter.Adapter) -> None:
        self._adapter = adapter

    def provider(self, uuid: str) -> dict[str, Any] | None:
        """Return a resource provider, or None if there is none."""
        try:
            return self._ask("GET", f"/resource_providers/{uuid}")
        except NotFound:
            return None

    def providers(self, name: str) -> list[dict[str, Any]]:
        """Return the resource providers of a name: one at most."""
        found: list[dict[str, Any]] = self._ask(
            "GET", "/resource_providers", params={"name": name})["resource_providers"]
        return found

    def create(self, uuid: str, name: str, parent: str) -> None:
        """Create a resource provider.

        :raises PlacementError: also if one of this UUID or this name is there
        """
        self._ask("POST", "/resource_providers", json={
            "uuid": uuid, "name": name, "parent_provider_uuid": parent})

    def delete(self, uuid: str) -> None:
        """Delete a resource provider that may not be there.

        :raises InUse: if something is allocated from it
        """
        try:
            self._ask("DELETE", f"/resource_providers/{uuid}")
        except NotFound:
            pass

    def inventories(self, uuid: str) -> tuple[dict[str, Inventory], int]:
        """Return a provider's inventories by class, and its generation."""
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

    def usages(self, uuid: str) -> dict[str, int]:
        """Return by class how much of a provider is allocated."""
        found: dict[str, int] = self._ask(
            "GET", f"/resource_providers/{uuid}/usages")["usages"]
        return found

    def allocations(self, uuid: str) -> dict[str, dict[str, int]]:
        """Return what is allocated from a provider: by consumer, amounts by class.

        Nothing of a provider that is not there.
        """
        try:
            found = self._ask("GET", f"/resource_providers/{uuid}/allocations")
        except NotFound:
            return {}
        return {consumer: item["resources"] for consumer, item in found["allocations"].items()}

    def with_trait(self, trait: str) -> list[dict[str, Any]]:
        """Return the providers that have a trait; none if there is no such trait yet."""
        if not self.has_trait(trait):
            return []
        found: list[dict[str, Any]] = self._ask(
            "GET", "/resource_providers", params={"required": trait})["resource_providers"]
        return found

    def has_class(self, name: str) -> bool:
        """Tell whether a resource class exists."""
        return self._exists(f"/resource_classes/{name}")

    def has_trait(self, name: str) -> bool:
        """Tell whether a trait exists."""
        return self._exists(f"/traits/{name}")

    def ensure_class(self, name: str) -> None:
        """Create a resource class that may be there."""
        self._ask("PUT", f"/resource_classes/{name}")

    def ensure_trait(self, name: str) -> None:
        """Create a trait that may be there."""
        self._ask("PUT", f"/traits/{name}")

    def _exists(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except NotFound:
            return False
        return True

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        """Return the answer's JSON, or None if it has none."""
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
            raise PlacementError(f"{what}: the answer is no JSON: {error}") from error


def _error(what: str, answer: Any) -> PlacementError:
    """Return the exception for an answer that is an error."""
    code, detail = "", answer.reason
    try:
        first = answer.json()["errors"][0]
        code, detail = first.get("code", ""), " ".join(first.get("detail", "").split()) or detail
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # of a proxy between; the status has to do
    kind = _CODES.get(code, NotFound if answer.status_code == 404 else PlacementError)
    return kind(f"{what}: {answer.status_code}: {detail}")
