# SPDX-License-Identifier: Apache-2.0
"""Shares of tags of an NVMe drive: parsing, setting weights, the command."""

import errno
import json
import struct
from pathlib import Path

import pytest

from vcache_agent.cmd import cli, device_cli
from vcache_agent.drive import nvme_admin, tag_shares
from vcache_agent.drive.tag_shares import SharesError, TagShare

SIZE = 160


def entry(tag: int, flags: int = 1) -> bytes:
    return struct.pack("<II12QII3Q24x", tag, flags, *range(1, 13), 300, 512, 7, 8, 9)


class Drive:
    """Answers admin commands like a drive, which has weights for one tag only."""

    def __init__(self, entries: int, size: int = SIZE, capabilities: int = 0xFF) -> None:
        self.page0 = struct.pack("<8sHBBBBHIIII24xI452x", b"vcacheSS", 1, 0xC0, 0xC1, 0xC2, 0xC5, 0,
                                 capabilities, 65535, entries, 64, 7)
        self.page1 = struct.pack("<8sHHI48x", b"vcacheSS", 1, size, entries) + b"".join(
            entry(tag) + bytes(size - SIZE) for tag in reversed(range(entries)))
        self.features: list[tuple[int, int, int]] = []
        self.reads: list[tuple[int, int]] = []

    def log_page(self, _fd: int, page: int, size: int, offset: int = 0) -> bytes | None:
        if page == 0xC1:
            self.reads.append((size, offset))
        return {0xC0: self.page0, 0xC1: self.page1}[page][offset:offset + size]

    def set_feature(self, _fd: int, number: int, tag: int, weight: int) -> int:
        if tag > 65535:
            return 0x4002
        if tag != 7:
            return 0x410E
        self.features.append((number, tag, weight))
        return 0


def use(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvme_admin, "namespace", lambda _fd: 1)
    monkeypatch.setattr(nvme_admin, "log_page", drive.log_page)
    monkeypatch.setattr(nvme_admin, "set_feature", drive.set_feature)


def test_an_entry() -> None:
    assert tag_shares.parse(entry(7)) == TagShare(7, 300, 512, 8, 2, 3, 7, 8, 9)
    assert tag_shares.parse(entry(7, flags=0)) == TagShare(7, 0, 0, 0, 2, 3, 0, 0, 0)


@pytest.mark.parametrize("size", [SIZE, 256])
def test_a_long_page_is_read_in_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later versions may have longer entries."""
    drive = Drive(2000, size)
    use(drive, monkeypatch)
    found = tag_shares.read_shares("/dev/null")
    assert [share.tag for share in found] == list(range(2000))
    assert len(drive.reads) > 2
    assert max(length for length, _ in drive.reads) <= 128 << 10


@pytest.mark.parametrize(("drive", "text"), [
    (Drive(1, capabilities=0x7F), "tags without weights"), (Drive(1, capabilities=0), "no tags")])
def test_a_drive_without_weights(drive: Drive, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(drive, monkeypatch)
    for call in (lambda: tag_shares.read_shares("/dev/null"),
                 lambda: tag_shares.set_weight("/dev/null", 7, 1)):
        with pytest.raises(SharesError, match=text):
            call()
    assert drive.features == []


def test_short_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    use(Drive(0, 128), monkeypatch)
    with pytest.raises(SharesError, match="128 bytes, 136 are needed"):
        tag_shares.read_shares("/dev/null")


def test_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    drive = Drive(1)
    use(drive, monkeypatch)
    tag_shares.set_weight("/dev/null", 7, 300)
    assert drive.features == [(0xC0, 7, 300)]
    with pytest.raises(SharesError, match="as many tags as it can"):
        tag_shares.set_weight("/dev/null", 8, 300)
    with pytest.raises(SharesError, match="refuses them"):
        tag_shares.set_weight("/dev/null", 65536, 300)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    drive = Drive(2)
    use(drive, monkeypatch)
    monkeypatch.setattr(device_cli, "_number", lambda _path: None)
    assert cli.main(["device", "tags", "--json", "--weight", "7=300", "/dev/null"]) == 0
    assert [share["tag"] for share in json.loads(capsys.readouterr().out)] == [0, 1]
    assert drive.features == [(0xC0, 7, 300)]
    assert cli.main(["device", "tags", "/dev/null"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["0", "300", "512", "8"]
    assert cli.main(["device", "tags", "--weight", "8=1", "/dev/null"]) == cli.EXIT_FAILED
    assert "tag 8" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["7", "7=", "=1", "7=10001", "7=-1", "a=1"])
def test_weights_that_make_no_sense(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["device", "tags", "--weight", words, "/dev/null"])
    assert "not TAG=WEIGHT with a weight of 0 to 10000" in capsys.readouterr().err


def test_not_a_drive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["device", "tags", str(tmp_path / "none")]) == cli.EXIT_FAILED
    assert "No such file" in capsys.readouterr().err
    with pytest.raises(OSError, match="ioctl") as caught:
        tag_shares.read_shares("/dev/null")
    assert caught.value.errno == errno.ENOTTY
