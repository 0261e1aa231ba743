# SPDX-License-Identifier: Apache-2.0
"""Snapshots and block jobs of running domains, shared bases, and reused inodes.

The agent lists the domains only once an hour here (conftest.py), so it must find an
external snapshot, which has no event, by itself.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.host import lab
from tests.host.lab import Agent, Vm, cli, eventually, image, tags
from tests.host.test_lifecycle import no_tag_of, tag_of
from vcache_agent.model import DeviceNumber, Tag

MIB = 1 << 20
MakeVm = Callable[..., Vm]


@pytest.fixture
def folder(filesystem: Path) -> Iterator[Path]:
    """A folder whose files are removed after the domains are."""
    path = filesystem / "layers"
    path.mkdir()
    with at_end(lab.run, "rm", "-r", str(path)):
        yield path


@pytest.fixture
def one(folder: Path, agent: Agent, vm: MakeVm, device: DeviceNumber) -> Vm:
    """A running domain with an image of 8 MiB, to whose tag an operator gave weight 777."""
    made = vm("layers", [image(folder / "image", 8)], {"mode": "flush-only", "weight": "250"})
    made.start()
    tag = tag_of(made, device)
    cli("tag", "set", str(tag.id), "--weight", "777")
    return made


def has(vm: Vm, device: DeviceNumber, *files: Path, target: str = "sda") -> Tag:
    """Wait until the tag of a disk has exactly the blocks of some files."""
    def find() -> Tag | None:
        tag = next((tag for tag in tags(device).values() if tag.name == f"{vm.uuid}:{target}"),
                   None)
        wanted = sum(lab.extent_sectors(path) for path in files)
        return tag if tag is not None and tag.extents_sectors == wanted else None

    return eventually(find, f"the tag of {vm.name} has the blocks of {[*map(str, files)]}")


def is_same(after: Tag, before: Tag) -> None:
    """Check that a disk has kept its tag, its weight, its cgroups and its counters."""
    assert (after.id, after.weight, after.cgroups) == (before.id, 777, before.cgroups)
    assert after.stats.write_bytes >= before.stats.write_bytes


@pytest.mark.box
def test_an_external_snapshot_and_its_commit(
        one: Vm, folder: Path, device: DeviceNumber) -> None:
    one.io("write 0 1M")
    before = has(one, device, folder / "image")
    assert before.stats.write_bytes >= MIB
    one.snapshot("sda", folder / "top")
    is_same(has(one, device, folder / "image", folder / "top"), before)
    # The guest writes the new layer, whose new blocks become its own.
    one.io("write 0 2M")
    one.io("flush")
    grown = has(one, device, folder / "image", folder / "top")
    assert grown.extents_sectors * 512 >= 10 * MIB
    one.commit("sda")
    after = has(one, device, folder / "image")
    is_same(after, before)
    one.io("write 0 1M")
    assert tags(device)[after.id].stats.write_bytes >= after.stats.write_bytes + MIB


def test_a_commit_of_an_intermediate_layer(one: Vm, folder: Path, device: DeviceNumber) -> None:
    before = has(one, device, folder / "image")
    for name in ("middle", "top"):
        one.snapshot("sda", folder / name)
        one.io("write 0 1M")
    is_same(has(one, device, *(folder / name for name in ("image", "middle", "top"))), before)
    one.commit("sda", top=folder / "middle", base=folder / "image")
    is_same(has(one, device, folder / "image", folder / "top"), before)


def test_a_pull(one: Vm, folder: Path, device: DeviceNumber) -> None:
    one.io("write -P 7 0 1M")  # zeros would not be copied
    before = has(one, device, folder / "image")
    one.snapshot("sda", folder / "top")
    one.pull("sda")
    is_same(has(one, device, folder / "top"), before)
    assert lab.extent_sectors(folder / "top") * 512 >= MIB


def test_a_copy_and_pivot(one: Vm, folder: Path, device: DeviceNumber) -> None:
    before = has(one, device, folder / "image")
    one.copy("sda", f'<disk type="file"><source file="{folder / "copy"}"/>'
             '<driver type="raw"/></disk>')
    is_same(has(one, device, folder / "copy"), before)
    (folder / "image").unlink()


def test_a_copy_to_another_device_and_pivot(
        one: Vm, folder: Path, device: DeviceNumber, agent: Agent) -> None:
    has(one, device, folder / "image")
    # QEMU copies only to a place of the same size.
    with lab.mapped("volume", Path("/dev/ram1"), "volume 4711", 8 * MIB // 512) as node:
        number = lab.number_of(node)
        one.copy("sda", f'<disk type="block"><source dev="{node}"/><driver type="raw"/></disk>',
                 reuse=True)
        eventually(lambda: tags(number)[4711].weight == 777, "the operator's weight")
        assert tags(number)[4711].name == f"{one.uuid}:sda"
        no_tag_of(one, device)
        one.end()
        agent.reconcile()


def test_a_disk_with_a_chain_keeps_all_over_a_restart(
        one: Vm, folder: Path, device: DeviceNumber, agent: Agent) -> None:
    before = has(one, device, folder / "image")
    one.snapshot("sda", folder / "top")
    has(one, device, folder / "image", folder / "top")
    agent.kill()
    agent.start()
    is_same(has(one, device, folder / "image", folder / "top"), before)
    one.destroy()
    no_tag_of(one, device)
    one.disks, one.format = [folder / "top"], "qcow2"
    one.start()
    after = tag_of(one, device)
    assert (after.id, after.weight) == (before.id, 777)
    has(one, device, folder / "image", folder / "top")


@pytest.mark.box
def test_two_domains_over_a_shared_base(
        agent: Agent, vm: MakeVm, folder: Path, device: DeviceNumber) -> None:
    base = image(folder / "0123abcd", 8)
    pair = [vm(f"over{number}", [lab.overlay(folder / f"disk{number}", base)],
               {"mode": "flush-only"}, format="qcow2") for number in range(2)]
    for one in pair:
        one.start()

    def of_base() -> Tag | None:
        return next((tag for tag in tags(device).values() if tag.name == "base:0123abcd"), None)

    shared = eventually(of_base, "the tag of the base")
    eventually(lambda: tags(device)[shared.id].extents_sectors == lab.extent_sectors(base),
               "the blocks of the base")
    assert shared.cgroups == frozenset()
    assert shared.weight == 100  # half of the weight of each
    for one in pair:
        reads = tags(device)[shared.id].stats.reads
        one.io("read 0 64k")
        assert tags(device)[shared.id].stats.reads > reads
        assert agent.disks()[one.name, "sda"]["also_read"] == [
            {"device": str(device), "tag": shared.id}]
        one.io("write 0 64k")
        has(one, device, folder / f"disk{one.name[-1]}")
    pair[0].destroy()
    no_tag_of(pair[0], device)
    eventually(lambda: tags(device)[shared.id].weight == 50, "the weight of one user")
    pair[1].destroy()
    eventually(lambda: of_base() is None, "the base is unused")


def test_a_commit_into_the_base_makes_it_the_disks_own(
        agent: Agent, vm: MakeVm, folder: Path, device: DeviceNumber) -> None:
    base = image(folder / "base", 4)
    one = vm("into", [lab.overlay(folder / "over", base)], {"mode": "flush-only"}, format="qcow2")
    one.start()
    before = tag_of(one, device)
    eventually(lambda: any(tag.name == "base:base" for tag in tags(device).values()),
               "the base is shared")
    one.commit("sda")
    assert has(one, device, base).id == before.id
    eventually(lambda: not any(tag.name == "base:base" for tag in tags(device).values()),
               "the base has no tag of its own")


def test_an_image_on_a_reused_inode_inherits_nothing(
        one: Vm, folder: Path, device: DeviceNumber, vm: MakeVm) -> None:
    number = (folder / "image").stat().st_ino
    first = tag_of(one, device).id
    one.destroy()  # it stays defined
    no_tag_of(one, device)
    (folder / "image").unlink()
    for attempt in range(50):
        path = image(folder / f"again{attempt}", 1)
        if path.stat().st_ino == number:
            break
    else:
        raise AssertionError(f"inode {number} is not used again: {os.listdir(folder)}")
    two = vm("again", [path], {"mode": "flush-only", "weight": "30"})
    two.start()
    tag = tag_of(two, device)
    assert tag.id != first
    assert tag.weight == 30
