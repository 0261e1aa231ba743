# SPDX-License-Identifier: Apache-2.0
"""Apply the actions of a plan to the kernel."""

import dataclasses
import errno
from collections.abc import Callable, Iterable

from oslo_log import log as logging

from vcache_agent.extent_delta import difference
from vcache_agent.model import DeviceNumber, Extents, lanes_of
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.packed_extents import sectors_of
from vcache_agent.plan.actions import Action, DeleteTag, SetExtents, SetLanes, SetTag, TagKey

LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class Executor:
    """Applies actions and remembers the extents that it has set.

    :param applied: extents that were set, by device and tag
    :param errors: error texts of the last call, by device and tag
    """

    applied: dict[TagKey, Extents] = dataclasses.field(default_factory=dict)
    errors: dict[TagKey, str] = dataclasses.field(default_factory=dict)

    def apply(self, client: Client, actions: Iterable[Action]) -> bool:
        """Apply actions in their order, and continue after one that fails.

        :return: True if extents were refused because they belong to another tag
        """
        self.errors = {}
        claimed = False
        for action in actions:
            key = (action.device, action.tag)
            try:
                self._apply(client, action)
            except NetlinkError as error:
                if error.errno == errno.ENOENT and isinstance(action, DeleteTag):
                    continue  # removed with its device, or by hand
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
                     "unchanged" if action.mode is None else action.mode.name.lower())
        elif isinstance(action, SetLanes):
            client.tag_set(action.device, action.tag, cache_lanes=action.lanes)
            LOG.info("device %s tag %d: dedicated lanes %s", action.device, action.tag,
                     ", ".join(map(str, lanes_of(action.lanes))) or "none")
        elif isinstance(action, SetExtents):
            before = self.applied.pop(key, None)
            if before is None or not _change(client, key, before, action.extents):
                client.set_extents(action.device, action.tag, action.extents)
            self.applied[key] = action.extents
            LOG.debug("device %s tag %d: %d extents", action.device, action.tag,
                      len(action.extents))
        else:
            client.tag_del(action.device, action.tag)
            self.applied.pop(key, None)
            LOG.info("device %s tag %d: removed", action.device, action.tag)

    def forget_device(self, known: Callable[[DeviceNumber], bool]) -> None:
        """Forget the extents of devices that no longer exist.

        :param known: returns True for a device that exists
        """
        self.applied = {key: value for key, value in self.applied.items() if known(key[0])}


def _change(client: Client, key: TagKey, before: Extents, wanted: Extents) -> bool:
    """Change the extents of a tag by their difference.

    :param before: the extents that were set last
    :return: False if they must be set as a whole: because the difference is empty or the longer
        list, the kernel does not know the command, or its extents were not those of ``before``
    :raises NetlinkError: if the kernel refuses the extents
    """
    remove, add = difference(before, wanted)
    if not 0 < len(remove) + len(add) < len(wanted):
        return False
    try:
        found = client.change_extents(*key, remove, add)
    except NetlinkError as error:
        if error.errno == errno.EOPNOTSUPP:
            return False
        raise
    return found == (len(wanted), sectors_of(wanted))
