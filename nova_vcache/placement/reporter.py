# SPDX-License-Identifier: Apache-2.0
"""Keep Placement's picture of one host's cache true.

The picture is a resource provider of our own, a child of the compute node's: what
others put on the compute node's own provider nova-compute takes away, what they
put below it stays. It goes when ``openstack compute service delete`` removes the
tree, so every report looks whether all of it is there and makes what is missing.

Nothing is removed that is not ours: on our provider only our two resource
classes and our traits (``nova_vcache.placement.names``) are changed.
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeVar

from nova_vcache.placement import capacity as capacity_
from nova_vcache.placement import names
from nova_vcache.placement.capacity import Capacity, Inventory
from nova_vcache.placement.client import Client, Conflict, InUse, NotFound, PlacementError

LOG = logging.getLogger(__name__)

T = TypeVar("T")

# Each try reads again. Others that write to our provider are the scheduler, with
# each allocation, and a second reporter by mistake; five in a row are enough.
_TRIES = 5


class NoComputeNode(Exception):
    """Nova has not made the compute node's provider (yet, or again)."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a report.

    :param provider: UUID of the cache's provider
    :param created: the provider was not there: it is the host's first report, or
        the tree had been deleted
    :param changed: something was written
    :param overcommitted: by resource class, how much more is allocated than the
        host has now; empty when all guarantees hold
    """

    provider: str
    created: bool
    changed: bool
    overcommitted: dict[str, int]


class Reporter:
    """Reports one host; not for two threads at a time.

    :param client: Placement
    :param node: name of the compute node (its hypervisor host name)
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._root: str | None = None
        # Names that Placement knows; forgotten when it says that it does not.
        self._named = False

    def report(self, capacity: Capacity) -> Report:
        """Make Placement say what the host has.

        When a pool has become smaller than what is allocated from it, Placement
        says so too: nothing more is allocated there, instances that run keep
        their allocations, and the target shortens all guarantees in proportion.
        Who is to move away is an operator's decision.

        :raises NoComputeNode: if the compute node has no provider
        :raises PlacementError: if it cannot be done now; report again later
        """
        return self._retry(lambda: self._report(capacity))

    def provider(self) -> str | None:
        """Return the UUID that the cache's provider has, or will have; None: not known yet.

        :raises PlacementError: if it cannot be found out now
        """
        try:
            return names.provider_uuid(self._find_root())
        except NoComputeNode:
            return None

    def withdraw(self) -> bool:
        """Take the host's provider away, for a host that is to have no cache any more.

        :returns: False if something is still allocated from it: then nothing more
            can be, and another call is due when its instances have gone
        :raises PlacementError: if it cannot be done now
        """
        try:
            self._retry(self._withdraw)
        except NoComputeNode:
            return True
        except InUse:
            self.report(Capacity(tags=0, flush_isolation=False))
            return False
        return True

    def _retry(self, action: Callable[[], T]) -> T:
        for _ in range(_TRIES - 1):
            try:
                return action()
            except Conflict as error:
                LOG.debug("%s; once more", error)
            except NotFound as error:
                # The tree was deleted between two requests.
                LOG.debug("%s; once more, from the root", error)
                self._root = None
        return action()

    def _report(self, capacity: Capacity) -> Report:
        self._ensure_names()
        root = self._find_root()
        uuid = names.provider_uuid(root)
        created = self._ensure_provider(uuid, root)
        # Traits first: an inventory must not be found by a request that the host's
        # traits would have ruled out.
        changed = self._set_traits(uuid, capacity.traits)
        changed |= self._set_inventories(uuid, capacity.inventories)
        over = capacity_.overcommitted(capacity.inventories, self._client.usages(uuid))
        if created:
            LOG.info("%s: made resource provider %s", self._node, uuid)
        return Report(uuid, created, created or changed, over)

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
                raise NoComputeNode(f"Placement has no provider {self._node!r}; is nova-compute "
                                    "of this host registered?")
            if found[0].get("parent_provider_uuid"):
                raise PlacementError(f"provider {self._node!r} is not a compute node's, it has "
                                     "a parent")
            self._root = str(found[0]["uuid"])
        return self._root

    def _ensure_provider(self, uuid: str, root: str) -> bool:
        """Make the cache's provider if it is not there; return whether it was not."""
        found = self._client.provider(uuid)
        if found is None:
            # The tree is gone; that the root is there was known of the past only.
            self._root = None
            root = self._find_root()
            if names.provider_uuid(root) != uuid:
                raise Conflict(f"compute node {self._node} has another UUID now")
            name = names.provider_name(self._node)
            try:
                self._client.create(uuid, name, root)
            except PlacementError as error:
                self._named = False
                if self._client.provider(uuid) is not None:
                    raise Conflict(f"{error}; it is there now") from error
                raise
            return True
        if found.get("parent_provider_uuid") != root:
            raise PlacementError(f"provider {uuid} is not below {root}, the compute node's")
        return False

    def _set_traits(self, uuid: str, wanted: frozenset[str]) -> bool:
        """Set our traits; return whether one changed."""
        has, generation = self._client.traits(uuid)
        traits = (has - set(names.TRAITS)) | wanted
        if traits == has:
            return False
        try:
            self._client.set_traits(uuid, traits, generation)
        except PlacementError:
            # Perhaps somebody has deleted a trait; the next report makes it again.
            self._named = False
            raise
        return True

    def _set_inventories(self, uuid: str, wanted: dict[str, Inventory]) -> bool:
        """Set our inventories; return whether one changed."""
        has, generation = self._client.inventories(uuid)
        inventories = {
            name: has[name] for name in has if name not in names.RESOURCE_CLASSES} | wanted
        gone = has.keys() - inventories.keys()
        if gone:
            used = self._client.usages(uuid)
            inventories |= {
                name: capacity_.closed(used[name]) for name in gone if used.get(name)}
        if inventories == has:
            return False
        try:
            self._client.set_inventories(uuid, inventories, generation)
        except InUse as error:
            # Allocated since the look at what is used.
            raise Conflict(str(error)) from error
        return True
