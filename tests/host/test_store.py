# SPDX-License-Identifier: Apache-2.0
"""The agent while the disk of its state file is full."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import pytest

from tests.box.inside import run
from tests.box.steps import at_end
from tests.host import lab
from tests.host.lab import Agent, Vm, cli, eventually, extent_sectors, image, tags
from tests.host.test_lifecycle import tag_of
from vcache_agent.admin_client import AdminError
from vcache_agent.model import DeviceNumber

MakeVm = Callable[..., Vm]


class SmallDisk:
    """The file system of the agent's state file."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Use all of its space."""
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, bytes(4096))
        finally:
            os.close(fd)

    def empty(self) -> None:
        """Free the space."""
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def small(one_agent: Agent) -> Iterator[SmallDisk]:
    """Give the agent a state file on a file system of its own."""
    folder = Path("/run/small")
    folder.mkdir(exist_ok=True)
    if one_agent.runs:
        assert one_agent.stop() == 0
    options = lab.AGENT_CONF.read_text()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    with at_end(run, "umount", str(folder)), at_end(lab.AGENT_CONF.write_text, options):
        lab.AGENT_CONF.write_text(options.replace(
            "[agent]\n", f"[agent]\nstate_path = {folder}/agent.sqlite\n"))
        yield SmallDisk(folder)
        if one_agent.runs:
            assert one_agent.stop() == 0


def test_a_full_disk(small: SmallDisk, agent: Agent, vm: MakeVm, filesystem: Path,
                     device: DeviceNumber) -> None:
    one = vm("before", [image(filesystem / "before", 2, written=False)], {"mode": "flush-only"})
    one.start()
    tag_of(one, device)
    position = len(agent.log())
    small.fill()

    # Disks with a tag go on: their new blocks become the tag's.
    one.io("write 0 128k")
    eventually(lambda: tag_of(one, device).extents_sectors == extent_sectors(one.disks[0]) > 0,
               "new blocks have the tag")
    # A new disk has none, and the reason is shown.
    late = vm("late", [image(filesystem / "late", 2)], {"mode": "flush-only"})
    late.start()
    shown = eventually(lambda: (found := agent.disks().get(("late", "sda")))
                       and found["state"] == "failed" and found, "the disk is shown")
    assert "full" in shown["note"]
    assert late.uuid not in "".join(tag.name for tag in tags(device).values())
    assert "cannot be written" in cli("status")
    agent.wait_for("New disks get no tags", position)
    assert "nothing is changed" in cli("tag", "set", str(tag_of(one, device).id), "--weight",
                                       "900", status=1)
    with pytest.raises(libvirt.libvirtError, match="vcache:required.*no tag"):
        vm("strict", [image(filesystem / "strict", 1)],
           {"mode": "flush-only", "required": "true"}).start()

    # An agent that is killed now can start and keeps the tags.
    number = tag_of(one, device)
    agent.kill()
    agent.start()
    with pytest.raises(AdminError, match="cannot be written"):
        agent.reconcile()
    assert tag_of(one, device).id == number.id
    assert agent.disks()["before", "sda"]["state"] == "isolated"

    small.empty()
    assert tag_of(late, device).cgroups == {late.cgroup}
    eventually(lambda: "cannot be written" not in cli("status"), "the problem has gone")
    assert tag_of(one, device).weight == 100
    cli("tag", "set", str(number.id), "--weight", "900")
    assert tag_of(one, device).weight == 900
