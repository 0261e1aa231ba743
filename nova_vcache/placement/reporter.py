# SPDX-License-Identifier: Apache-2.0
"""Keep the resource provider of one host's cache up to date in Placement.

The provider is a child of the compute node's provider. nova-compute removes foreign
inventory from its own provider, but leaves child providers alone. ``openstack
compute service delete`` deletes the whole tree. So every report checks whether the
provider exists, and creates what is missing. As long as the provider's generation, its
allocations and the capacity are those of the last report, that takes one request.

The reporter changes only the two resource classes and the traits in
``nova_vcache.placement.names``, and only on the cache's provider.
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeVar

from nova_vcache.placement import names
from nova_vcache.placement.capacity import Allocations, Capacity, Inventory
from nova_vcache.placement.client import Client, Conflict, InUse, NotFound, PlacementError

LOG = logging.getLogger(__name__)

T = TypeVar("T")

# Attempts of one report; each reads the current state. Other writers are the scheduler,
# with each allocation, and possibly a second reporter by mistake.
_TRIES = 5

#: Capacity of a host that has none, or whose state is unknown.
CLOSED = Capacity(tags=0, flush_isolation=False)


class NoComputeNode(Exception):
    """The compute node has no provider, because Nova has not created it yet."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a report.

    :param provider: UUID of the cache's provider
    :param created: the provider was created: this is the host's first report, or the
        tree was deleted
    :param changed: Placement was changed
    :param overcommitted: how much more is promised to instances than the host has, by
        resource class; empty if it is not
    """

    provider: str
    created: bool
    changed: bool
    overcommitted: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Known:
    """The state of the provider after the last report.

    :param generation: each change by anybody increments it, except that allocations end
    """

    provider: str
    generation: int
    allocations: Allocations
    capacity: Capacity


class Reporter:
    """Reports one host, for one thread at a time.

    :param client: client of Placement
    :param node: name of the compute node (its hypervisor host name)
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._root: str | None = None
        # The resource classes and traits exist; reset when Placement returns an error.
        self._named = False
        self._known: _Known | None = None

    def report(self, capacity: Capacity | Callable[[Allocations], Capacity]) -> Report:
        """Update Placement to the capacity of the host.

        :param capacity: the capacity, or a pure function that returns it for the present
            allocations of the cache's provider

        A pool can become smaller than the sum of its allocations. Then Placement
        allocates nothing more from it, running instances keep their allocations, and the
        target reduces all guarantees in proportion. An operator must decide which
        instances to move.

        :raises NoComputeNode: if the compute node has no provider
        :raises PlacementError: if a request fails; report again later
        """
        of = capacity if callable(capacity) else lambda _: capacity
        return self._retry(lambda: self._report(of))

    def withdraw(self) -> bool:
        """Delete the cache's provider, for a host that will no longer have a cache.

        :return: False if the provider still has allocations. It then accepts no more; call
            this again when its instances have moved or were deleted.
        :raises PlacementError: if a request fails
        """
        try:
            self._retry(self._withdraw)
        except NoComputeNode:
            return True
        except InUse:
            self.report(CLOSED)
            return False
        return True

    def _retry(self, action: Callable[[], T]) -> T:
        for _ in range(_TRIES - 1):
            try:
                return action()
            except Conflict as error:
                LOG.debug("%s; retrying", error)
            except NotFound as error:
                # The tree was deleted between two requests.
                LOG.debug("%s; retrying from the root", error)
                self._root = None
        return action()

    def _report(self, of: Callable[[Allocations], Capacity]) -> Report:
        self._ensure_names()
        root = self._find_root()
        uuid = names.provider_uuid(root)
        known = self._known if self._known and self._known.provider == uuid else None
        self._known = None
        found = known is not None or self._ensure_provider(uuid, root)
        # If another client changes the provider after this read, the first write fails.
        allocations, generation = self._client.allocations(uuid)
        if known == _Known(uuid, generation, allocations, of(allocations)):
            self._known = known
            return Report(uuid, False, False, known.capacity.excess(allocations))
        capacity = of(allocations)
        before = generation
        # Set the traits first, so that no request that they exclude finds the inventory.
        generation = self._set_traits(uuid, capacity.traits, generation)
        generation = self._set_inventories(uuid, capacity.inventories(allocations), generation)
        self._known = _Known(uuid, generation, allocations, capacity)
        if not found:
            LOG.info("%s: created resource provider %s", self._node, uuid)
        return Report(uuid, not found, not found or generation != before,
                      capacity.excess(allocations))

    def _withdraw(self) -> None:
        self._client.delete(names.provider_uuid(self._find_root()))

    def _ensure_names(self) -> None:
        if self._named:
            return
        for name in names.RESOURCE_CLASSES:
            self._client.ensure_class(name)
        for name in names.TRAITS:
            self._client.ensure_trait(name)
        self._named = True

    def _find_root(self) -> str:
        """Return the UUID of the compute node's provider."""
        if self._root is None:
            found = self._client.providers(self._node)
            if not found:
                raise NoComputeNode(f"Placement has no provider {self._node!r}; check that "
                                    "nova-compute of this host is registered")
            if found[0].get("parent_provider_uuid"):
                raise PlacementError(f"provider {self._node!r} has a parent, so it is not the "
                                     "provider of a compute node")
            self._root = str(found[0]["uuid"])
        return self._root

    def _ensure_provider(self, uuid: str, root: str) -> bool:
        """Create the cache's provider, unless it exists; return False if it was created."""
        found = self._client.provider(uuid)
        if found is None:
            # The whole tree may be gone, so check the root again.
            self._root = None
            root = self._find_root()
            if names.provider_uuid(root) != uuid:
                raise Conflict(f"the UUID of compute node {self._node} has changed")
            name = names.provider_name(self._node)
            try:
                self._client.create(uuid, name, root)
            except PlacementError as error:
                self._named = False
                if self._client.provider(uuid) is not None:
                    raise Conflict(f"{error}; another client has created it") from error
                raise
            return False
        if found.get("parent_provider_uuid") != root:
            raise PlacementError(f"provider {uuid} is not a child of {root}, the provider of the "
                                 "compute node")
        return True

    def _set_traits(self, uuid: str, wanted: frozenset[str], generation: int) -> int:
        """Set the traits of vcache; return the provider's generation."""
        has, _ = self._client.traits(uuid)
        traits = (has - set(names.TRAITS)) | wanted
        if traits == has:
            return generation
        try:
            return self._client.set_traits(uuid, traits, generation)
        except PlacementError:
            # A trait may have been deleted; the next report creates it again.
            self._named = False
            raise

    def _set_inventories(self, uuid: str, wanted: dict[str, Inventory], generation: int) -> int:
        """Set the inventories of vcache; return the provider's generation."""
        has, _ = self._client.inventories(uuid)
        inventories = {
            name: has[name] for name in has if name not in names.RESOURCE_CLASSES} | wanted
        if inventories == has:
            return generation
        try:
            return self._client.set_inventories(uuid, inventories, generation)
        except InUse as error:
            # There is a new allocation since the allocations were read.
            raise Conflict(str(error)) from error
