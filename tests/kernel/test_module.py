# SPDX-License-Identifier: Apache-2.0
"""Loading and unloading the module, and logical volumes of LVM."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box import inside
from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern, read
from tests.kernel.stack import Mapped, mapped, null_blk, vcache, vcache_table
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import ModuleNotLoaded

#: LVM does not know null_blk as a type of disk; there is no udev in the box.
LVM_CONFIG = ('devices { types=["nullb",16] use_devicesfile=0 scan_lvs=0 } '
              "activation { udev_sync=0 udev_rules=0 monitoring=0 } "
              "global { event_activation=0 use_lvmpolld=0 }")


@pytest.mark.box
def test_unload_and_load_again(origin: str) -> None:
    for parameters, shown in (((), "128"), (("buffer_mb=16",), "16")):
        with vcache(origin) as device, Disk(device.path) as disk:
            disk.write(0, pattern(1, 64))
            with pytest.raises(inside.InsideError, match="in use"):
                inside.unload_module()
        inside.unload_module()
        with pytest.raises(ModuleNotLoaded):
            Client()
        assert read(origin, 0, 64) == pattern(1, 64)
        inside.load_module(*parameters)
        value = Path("/sys/module/dm_vcache/parameters/buffer_mb").read_text().strip()
        assert value == shown
    inside.unload_module()
    with pytest.raises(inside.InsideError):
        inside.load_module("buffer_mb=0")
    inside.load_module()


def lvm(*arguments: str) -> str:
    """Run an LVM command."""
    return stack.run("lvm", arguments[0], "--config", LVM_CONFIG, *arguments[1:])


@pytest.fixture
def volume() -> Iterator[Mapped]:
    """Give a logical volume of 16 MiB."""
    with null_blk(64) as disk:
        group = stack.unique("vg")
        lvm("vgcreate", "-qq", group, disk)
        with at_end(lvm, "vgremove", "-qq", "-f", group):
            lvm("lvcreate", "-qq", "-y", "-Wn", "-Zn", "-L16m", "-n", "disk", group)
            yield Mapped(f"{group}-disk")


@pytest.mark.box
def test_logical_volume_in_use(volume: Mapped, client: Client) -> None:
    """It is moved under the target and back without a new path, under I/O."""
    own_table = volume.table()
    stop = threading.Event()
    problems: list[str] = []

    def work() -> None:
        turn = 0
        with Disk(volume.path) as disk:
            while not stop.is_set():
                turn += 1
                data = pattern(turn, 16)
                disk.write(turn * 8 % 8192, data)
                if turn % 4 == 0:
                    disk.flush()
                if disk.read(turn * 8 % 8192, 16) != data:
                    problems.append(f"turn {turn}")

    with mapped(own_table, f"{volume.name}-origin") as hidden:
        thread = threading.Thread(target=work)
        thread.start()
        with at_end(volume.swap, own_table), at_end(thread.join), at_end(stop.set):
            for turn in range(3):
                volume.swap(vcache_table(hidden.path, "volume 11"))
                assert [device.name for device in client.devices()] == [volume.name]
                assert stack.wait_until(
                    lambda: client.tag(volume.number, 11).stats.flushes > 2 or bool(problems))
                if turn < 2:
                    volume.swap(own_table)
                    assert client.devices() == []
        assert not problems
