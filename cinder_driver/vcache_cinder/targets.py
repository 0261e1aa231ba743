# SPDX-License-Identifier: Apache-2.0
"""Targets of volumes in use that are missing after a restart of the host.

Cinder leaves them to its target drivers, which are not enough for logical volumes that stay
inactive until they have their cache:

* LIO restores the targets of all volumes at once, from a file of its own. A volume whose logical
  volume is not active at that time gets a target without a disk.
* nvmet restores nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Where LIO has its iSCSI targets.
LIO = Path("/sys/kernel/config/target/iscsi")


def is_complete(helper: str, volume: Mapping[str, Any]) -> bool:
    """Return whether a target needs nothing after the target driver has restored it.

    :param helper: ``target_helper`` of the backend
    :param volume: a volume that is exported
    """
    if helper == "lioadm":
        name = volume["provider_location"].split(" ")[1]
        disk = LIO / name / "tpgt_1" / "lun" / "lun_0"
        # The link to the storage object is beside the attributes of the LUN.
        return disk.is_dir() and any(entry.is_symlink() for entry in disk.iterdir())
    return helper != "nvmet"


def restore(driver: Any, context: Any, volume: Any,
            connectors: Iterable[Mapping[str, Any]]) -> None:
    """Create the target of a volume again, with access for the hosts that have it attached.

    What exists already stays.

    :param driver: the volume driver
    :param connectors: of the hosts that use the target
    """
    helper = driver.configuration.target_helper
    if is_complete(helper, volume):
        return
    LOG.info("Volume %s: its target is created again", volume["id"])
    target = driver.target_driver
    if helper == "lioadm":
        # It would not get its disk: LIO's tool does not change a target that exists.
        target.remove_iscsi_target(0, 0, volume["id"], volume["name"])
    group = driver.configuration.volume_group
    target.create_export(context, volume, f"/dev/{group}/{volume['name']}")
    for connector in connectors:
        target.initialize_connection(volume, connector)
