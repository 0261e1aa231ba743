# SPDX-License-Identifier: Apache-2.0
"""What follows from what a drive reports; tests/kernel and tests/nvmetcp probe real devices."""

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.cmd import cli
from vcache_agent.drive import identify
from vcache_agent.drive.facts import Facts, NvmeDrive, Queue, disks, queue
from vcache_agent.drive.identify import Controller, Namespace
from vcache_agent.drive.measure import Latency, Measured, Neighbour
from vcache_agent.drive.verdict import Isolation, flush_is_limited, judge
from vcache_agent.model import DeviceNumber

QUEUE = Queue(write_back=True, fua=True, rotational=False, discard=True)
CONTROLLER = Controller("model", volatile_cache=True, sets=False, groups=False, fdp=False)
DRIVE = NvmeDrive(1, CONTROLLER, Namespace(0, 0), cache_enabled=True, fdp_enabled=False,
                  tagged=False)
VISIBLE = Neighbour(alone=100.0, beside=100.0, own=1000.0)


def drive(**changes: Any) -> NvmeDrive:
    about = {name: changes.pop(name) for name in [*changes]
             if name in Controller.__dataclass_fields__}
    return dataclasses.replace(
        DRIVE, **{"controller": dataclasses.replace(CONTROLLER, **about), **changes})


def facts(nvme: NvmeDrive | None = None, **changes: bool) -> Facts:
    return Facts("nvme0n1", dataclasses.replace(QUEUE, **changes), nvme)


def test_a_controller_and_a_namespace() -> None:
    data = bytearray(identify.SIZE)
    data[24:64] = b"Model 5\0\x07".ljust(40)
    data[525] = 0x07
    struct.pack_into("<I", data, 96, 1 << 19 | 1 << 4)
    assert identify.controller(bytes(data)) == Controller("Model 5", True, False, True, True)
    struct.pack_into("<HH", data, 100, 3, 4)
    assert identify.namespace(bytes(data)) == Namespace(3, 4)


@given(st.binary(max_size=700))
def test_any_answer_of_a_drive(begin: bytes) -> None:
    data = begin.ljust(identify.SIZE, b"\xff")
    found = identify.controller(data)
    assert all(sign.isprintable() for sign in found.model)
    assert found.volatile_cache == bool(data[525] & 1)
    assert identify.namespace(data).group == data[102] | data[103] << 8


@pytest.mark.parametrize(("found", "limited", "isolation"), [
    (facts(), None, Isolation.FUA),
    (facts(fua=False), None, Isolation.DEGRADED),
    (facts(fua=False), VISIBLE, Isolation.NAMESPACE),
    (facts(fua=False), dataclasses.replace(VISIBLE, beside=990.0), Isolation.DEGRADED),
    (facts(write_back=False, fua=False), None, Isolation.PLP),
    (facts(DRIVE), None, Isolation.FUA),
    (facts(drive(tagged=True)), None, Isolation.TAGGED),
    (facts(drive(volatile_cache=False, cache_enabled=False), write_back=False), None,
     Isolation.PLP),
    (facts(drive(cache_enabled=False), write_back=False), None, Isolation.PLP),
    (facts(DRIVE, write_back=False), None, Isolation.UNSAFE),
    (facts(drive(cache_enabled=None), write_back=False), None, Isolation.UNSAFE),
])
def test_isolation(found: Facts, limited: Neighbour | None, isolation: Isolation) -> None:
    assert judge(found, None, limited).isolation is isolation


@pytest.mark.parametrize(("beside", "own", "limited"), [
    (100, 1000, True), (300, 1000, True), (400, 1000, None), (600, 1000, False),
    (1000, 1000, False), (5000, 1000, False), (100, 250, None), (240, 250, None),
])
def test_whether_a_flush_is_limited_to_a_namespace(beside: float, own: float,
                                                   limited: bool | None) -> None:
    assert flush_is_limited(Neighbour(100.0, beside, own)) is limited


@pytest.mark.parametrize(("found", "text"), [
    (facts(DRIVE, write_back=False), "/sys/block/nvme0n1/queue/write_cache"),
    (facts(drive(cache_enabled=False)), "feature 06h"),
    (facts(drive(fdp=True, fdp_enabled=True)), "Placement is enabled"),
    (facts(drive(fdp=True)), "not enabled"),
    (facts(drive(sets=True, namespace=Namespace(3, 0))), "in set 3"),
    (facts(rotational=True), "moving parts"),
])
def test_advice(found: Facts, text: str) -> None:
    assert text in " ".join(judge(found).advice)


def test_advice_from_measurements() -> None:
    fast, slow = Latency(20.0, 30.0), Latency(500.0, 600.0)
    said = " ".join(judge(facts(DRIVE), Measured(fast, slow, slow)).advice)
    assert "with FUA takes 500 us, one without 20 us" in said
    assert "with FUA takes" not in " ".join(judge(facts(DRIVE), Measured(fast, fast, slow)).advice)
    all_of_it = judge(facts(DRIVE), None, dataclasses.replace(VISIBLE, beside=990.0))
    assert "waits for the data of other namespaces" in " ".join(all_of_it.advice)
    assert "unclear" in judge(facts(DRIVE), None, Neighbour(100.0, 100.0, 120.0)).advice[-1]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Return a folder like /sys/dev/block: a mapped device on a partition and on a disk."""
    block, root = tmp_path / "devices", tmp_path / "block"
    root.mkdir()
    for name, number in (("sda", "8:0"), ("sda/sda1", "8:1"), ("sdb", "8:16"), ("dm-0", "253:0")):
        folder = block / name
        (folder / "queue").mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
        (root / number).symlink_to(folder)
    (block / "sda/sda1/partition").write_text("1\n")
    for attribute in ("start", "size"):
        (block / "sda/sda1" / attribute).write_text("8\n")
    for name, under in (("sda1", "sda/sda1"), ("sdb", "sdb")):
        (block / "dm-0/slaves").mkdir(exist_ok=True)
        (block / "dm-0/slaves" / name).symlink_to(block / under)
    return root


def test_the_disks_below_a_device(sysfs: Path) -> None:
    assert sorted(disks(DeviceNumber(253, 0), sysfs)) == [DeviceNumber(8, 0), DeviceNumber(8, 16)]
    assert disks(DeviceNumber(8, 1), sysfs) == [DeviceNumber(8, 0)]


def test_the_queue_of_a_disk(sysfs: Path) -> None:
    folder = sysfs / "8:0"
    assert queue(folder) == Queue(False, False, False, False)
    for name, text in (("write_cache", "write back"), ("fua", "1"), ("rotational", "1"),
                       ("discard_max_bytes", "4096")):
        (folder / "queue" / name).write_text(f"{text}\n")
    assert queue(folder) == Queue(True, True, True, True)


@pytest.mark.parametrize(("words", "text"), [
    (["/nowhere"], "No such file"), (["/dev/null"], "not a block device")])
def test_what_cannot_be_probed(words: list[str], text: str,
                               capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["device", "probe", *words]) == cli.EXIT_FAILED
    assert text in capsys.readouterr().err


def test_a_neighbour_needs_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["device", "probe", "/dev/null", "--neighbour", "/dev/null"])
    assert "--neighbour requires --measure" in capsys.readouterr().err
