# SPDX-License-Identifier: Apache-2.0
"""Apply what a reconcile has decided to the kernel."""

import dataclasses
import errno
from collections.abc import Callable, Iterable

from oslo_log import log as logging

from vcache_agent.model import DeviceNumber, Extents, lanes_of
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.reconcile import Action, DeleteTag, SetExtents, SetLanes, SetTag, TagKey

LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class Executor:
    """Applies actions and remembers which extents are in force.

    :param applied: extents set, by device and tag
    :param errors: what went wrong in the last round, by device and tag
    """

    applied: dict[TagKey, Extents] = dataclasses.field(default_factory=dict)
    errors: dict[TagKey, str] = dataclasses.field(default_factory=dict)

    def apply(self, client: Client, actions: Iterable[Action]) -> bool:
        """Apply actions in their order; go on behind one that fails.

        :return: whether extents were refused because another tag has them
        """
        self.errors = {}
        claimed = False
        for action in actions:
            key = (action.device, action.tag)
            try:
                self._apply(client, action)
            except NetlinkError as error:
                if error.errno == errno.ENOENT and isinstance(action, DeleteTag):
                    continue  # gone with its device, or deleted by hand
                claimed |= isinstance(action, SetExtents) and error.errno == errno.EEXIST
                self.errors[key] = f"{type(action).__name__}: {error.strerror}"
        for (device, tag), text in self.errors.items():
            LOG.warning("device %s tag %d: %s", device, tag, text)
        return claimed

    def _apply(self, client: Client, action: Action) -> None:
        key = (action.device, action.tag)
        if isinstance(action, SetTag):
            client.tag_set(action.device, action.tag, name=action.name, weight=action.weight,
                           cgroups=action.cgroups, mode=action.mode, cache_min=action.cache_min,
                           cache_max=action.cache_max)
            LOG.info("device %s tag %d: %s, weight %d, cgroups %s, mode %s", action.device,
                     action.tag, action.name, action.weight, list(action.cgroups or ()),
                     "as it is" if action.mode is None else action.mode.name.lower())
        elif isinstance(action, SetLanes):
            client.tag_set(action.device, action.tag, cache_lanes=action.lanes)
            LOG.info("device %s tag %d: lanes %s", action.device, action.tag,
                     ", ".join(map(str, lanes_of(action.lanes))) or "none of its own")
        elif isinstance(action, SetExtents):
            self.applied.pop(key, None)
            client.set_extents(action.device, action.tag, action.extents)
            self.applied[key] = action.extents
            LOG.debug("device %s tag %d: %d extents", action.device, action.tag,
                      len(action.extents))
        else:
            client.tag_del(action.device, action.tag)
            self.applied.pop(key, None)
            LOG.info("device %s tag %d: removed", action.device, action.tag)

    def forget_device(self, known: Callable[[DeviceNumber], bool]) -> None:
        """Forget the extents of devices that are no more."""
        self.applied = {key: value for key, value in self.applied.items() if known(key[0])}
