# SPDX-License-Identifier: Apache-2.0
"""Weights of tags in drives: the decision, and the visits of drives.

tests/kernel/test_drive_weights.py has the same with the emulated SSD.
"""

import dataclasses
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import sysfs
from vcache_agent.drive import tag_shares, watch, weights
from vcache_agent.drive.tag_shares import SharesError, TagShare
from vcache_agent.drive.watch import DriveWatch
from vcache_agent.drive.weights import Change, Drive, changes
from vcache_agent.model import Device, DeviceNumber, Tag, shared_label
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import Sample
from vcache_agent.sysfs import NvmeDrive

ONE, TWO, DISK = DeviceNumber(254, 1), DeviceNumber(254, 2), DeviceNumber(254, 3)
SSD, OTHER = NvmeDrive("nvme0", "nqn.ssd"), NvmeDrive("nvme1", "nqn.other")


def device(number: DeviceNumber, isolation: spec.Isolation = spec.Isolation.TAGGED,
           origin: str = "") -> Device:
    return Device(number, f"d{number.minor}", spec.Mode.FLUSH_ONLY, spec.Scope.FILESYSTEM,
                  isolation, 1 << 20, origin or f"259:{number.minor}")


def tag(number: int, weight: int = 100, at: DeviceNumber = ONE, name: str = "") -> Tag:
    return Tag(at, number, name or f"vm{number}:vda" if number else "", weight)


def share(number: int, weight: int) -> TagShare:
    return TagShare(number, weight, 0, 0, 0, 0, 0, 0, 0)


def wanted(*tags: Tag, isolation: spec.Isolation = spec.Isolation.TAGGED) -> Drive:
    """Return the drive of a device with some tags."""
    return weights.drives([device(ONE, isolation)], tags, {ONE: SSD})[SSD.subsystem]


def test_tags_have_the_weights_of_the_kernels() -> None:
    drive = wanted(tag(0, 250), tag(7, 300), tag(9, 1))
    assert drive == Drive("nvme0", "259:1", True, {0: "", 7: "vm7:vda", 9: "vm9:vda"},
                          {7: 300, 9: 1})


def test_nothing_changes_if_all_is_as_wanted() -> None:
    drive = wanted(tag(0), tag(7, 300), tag(9, 1))
    assert changes(drive, [share(0, 0), share(7, 300), share(9, 1), share(12, 0)]) == ()


def test_only_the_difference_changes_and_weights_are_removed_first() -> None:
    drive = wanted(tag(3, 10), tag(7, 300), tag(8, 20))
    assert changes(drive, [share(3, 10), share(7, 200), share(9, 5)]) == (
        Change(9, 0), Change(7, 300), Change(8, 20))


def test_a_drive_that_has_forgotten_everything_gets_all_again() -> None:
    assert changes(wanted(tag(7, 300), tag(8, 20)), []) == (Change(7, 300), Change(8, 20))


def test_the_host_tag_keeps_what_it_was_given_by_hand() -> None:
    assert changes(wanted(tag(0, 100)), [share(0, 40)]) == ()


def test_a_shared_layer_has_no_weight() -> None:
    drive = wanted(tag(7, 300), tag(8, 40, name=shared_label("/images/base.qcow2")))
    assert drive.weights == {7: 300}
    assert drive.names[8] == "base:base.qcow2"
    assert changes(drive, [share(7, 300), share(8, 40)]) == (Change(8, 0),)


def test_devices_on_one_drive_have_its_tags_in_common() -> None:
    found = weights.drives(
        [device(ONE), device(TWO), device(DISK, spec.Isolation.FUA)],
        [tag(7, 300), tag(7, 100, TWO), tag(8, 20, TWO), tag(9, 5, DISK)], {ONE: SSD, TWO: SSD})
    assert found.keys() == {SSD.subsystem}
    assert found[SSD.subsystem].weights == {7: 300, 8: 20}
    apart = weights.drives([device(ONE), device(TWO)], [tag(7, 300), tag(7, 100, TWO)],
                           {ONE: SSD, TWO: OTHER})
    assert [drive.weights for drive in apart.values()] == [{7: 300}, {7: 100}]


def test_a_device_without_tagged_commands_sets_and_removes_nothing() -> None:
    found = weights.drives([device(TWO, spec.Isolation.FUA), device(ONE)],
                           [tag(7, 300), tag(7, 900, TWO), tag(8, 20, TWO)], {ONE: SSD, TWO: SSD})
    drive = found[SSD.subsystem]
    assert (drive.tagged, drive.origin, drive.weights, drive.kept) == (
        True, "259:1", {7: 300}, {8})
    assert changes(drive, [share(7, 300), share(8, 5), share(9, 5)]) == (Change(9, 0),)
    alone = wanted(tag(7, 300), isolation=spec.Isolation.FUA)
    assert (alone.tagged, alone.weights, alone.kept) == (False, {}, {7})


