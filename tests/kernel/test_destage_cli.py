# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache destage``, on the real target."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.test_attach import vcache
from vcache_agent.cmd import cli

MIB = 2048


@pytest.fixture(name="attached")
def fixture_attached(tmp_path: Path) -> Iterator[stack.Mapped]:
    """Give a device of 32 MiB that is attached to a pool."""
    with stack.null_blk(32) as below, stack.null_blk(64) as ssd, stack.pool(ssd) as pool, \
            stack.mapped(stack.linear(below), stack.unique("lv")) as device:
        vcache(tmp_path, "attach", device.path, "--pool", pool.name, "--tag", "7")
        yield device
        vcache(tmp_path, "detach", device.path)


def run(*arguments: str) -> int:
    return cli.main(["destage", *arguments])


def test_limits_and_pause_are_shown_and_changed(attached: stack.Mapped,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    path = attached.path
    assert run(path) == 0
    assert capsys.readouterr().out == (
        f"{attached.name}: clean, 0 B dirty, begins at 25 %, full speed from 75 % of a share\n")
    assert run(path, "--rate", "7", "--low", "5", "--high", "20", "--pause", "600") == 0
    assert " destage_mib 7 destage_low 5 destage_high 20 " in attached.table()
    assert "begins at 5 %, full speed from 20 % of a share, at most 7 MiB/s, paused for " in \
        capsys.readouterr().out
    # Each order in which the two parts of a share cross the old ones.
    assert run(path, "--low", "60", "--high", "70") == 0
    assert run(path, "--low", "1", "--high", "2") == 0
    capsys.readouterr()
    assert run(path, "--json", "--rate", "0", "--low", "25", "--high", "75", "--resume") == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": attached.name, "state": "clean", "dirty": 0, "destaged": 0, "paused": 0,
        "limits": {"destage_mib": 0, "destage_low": 25, "destage_high": 75},
        "bytes_per_second": None}


def test_what_does_not_fit_changes_nothing(attached: stack.Mapped,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    before = attached.table()
    assert run(attached.path, "--rate", "3", "--low", "76") == 1
    assert "the low part of a share, 76 %, must not be greater than the high one, 75 %" in \
        capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(attached.path, "--high", "81")
    assert "must be an integer from 1 to 80" in capsys.readouterr().err
    assert attached.table() == before


def test_limits_stay_when_the_mode_changes(attached: stack.Mapped, tmp_path: Path) -> None:
    assert run(attached.path, "--rate", "5") == 0
    vcache(tmp_path, "mode", attached.path, "writethrough")
    assert " destage_mib 5 " in attached.table()


def test_device_without_a_cache_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with stack.null_blk(8) as below, \
            stack.mapped(stack.linear(below), stack.unique("lv")) as device:
        assert run(device.path, "--rate", "5") == 1
        assert f"{device.name} has no cache, it must be an attached device" in \
            capsys.readouterr().err


def test_follow_ends_when_nothing_is_dirty(attached: stack.Mapped,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    with Disk(attached.path) as disk:
        for at in range(8):
            disk.write_and_flush(at * MIB, pattern(at, MIB))
    assert run(attached.path, "--follow", "--rate", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "8.0 MiB dirty" in lines[0]
    assert "/s to the origin" in lines[1]
    assert f"{attached.name}: clean, 0 B dirty" in lines[-1]
