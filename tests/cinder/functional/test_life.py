# SPDX-License-Identifier: Apache-2.0
"""Volumes from creation to deletion, through Cinder's API, with their content."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cinder.functional import lab

MODES = ("writeback", "writethrough", "flush-only")
MIB = 1 << 20
SIZE = 64 << 10


def name_of(volume: str) -> str:
    return f"volume-{volume}"


def path_of(name: str) -> str:
    return f"/dev/mapper/{lab.GROUP.replace('-', '--')}-{name.replace('-', '--')}"


class Content:
    """What was written to a volume, at some offsets."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}

    def write(self, path: str, offset: int, letter: bytes) -> None:
        self.written[offset] = letter * SIZE
        lab.write(path, offset, self.written[offset])

    def check(self, path: str) -> None:
        for offset, data in self.written.items():
            assert lab.read(path, offset, SIZE) == data, (path, offset)

    def copy(self) -> "Content":
        made = Content()
        made.written = dict(self.written)
        return made


@pytest.fixture(autouse=True)
def nothing_is_left(agent: lab.Agent) -> Iterator[None]:
    yield
    left = [*lab.volumes(), *(name for name in lab.mapped() if name != lab.POOL)]
    if left:
        lab.clear()
    assert left == []


def check_cached(volume: str, mode: str) -> None:
    """Check that cinder, the agent and the kernel agree about a volume."""
    assert lab.table(name_of(volume)) == "vcache"
    record = lab.volumes()[volume]
    assert (record["state"], record["mode"], record["problem"]) == ("attached", mode, "")
    disk = lab.disks()[volume]
    assert (disk["mode"], disk["state"], disk["note"]) == (mode, "isolated", "")
    assert disk["tag"] == record["tag"]


@pytest.mark.parametrize("mode", MODES)
def test_operations_of_a_volume_in_use(cloud: Any, mode: str) -> None:
    cloud.kind("fast", mode=mode, weight="300")
    volume = cloud.make("fast")
    assert lab.table(name_of(volume)) == "linear"
    attachment, connection = cloud.attach(volume)
    path = connection["device_path"]
    assert (connection["driver_volume_type"], path) == ("local", path_of(name_of(volume)))
    check_cached(volume, mode)
    assert lab.disks()[volume]["weight"] == 300
    content = Content()
    content.write(path, 0, b"a")
    content.write(path, 512 * MIB, b"b")

    cloud.act(volume, "os-extend", new_size=2)
    cloud.wait(volume, "in-use")
    check_cached(volume, mode)
    content.write(path, 1536 * MIB, b"c")
    content.check(path)

    content.write(path, 4 * MIB, b"d")
    snapshot, before = cloud.snapshot(volume), content.copy()
    check_cached(volume, mode)
    content.write(path, 4 * MIB, b"e")
    content.check(path)
    copy = cloud.make(snapshot_id=snapshot, size=2)
    before.check(path_of(name_of(copy)))
    clone = cloud.make(source_volid=volume, size=2)
    content.check(path_of(name_of(clone)))
    check_cached(volume, mode)

    cloud.detach(volume, attachment)
    content.check(path)
    cloud.act(volume, "revert", snapshot_id=snapshot)
    cloud.wait(volume)
    attachment, _ = cloud.attach(volume)
    before.check(path)
    # Cinder deletes its own snapshot of a revert when the volume is available already.
    lab.eventually(lambda: lab.table(name_of(volume)) == "vcache", "its cache")
    before.write(path, 8 * MIB, b"f")
    cloud.delete_snapshot(snapshot)
    before.check(path)
    check_cached(volume, mode)
    cloud.detach(volume, attachment)
    for one in (volume, copy, clone):
        cloud.delete(one)