def test_a_drive_without_devices_loses_its_weights() -> None:
    drive = weights.without_tags(wanted(tag(7, 300)))
    assert changes(drive, [share(7, 300), share(0, 40)]) == (Change(7, 0),)


NUMBERS = st.integers(0, 12)


@given(st.dictionaries(NUMBERS, st.integers(1, 1000)), st.dictionaries(NUMBERS, st.integers(0, 9)),
       st.sets(NUMBERS))
def test_the_changes_lead_to_the_weights_and_then_to_nothing(
        tags: dict[int, int], has: dict[int, int], kept: set[int]) -> None:
    """Idempotent, whatever the drive has."""
    others = [tag(number, 999, TWO) for number in kept]
    drive = weights.drives([device(ONE), device(TWO, spec.Isolation.FUA)],
                           [tag(*item) for item in tags.items()] + others,
                           {ONE: SSD, TWO: SSD})[SSD.subsystem]
    after = dict(has)
    for number, weight in changes(drive, [share(*item) for item in has.items()]):
        assert after.get(number, 0) != weight
        after[number] = weight
    assert changes(drive, [share(*item) for item in after.items()]) == ()
    for number in range(1, 13):
        assert after.get(number, 0) == tags.get(
            number, has.get(number, 0) if number in kept else 0)
    assert after.get(0) == has.get(0)


def test_the_drive_of_a_namespace(tmp_path: Path) -> None:
    controller = tmp_path / "devices" / "nvme3"
    (controller / "nvme3n1" / "nvme3n1p2").mkdir(parents=True)
    (controller / "subsysnqn").write_text("nqn.ssd\n")
    (controller / "nvme3n1" / "device").symlink_to(controller)
    (controller / "nvme3n1" / "dev").write_text("259:0\n")
    part = controller / "nvme3n1" / "nvme3n1p2"
    for name, text in (("partition", "2"), ("start", "8"), ("size", "16")):
        (part / name).write_text(text)
    (tmp_path / "devices" / "sda").mkdir()
    for number, folder in (("259:0", controller / "nvme3n1"), ("259:1", part),
                           ("8:0", tmp_path / "devices" / "sda")):
        (tmp_path / number).symlink_to(folder)
    for minor in (0, 1):
        assert sysfs.nvme_drive(DeviceNumber(259, minor), tmp_path) == NvmeDrive(
            "nvme3", "nqn.ssd")
    for gone in (DeviceNumber(8, 0), DeviceNumber(9, 9)):
        assert sysfs.nvme_drive(gone, tmp_path) is None


