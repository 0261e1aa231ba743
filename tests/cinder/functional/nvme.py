# SPDX-License-Identifier: Apache-2.0
"""Linux's NVMe/TCP host on the same machine, as a compute host uses it."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.box.steps import at_end
from tests.cinder.functional import lab

KIND = "nvmeof"
OPTIONS = {"helper": "nvmet", "target_protocol": "nvmet_tcp", "target_port": 4420,
           "target_prefix": "2026-11.org.example:vcache", "nvmeof_conn_info_version": 2}
_BLOCK, _CONTROLLERS = Path("/sys/block"), Path("/sys/class/nvme")
_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"


@contextlib.contextmanager
def ready(_initiator: str) -> Iterator[None]:
    """Let Cinder import the module nvmet."""
    folder = str(Path(__file__).with_name("stand_in"))
    if folder not in sys.path:
        sys.path.append(folder)
    yield


@contextlib.contextmanager
def connected(connection: dict[str, Any]) -> Iterator[str]:
    """Connect to a target; the value is the path of the volume's namespace."""
    ((address, port, transport),) = connection["portals"]
    before = set(_CONTROLLERS.iterdir())
    words = (f"transport={transport},traddr={address},trsvcid={port},"
             f"nqn={connection['target_nqn']},hostnqn={_NQN},reconnect_delay=1,ctrl_loss_tmo=-1,keep_alive_tmo=0")
    lab.eventually(lambda: _connect(words), "the target answers")
    (controller,) = set(_CONTROLLERS.iterdir()) - before
    with at_end((controller / "delete_controller").write_text, "1"):
        yield lab.eventually(lambda: _namespace(connection["vol_uuid"]), "the namespace")


def _connect(words: str) -> bool:
    """Connect; return False if the target did not answer within the ten seconds of the kernel."""
    # os.write() is eventlet's, which takes this error for one of a socket.
    with open("/dev/nvme-fabrics", "r+b", buffering=0) as fabrics:
        return fabrics.write(words.encode()) is not None


def _namespace(uuid: str) -> str | None:
    """Return the path of the namespace of a volume, which a host finds by its UUID."""
    for name in os.listdir(_BLOCK):
        with contextlib.suppress(FileNotFoundError):
            if re.fullmatch(r"nvme\d+n\d+", name) and \
                    (_BLOCK / name / "uuid").read_text().strip() == uuid and \
                    Path("/dev", name).exists():
                return f"/dev/{name}"
    return None


def look_again(_path: str) -> None:
    """Let the host look at the sizes of namespaces."""
    for controller in _CONTROLLERS.iterdir():
        (controller / "rescan_controller").write_text("1")


def exported() -> set[str]:
    """Return the paths of the devices that have a target."""
    import nvmet

    return {one.get_attr("device", "path") for subsystem in nvmet.Root().subsystems
            for one in subsystem.namespaces}


def forget() -> None:
    """Remove all targets from the kernel, as a stop of the host does."""
    import nvmet

    root = nvmet.Root()
    for one in [*root.ports, *root.subsystems]:
        one.delete()
