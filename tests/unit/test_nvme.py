# SPDX-License-Identifier: Apache-2.0
"""Detection of drives that support tags, with no more queries than needed."""

import errno
import os
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.drive.tagged import TaggedDrive, parse_log, read_drive
from vcache_agent.model import Device, DeviceNumber
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.nvme import Drives

PAGE = struct.pack("<8sHBBB3xIIII24xI452x", b"vcacheSS", 1, 0xC0, 0xC1, 0xC2, 0xF, 65535, 3, 64,
                   0xABCD)


def _with(offset: int, value: bytes) -> bytes:
    return PAGE[:offset] + value + PAGE[offset + len(value):]


def test_log_page() -> None:
    assert len(PAGE) == 512
    assert parse_log(4, PAGE) == TaggedDrive(nsid=4, tag_max=65535, instance=0xABCD)


@pytest.mark.parametrize(("offset", "value"), [
    (0, b"vcacheSX"), (8, b"\2\0"), (10, b"\xd0"), (11, b"\xd1"), (16, b"\2"), (16, b"\1"),
    (56, bytes(4)),
], ids=["signature", "version", "flush opcode", "write opcode", "no tagged flush",
        "no tagged write", "no instance"])
def test_page_that_is_not_ours(offset: int, value: bytes) -> None:
    assert parse_log(1, _with(offset, value)) is None


def test_namespace_0_is_none() -> None:
    assert parse_log(0, PAGE) is None


@given(st.binary(min_size=512, max_size=512), st.integers(0, 16))
def test_any_page(page: bytes, keep: int) -> None:
    """Any answer of a drive is either understood or rejected."""
    answered = PAGE[:keep] + page[keep:]
    drive = parse_log(1, answered)
    assert drive is None or (answered[10:12] == b"\xc0\xc1" and drive.instance)


class Kernel:
    """Records the requests to the kernel, and answers them."""

    def __init__(self) -> None:
        self.told: list[tuple[DeviceNumber, int, int, int]] = []
        self.error = 0

    def device_set(self, device: DeviceNumber, *, nsid: int, tag_max: int, instance: int) -> None:
        self.told.append((device, nsid, tag_max, instance))
        if self.error:
            raise NetlinkError(self.error, "the kernel's reason")


DRIVE = TaggedDrive(1, 100, 7)
DEVICE = Device(DeviceNumber(253, 0), "images", spec.Mode.FLUSH_ONLY, spec.Scope.FILESYSTEM,
                spec.Isolation.FUA, 1 << 20, "259:0")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Create a /sys/dev/block with an NVMe namespace and a SCSI disk."""
    for number, name in (("259:0", "nvme0n1"), ("8:0", "sda")):
        folder = tmp_path / "devices" / name
        folder.mkdir(parents=True)
        (folder / "diskseq").write_text("5\n")
        (tmp_path / number).symlink_to(folder)
    return tmp_path


class Asked:
    """Drives with one answer for all queries.

    :param paths: the drives that were queried
    """

    def __init__(self, sysfs: Path, answer: TaggedDrive | OSError | None) -> None:
        self.paths: list[str] = []
        self._answer = answer
        self._drives = Drives(root=sysfs, ask=self._ask)

    def _ask(self, path: str) -> TaggedDrive | None:
        self.paths.append(path)
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer

    def __call__(self, kernel: "Kernel", device: Device = DEVICE) -> list[str]:
        return self._drives.use_tags(kernel, [device], 60.0)  # type: ignore[arg-type]


def test_drive_with_tags(sysfs: Path) -> None:
    asked, kernel = Asked(sysfs, DRIVE), Kernel()
    assert asked(kernel) == []
    assert kernel.told == [(DEVICE.number, 1, 100, 7)]
    assert asked.paths == ["/dev/nvme0n1"]


def test_a_drive_that_does_not_answer_delays_nobody(sysfs: Path) -> None:
    answer, answered = threading.Event(), threading.Event()

    def ask(_path: str) -> TaggedDrive:
        assert answer.wait(60)
        return DRIVE

    drives, kernel = Drives(answered.set, sysfs, ask), Kernel()
    for _ in range(3):
        assert drives.use_tags(kernel, [DEVICE]) == []  # type: ignore[arg-type]
    assert kernel.told == []
    assert not answered.is_set()
    answer.set()
    assert answered.wait(60)
    drives.use_tags(kernel, [DEVICE])  # type: ignore[arg-type]
    assert kernel.told == [(DEVICE.number, 1, 100, 7)]


def test_a_query_has_the_timeout_of_the_driver(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a shorter one, the driver would reset a controller that is only busy."""
    commands: list[bytes] = []

    def ioctl(_fd: int, request: int, command: bytes = b"") -> int:
        commands.append(bytes(command))
        return 1  # the namespace, and then a status that is not success

    monkeypatch.setattr("vcache_agent.drive.nvme_admin.fcntl.ioctl", ioctl)
    path = tmp_path / "drive"
    path.touch()
    assert read_drive(str(path)) is None
    # struct nvme_passthru_cmd: timeout_ms is at offset 64.
    assert commands[1][64:68] == bytes(4)


def _replaced(**changes: object) -> Device:
    return Device(**{**{name: getattr(DEVICE, name) for name in DEVICE.__dataclass_fields__},
                     **changes})


@pytest.mark.parametrize("device", [
    _replaced(isolation=spec.Isolation.TAGGED), _replaced(isolation=spec.Isolation.DEGRADED),
    _replaced(isolation=spec.Isolation.WRITE_THROUGH), _replaced(suspended=True),
    _replaced(origin="8:0"), _replaced(origin="9:9"),
], ids=["has them", "degraded", "no cache", "suspended", "SCSI", "gone"])
def test_device_that_is_not_asked(sysfs: Path, device: Device) -> None:
    asked, kernel = Asked(sysfs, DRIVE), Kernel()
    assert asked(kernel, device) == []
    assert (kernel.told, asked.paths) == ([], [])


def test_drive_without_tags_is_asked_once_for_each_disk(sysfs: Path) -> None:
    asked, kernel = Asked(sysfs, None), Kernel()
    for _ in range(3):
        assert asked(kernel) == []
    assert len(asked.paths) == 1
    (sysfs / "259:0" / "diskseq").write_text("6\n")
    asked(kernel)
    assert len(asked.paths) == 2
    assert kernel.told == []


@pytest.mark.parametrize(("error", "asked_again"), [
    (errno.EOPNOTSUPP, False), (errno.EBUSY, True), (errno.EIO, True)])
def test_kernel_that_refuses(sysfs: Path, error: int, asked_again: bool) -> None:
    """The reason is reported each time that it is known; impossible requests are not retried."""
    asked, kernel = Asked(sysfs, DRIVE), Kernel()
    kernel.error = error
    assert asked(kernel) == ["device images: cannot enable the tags of its origin 259:0: "
                             "the kernel's reason"]
    kernel.told.clear()
    asked(kernel)
    assert len(asked.paths) == 1 + asked_again


@pytest.mark.parametrize("error", [errno.ENODEV, errno.EIO, errno.EACCES])
def test_drive_that_fails_is_asked_again(sysfs: Path, error: int) -> None:
    asked = Asked(sysfs, OSError(error, os.strerror(error)))
    assert os.strerror(error) in asked(Kernel())[0]
    assert asked(Kernel())
    assert len(asked.paths) == 2
