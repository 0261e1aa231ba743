# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache tag curve``, with tags and curves in place of the kernel."""

import json
from typing import Any

import pytest

from vcache_agent.cmd import cli, curve_cli
from vcache_agent.model import Curve, DeviceNumber, Tag

FIRST, SECOND = DeviceNumber(254, 3), DeviceNumber(254, 4)
MIB = 1 << 20


class Kernel:
    """Three tags of two devices."""

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None: ...

    def tags(self) -> list[Tag]:
        return [Tag(FIRST, 5, "u:vda"), Tag(FIRST, 6), Tag(SECOND, 6, "v:vda")]

    def curve(self, device: DeviceNumber, number: int) -> Curve:
        reads = 1000 if device == FIRST else 0
        return Curve(MIB, 4 * MIB, reads, 500,
                     tuple(reads * part // 10 for part in (10, 8, 4, 2, 1)), (500,) * 5)


@pytest.fixture(autouse=True)
def fixture_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_cli, "connect", Kernel)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main(["tag", "curve", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_curve_is_shown_up_to_what_the_tag_has_accessed(
        capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "5")
    assert (found["device"], found["tag"], found["name"]) == ("254:3", 5, "u:vda")
    assert (found["reads"], found["writes"], found["footprint_bytes"]) == (1000, 500, 4 * MIB)
    points = {one["blocks"]: one for one in found["sizes"]}
    assert sorted(points)[-1] == 1024
    assert points[512] == {"blocks": 512, "read_misses": 400, "write_misses": 500,
                           "read_miss_ratio": 0.4, "write_miss_ratio": 1.0}
    assert points[1024]["read_misses"] == 100


def test_one_that_has_not_read_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "6", "--device", "254:4")
    assert {one["read_miss_ratio"] for one in found["sizes"]} == {None}
    assert cli.main(["tag", "curve", "6", "--device", "254:4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 reads and 500 writes of 4 KiB, footprint about 4.0 MiB"
    assert lines[2].split() == ["SIZE", "READ-MISSES", "RATIO", "WRITE-MISSES", "RATIO"]
    assert lines[-1].split()[-2:] == ["500", "1.0000"]


@pytest.mark.parametrize(("words", "says"), [
    (["9"], "no device has a tag 9"),
    (["5", "--device", "254:4"], "device 254:4 has no tag 5"),
    (["6"], "tag 6 is on several devices, use --device with one of 254:3, 254:4")])
def test_which_tag(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert cli.main(["tag", "curve", *words]) == 1
    assert says in capsys.readouterr().err
