# SPDX-License-Identifier: Apache-2.0
"""The initiator of iSCSI on the same machine, as a compute host uses it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.box.inside import run
from tests.box.steps import at_end
from tests.cinder.functional import lab

_SESSIONS = Path("/sys/class/iscsi_session")


@contextlib.contextmanager
def daemon(initiator: str) -> Iterator[None]:
    """Run iscsid.

    :param initiator: name of the initiator
    """
    folder = Path("/etc/iscsi")
    folder.mkdir(exist_ok=True)
    (folder / "initiatorname.iscsi").write_text(f"InitiatorName={initiator}\n")
    (folder / "iscsid.conf").write_text("node.startup = manual\n"
                                        "node.session.timeo.replacement_timeout = 120\n")
    for name in ("/run/lock/iscsi", "/etc/iscsi/nodes", "/etc/iscsi/send_targets"):
        Path(name).mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(["iscsid", "-f"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


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
    before = set(os.listdir("/sys/block"))
    run(*node, "--login")
    with at_end(run, *node, "--op", "delete"), at_end(run, *node, "--logout"):
        found = lab.eventually(
            lambda: [one for one in set(os.listdir("/sys/block")) - before
                     if one.startswith("sd") and int(Path(f"/sys/block/{one}/size").read_text())],
            "the disk of the target")
        yield f"/dev/{found[0]}"
