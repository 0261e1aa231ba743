# SPDX-License-Identifier: Apache-2.0
"""The initiator of iSCSI on the same machine, as a compute host uses it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rtslib_fb

from tests.box.inside import run, stop
from tests.box.steps import at_end
from tests.cinder.functional import lab

KIND = "iscsi"
OPTIONS = {"helper": "lioadm"}
_CONF = """
node.startup = manual
node.session.timeo.replacement_timeout = -1
node.conn[0].timeo.noop_out_interval = 0
node.conn[0].timeo.noop_out_timeout = 0
"""


@contextlib.contextmanager
def ready(initiator: str) -> Iterator[None]:
    """Run the initiator's daemon.

    :param initiator: name of the initiator
    """
    for folder in ("/etc/target", "/var/target", "/etc/iscsi", "/run/lock/iscsi"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={initiator}\n")
    Path("/etc/iscsi/iscsid.conf").write_text(_CONF)
    # When it ends, it sends a signal to its process group.
    process = subprocess.Popen(["iscsid", "-f"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    with at_end(stop, process, "iscsid"):
        yield


@contextlib.contextmanager
def connected(connection: dict[str, Any]) -> Iterator[str]:
    """Log in to a target; the value is the path of its disk."""
    portal, name = connection["target_portal"], connection["target_iqn"]
    node = ("iscsiadm", "-m", "node", "-T", name, "-p", portal)
    run(*node, "--op", "new", "--interface", "default")
    for key, value in (("authmethod", connection["auth_method"]),
                       ("username", connection["auth_username"]),
                       ("password", connection["auth_password"])):
        run(*node, "--op", "update", "-n", f"node.session.auth.{key}", "-v", value)
    before = _disks()
    run(*node, "--login")
    with at_end(run, *node, "--op", "delete"), at_end(run, *node, "--logout"):
        (found,) = lab.eventually(lambda: _disks() - before, "the disk of the target")
        yield f"/dev/{found}"


def _disks() -> set[str]:
    return {name for name in os.listdir("/sys/block") if name.startswith("sd")
            and int(Path(f"/sys/block/{name}/size").read_text())}


def look_again(path: str) -> None:
    """Let the initiator look at the size of a disk."""
    Path(f"/sys/block/{Path(path).name}/device/rescan").write_text("1")


def exported() -> set[str]:
    """Return the paths of the devices that have a target."""
    return {one.storage_object.udev_path for target in rtslib_fb.RTSRoot().targets
            for group in target.tpgs for one in group.luns}


def forget() -> None:
    """Remove all targets from the kernel, as a stop of the host does."""
    rtslib_fb.RTSRoot().clear_existing(confirm=True)