class Drives:
    """Drives that answer for the watch, and the kernel's devices and tags.

    `has` is their weights by path, `sets` and `read` are the requests, and drives in `hanging` do
    not answer until the event is set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has: dict[str, dict[int, int]] = {}
        self.sets: list[tuple[str, int, int]] = []
        self.read: list[str] = []
        self.hanging: dict[str, threading.Event] = {}
        self.fails: Exception | None = None
        self.devices: tuple[Device, ...] = (device(ONE), device(TWO))
        self.tags: tuple[Tag, ...] = (tag(7, 300), tag(8, 20, TWO))
        self.age = 0.0
        monkeypatch.setattr(tag_shares, "read_shares", self._read)
        monkeypatch.setattr(tag_shares, "set_weights", self._set)
        monkeypatch.setattr(sysfs, "nvme_drive", lambda at, _root: {1: SSD, 2: OTHER}.get(at.minor))
        monkeypatch.setattr(sysfs, "name", lambda at, _root: at)

    def sample(self) -> Sample:
        return Sample(0.0, time.monotonic() - self.age, self.devices, self.tags)

    def _read(self, path: str) -> list[TagShare]:
        self.read.append(path)
        if path in self.hanging:
            assert self.hanging[path].wait(60)
        if self.fails:
            raise self.fails
        return [share(*item) for item in self.has.get(path, {}).items()]

    def _set(self, path: str, changes: Iterable[tuple[int, int]]) -> dict[int, str]:
        for number, weight in changes:
            self.sets.append((path, number, weight))
            self.has.setdefault(path, {})[number] = weight
        return {}


@pytest.fixture(name="drives")
def fixture_drives(monkeypatch: pytest.MonkeyPatch) -> Drives:
    monkeypatch.setattr(watch, "_PERIOD", 0.0)
    return Drives(monkeypatch)


def visit(looking: DriveWatch) -> None:
    looking.step()
    looking.finish()


def test_a_drive_that_hangs_delays_nobody(drives: Drives) -> None:
    answer = drives.hanging["/dev/259:1"] = threading.Event()
    looking = DriveWatch(drives.sample, set_weights=True)
    for _ in range(3):
        looking.step()
        looking._visits[OTHER.subsystem].thread.join()
    assert drives.has == {"/dev/259:2": {8: 20}}
    assert [reading.drive.name for reading in looking.readings] == ["nvme1"]
    # It is visited once, however long it takes.
    assert drives.read.count("/dev/259:1") == 1
    answer.set()
    looking.finish()
    assert drives.has["/dev/259:1"] == {7: 300}


def test_without_the_option_weights_are_only_read(drives: Drives) -> None:
    drives.has = {"/dev/259:1": {7: 5, 9: 6}}
    looking = DriveWatch(drives.sample, set_weights=False)
    visit(looking)
    assert drives.sets == []
    reading = next(item for item in looking.readings if item.drive.name == "nvme0")
    assert reading.shares == (share(7, 5),)  # the kernel has no tag 9


def test_no_drive_is_visited_before_its_time(
        drives: Drives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PERIOD", 1000.0)
    looking = DriveWatch(drives.sample, set_weights=False)
    for _ in range(3):
        visit(looking)
    assert len(drives.read) == 2
    drives.tags = (tag(7, 301), tag(8, 20, TWO))
    visit(looking)
    assert len(drives.read) == 3


def test_an_old_sample_says_nothing(drives: Drives) -> None:
    looking = DriveWatch(drives.sample, set_weights=True)
    visit(looking)
    drives.sets.clear()
    drives.tags, drives.age = (), 16.0
    visit(looking)
    assert drives.sets == []
    drives.age = 0.0
    visit(looking)
    assert sorted(drives.sets) == [("/dev/259:1", 7, 0), ("/dev/259:2", 8, 0)]


def test_a_device_that_has_gone_leaves_no_weight(drives: Drives) -> None:
    looking = DriveWatch(drives.sample, set_weights=True)
    visit(looking)
    drives.sets.clear()
    drives.devices, drives.tags = drives.devices[1:], drives.tags[1:]
    for _ in range(3):
        visit(looking)
    assert drives.sets == [("/dev/259:1", 7, 0)]
    assert [reading.drive.name for reading in looking.readings] == ["nvme1"]


def test_a_drive_that_has_gone_with_its_device_is_no_error(
        drives: Drives, caplog: pytest.LogCaptureFixture) -> None:
    looking = DriveWatch(drives.sample, set_weights=True)
    visit(looking)
    drives.devices, drives.tags = (), ()
    drives.fails = FileNotFoundError(2, "No such file or directory")
    for _ in range(2):
        visit(looking)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert looking.readings == ()


def test_a_device_that_sends_no_tagged_commands_for_now_keeps_the_weights(drives: Drives) -> None:
    looking = DriveWatch(drives.sample, set_weights=True)
    visit(looking)
    drives.sets.clear()
    drives.devices = tuple(dataclasses.replace(item, isolation=spec.Isolation.FUA)
                           for item in drives.devices)
    reads = len(drives.read)
    visit(looking)
    assert (drives.sets, len(drives.read)) == ([], reads)


@pytest.mark.parametrize(("error", "text"), [
    (OSError(5, "Input/output error"), "/dev/259:1: Input/output error"),
    (SharesError("the drive has tags without weights"), "the drive has tags without weights")])
def test_an_error_is_logged_once(error: Exception, text: str, drives: Drives,
                                 caplog: pytest.LogCaptureFixture) -> None:
    drives.devices, drives.fails = drives.devices[:1], error
    looking = DriveWatch(drives.sample, set_weights=True)
    for _ in range(3):
        visit(looking)
    message = f"drive nvme0: its tags do not have their weights: {text}"
    assert [record.getMessage() for record in caplog.records] == [message]
    assert looking.readings[0].problem == text
    drives.fails = None
    visit(looking)
    assert looking.readings[0].problem == ""
    drives.fails = error
    visit(looking)
    assert [record.getMessage() for record in caplog.records
            if record.levelname == "ERROR"] == [message] * 2


def test_a_drive_without_weights_is_no_error_without_the_option(
        drives: Drives, caplog: pytest.LogCaptureFixture) -> None:
    drives.fails = SharesError("the drive has tags without weights")
    looking = DriveWatch(drives.sample, set_weights=False)
    visit(looking)
    assert (caplog.records, looking.readings) == ([], ())


def test_an_origin_that_is_another_drive_now_is_left_alone(
        drives: Drives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number was given to another drive after the device had gone."""
    looking = DriveWatch(drives.sample, set_weights=True)
    visit(looking)
    drives.sets.clear()
    drives.devices, drives.tags = (), ()
    monkeypatch.setattr(sysfs, "nvme_drive", lambda _at, _root: NvmeDrive("nvme0", "nqn.third"))
    visit(looking)
    assert drives.sets == []


def test_nothing_is_looked_up_on_a_host_without_such_drives(
        drives: Drives, monkeypatch: pytest.MonkeyPatch) -> None:
    drives.devices = (device(ONE, spec.Isolation.FUA),)
    monkeypatch.setattr(sysfs, "nvme_drive", lambda *_: pytest.fail("looked up"))
    visit(DriveWatch(drives.sample, set_weights=True))
    assert drives.read == []
