# SPDX-License-Identifier: Apache-2.0
"""Detection of drives that support tags, with no more queries than needed."""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent.model import Device, DeviceNumber
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.nvme import Drives, TaggedDrive, parse_log

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


def _drives(sysfs: Path, answer: TaggedDrive | OSError | None) -> tuple[Drives, list[str]]:
    asked: list[str] = []

    def ask(path: str) -> TaggedDrive | None:
        asked.append(path)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return Drives(sysfs, ask), asked


def test_drive_with_tags(sysfs: Path) -> None:
    drives, asked = _drives(sysfs, DRIVE)
    kernel = Kernel()
    assert drives.use_tags(kernel, [DEVICE]) == []  # type: ignore[arg-type]
    assert kernel.told == [(DEVICE.number, 1, 100, 7)]
    assert asked == ["/dev/nvme0n1"]


def _replaced(**changes: object) -> Device:
    return Device(**{**{name: getattr(DEVICE, name) for name in DEVICE.__dataclass_fields__},
                     **changes})


@pytest.mark.parametrize("device", [
    _replaced(isolation=spec.Isolation.TAGGED), _replaced(isolation=spec.Isolation.DEGRADED),
    _replaced(isolation=spec.Isolation.WRITE_THROUGH), _replaced(suspended=True),
    _replaced(origin="8:0"), _replaced(origin="9:9"),
], ids=["has them", "degraded", "no cache", "suspended", "SCSI", "gone"])
def test_device_that_is_not_asked(sysfs: Path, device: Device) -> None:
    drives, asked = _drives(sysfs, DRIVE)
    kernel = Kernel()
    assert drives.use_tags(kernel, [device]) == []  # type: ignore[arg-type]
    assert (kernel.told, asked) == ([], [])


def test_drive_without_tags_is_asked_once_for_each_disk(sysfs: Path) -> None:
    drives, asked = _drives(sysfs, None)
    kernel = Kernel()
    for _ in range(3):
        assert drives.use_tags(kernel, [DEVICE]) == []  # type: ignore[arg-type]
    assert len(asked) == 1
    (sysfs / "259:0" / "diskseq").write_text("6\n")
    drives.use_tags(kernel, [DEVICE])  # type: ignore[arg-type]
    assert len(asked) == 2
    assert kernel.told == []


@pytest.mark.parametrize(("error", "asked_again"), [
    (errno.EOPNOTSUPP, False), (errno.EBUSY, True), (errno.EIO, True)])
def test_kernel_that_refuses(sysfs: Path, error: int, asked_again: bool) -> None:
    """The reason is reported each time that it is known; impossible requests are not retried."""
    drives, asked = _drives(sysfs, DRIVE)
    kernel = Kernel()
    kernel.error = error
    problems = drives.use_tags(kernel, [DEVICE])  # type: ignore[arg-type]
    assert problems == ["device images: cannot enable the tags of its origin 259:0: "
                        "the kernel's reason"]
    drives.use_tags(kernel, [DEVICE])  # type: ignore[arg-type]
    assert len(asked) == 1 + asked_again


@pytest.mark.parametrize("error", [errno.ENODEV, errno.EIO, errno.EACCES])
def test_drive_that_does_not_answer_is_asked_again(sysfs: Path, error: int) -> None:
    drives, asked = _drives(sysfs, OSError(error, os.strerror(error)))
    problems: Callable[[], list[str]] = lambda: drives.use_tags(  # noqa: E731
        Kernel(), [DEVICE])  # type: ignore[arg-type]
    assert os.strerror(error) in problems()[0]
    assert problems()
    assert len(asked) == 2
