# SPDX-License-Identifier: Apache-2.0
"""vcache tag save and load, with a replacement for the kernel."""

import dataclasses
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.test_swap import ON_VOLUME
from vcache_agent import mapfile
from vcache_agent.cmd import cli, map_cli
from vcache_agent.model import Device, DeviceNumber, Tag
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun


class Kernel:
    """One device with one tag; replaces netlink.client.Client."""

    def __init__(self, *_: object) -> None: ...

    device: Device = ON_VOLUME
    asked: list[tuple[CachedRun, ...]] = []  # noqa: RUF012 - set by the fixture
    busy = 0
    waits = 0

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None: ...

    def devices(self) -> list[Device]:
        return [self.device]

    def tags(self) -> list[Tag]:
        return [Tag(self.device.number, 7)]

    def tag(self, at: DeviceNumber, number: int) -> Tag:
        Kernel.waits -= 1
        return Tag(at, number, prefetched_bytes=8192, prefetch_waiting_bytes=max(Kernel.waits, 0))

    def cached(self, _at: DeviceNumber, _number: int) -> list[CachedRun]:
        return [CachedRun(64, 8, 1), CachedRun(0, 8, 3), CachedRun(8, 8, 3)]

    def prefetch(self, _at: DeviceNumber, _number: int, runs: Sequence[CachedRun]) -> None:
        if Kernel.busy:
            Kernel.busy -= 1
            raise NetlinkError(errno.EBUSY, "too many")
        Kernel.asked.append(tuple(runs))


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> type[Kernel]:
    Kernel.device, Kernel.asked, Kernel.busy, Kernel.waits = ON_VOLUME, [], 2, 3
    monkeypatch.setattr(map_cli, "connect", Kernel)
    monkeypatch.setattr(map_cli, "Client", Kernel)
    monkeypatch.setattr(map_cli, "_LOOK", 0.0)
    return Kernel


def test_what_is_saved_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map"
    assert cli.main(["tag", "save", "7", str(path)]) == 0
    assert capsys.readouterr().out == "12.0 KiB in 2 runs\n"
    assert mapfile.read(path).runs == (CachedRun(0, 16, 3), CachedRun(64, 8, 1))
    assert cli.main(["tag", "load", "7", str(path)]) == 0
    assert Kernel.asked == [(CachedRun(0, 16, 3),), (CachedRun(64, 8, 1),)]
    assert capsys.readouterr().out.startswith("8.0 KiB of 12.0 KiB read into the cache")


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map"
    assert cli.main(["tag", "save", "7", str(path)]) == 0

    def refused(*words: str) -> str:
        assert cli.main(["tag", *words]) == 1
        return capsys.readouterr().err

    assert "no device has a tag 8" in refused("load", "8", str(path))
    assert "No such file" in refused("load", "7", str(tmp_path / "none"))
    assert "No such file" in refused("save", "7", str(tmp_path / "none" / "map"))
    Kernel.device = dataclasses.replace(ON_VOLUME, sectors=8)
    assert "was saved on a device of 512.0 MiB, but the device of tag 7 has 4.0 KiB" in refused(
        "load", "7", str(path))
    Kernel.device = dataclasses.replace(ON_VOLUME, pool="")
    assert "which has no cache" in refused("save", "7", str(path))
    path.write_bytes(b"x" * 100)
    assert "not a list of cached blocks" in refused("load", "7", str(path))
    assert Kernel.asked == []
