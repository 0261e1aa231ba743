# SPDX-License-Identifier: Apache-2.0
"""Pools and their tables, with a model of device mapper."""

import contextlib
import errno
import json

import pytest

from tests.unit.dm_model import MIB, Dm, Kernel, as_dm, host
from vcache_agent import pools, tables
from vcache_agent.cmd import cli, pool_cli
from vcache_agent.dm import DmError, Line, _reason
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import Mapping, PoolError


@pytest.fixture
def kernel() -> Kernel:
    return host()


def test_a_line_is_read_as_the_kernel_shows_it() -> None:
    for text in ("flush-only 8:0 filesystem", "none 8:0 volume 7", "flush-only 8:0 volume 9 2 "
                 "age_ms 5", "writeback 8:0 filesystem 3 pool 254:1 4294967295",
                 "writethrough 8:0 volume 7 5 age_ms 100 pool 254:1 3"):
        line = Line(0, 8, "vcache", text)
        assert Mapping.parse(line).line() == line


@pytest.mark.parametrize(("text", "reason"), [
    ("device-mapper: table: 254:9: vcache-pool: preresume failed, error = -22", ""),
    ("device-mapper: table: 254:0: vcache: cannot open the origin device (-ENOENT)",
     "cannot open the origin device"),
    ("device-mapper: vcache: lv: cannot flush the origin: error -5",
     "cannot flush the origin: error -5"),
    ("device-mapper: ioctl: error adding target to table", "")])
def test_the_kernels_reason(text: str, reason: str) -> None:
    assert _reason(text) == reason


def test_a_pool_is_tuned(kernel: Kernel, monkeypatch: pytest.MonkeyPatch,
                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pool_cli, "mapper", lambda: contextlib.nullcontext(Dm(kernel)))
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.reads, found.reads_percent) == (1, 75)
    assert cli.main(["pool", "set", "fast", "--reads-percent", "20"]) == 0
    assert capsys.readouterr().out == "pool fast: reads_percent 20, was 75\n"
    assert cli.main(["pool", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["pools"]
    assert (row["read_bytes"], row["reads_percent"]) == (MIB, 20)
    assert cli.main(["pool", "set", "fast", "--reads-percent", "30", "--hot-percent", "100"]) == 0
    assert capsys.readouterr().out == \
        "pool fast: reads_percent 30, was 20; hot_percent 100, was 20\n"
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.reads_percent, found.hot_percent) == (30, 100)
    assert cli.main(["pool", "set", "slow", "--reads-percent", "20"]) != 0
    assert "pools of this host: fast" in capsys.readouterr().err


def test_a_pool_is_resized(kernel: Kernel, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """Shrinking takes a while: the command prints the rest, and waits if requested."""
    def look(_seconds: float) -> None:
        said = kernel.pool_status.split()
        kernel.pool_status = " ".join([*said[:14], str(max(int(said[14]) - 3, 0))])

    monkeypatch.setattr(pool_cli, "mapper", lambda: contextlib.nullcontext(Dm(kernel)))
    monkeypatch.setattr("vcache_agent.pools.time.sleep", look)
    assert cli.main(["pool", "resize", "fast"]) == 0
    assert (kernel.resized, capsys.readouterr().out) == (
        0, "pool fast: 62 chunks of 1024 KiB, was 62\n")
    kernel.pool_status = " ".join([*kernel.pool_status.split()[:14], "5"])
    assert cli.main(["pool", "resize", "fast", "3G", "--no-wait"]) == 0
    assert kernel.resized == 6 << 20
    assert capsys.readouterr().out.endswith("; 5 left to reclaim\n")
    assert cli.main(["pool", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pools"][0]["leaving_bytes"] == 5 * MIB
    assert cli.main(["pool", "resize", "fast", "1000000"]) == 0
    assert kernel.resized == 1953
    first, second, last = capsys.readouterr().out.splitlines()
    assert "5 chunks left to reclaim" in first
    assert "2 chunks left to reclaim" in second
    assert last == "pool fast: 62 chunks of 1024 KiB, was 62"
    assert cli.main(["pool", "resize", "fast", "511"]) != 0
    assert "must be at least 512 bytes" in capsys.readouterr().err


def test_volumes_that_are_not_in_use_can_hold_up_a_shrink(kernel: Kernel) -> None:
    said: list[str] = []
    kernel.pool_status = "ok 2048 62 60 2 0 3 1 0 18.01 0 1 0 75 4"

    def say(text: str) -> None:
        said.append(text)
        kernel.pool_status = kernel.pool_status[:-1] + "0"

    pools.resize(as_dm(Dm(kernel)), "fast", None, say)
    assert "2 unattached volumes" in said[0]


def test_an_older_module_does_not_resize(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01 0 1 0 75"
    with pytest.raises(PoolError, match="too old"):
        pools.resize(as_dm(Dm(kernel)), "fast", None, print)
    assert kernel.resized is None


def test_an_older_module_is_told_nothing_when_it_does_not_know_all(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01 0 1 0 75"
    with pytest.raises(PoolError, match="too old to change hot_percent"):
        pools.tune(as_dm(Dm(kernel)), "fast", {"reads_percent": 10, "hot_percent": 10})
    assert kernel.pool_status.endswith(" 75")


def test_a_module_that_does_not_say_what_is_read(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01"
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.free, found.reads, found.reads_percent) == (60, None, None)


def test_what_fails_as_a_pool_is_not_made_does_not_hide_the_reason(
        kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Dm):
        def remove(self, name: str, event: int = 0) -> None:
            raise DmError(errno.EBUSY, "in use")

    monkeypatch.setattr(pools, "block_number", lambda path: DeviceNumber(8, 99))
    monkeypatch.setattr(pools, "_check_cache", lambda dm, cache, device: 1000)
    kernel.refuse_load = "vcache-pool"
    with pytest.raises(pools.PoolError, match="no pool on /dev/x: refused; .*; removing the empty "
                                              "device new also failed: in use"):
        pools.create(as_dm(Stubborn(kernel)), "new", "/dev/x", None)


def test_pools_for_people() -> None:
    member = {"name": "lv", "device": "254:1", "volume": 3, "mode": "writeback", "state": "dirty",
              "dirty_bytes": 5 << 20, "cache_errors": 0}
    text = tables.pools([{
        "name": "fast", "device": "254:0", "cache_device": "nvme0n1", "state": "ok",
        "chunk_bytes": MIB, "size_bytes": 62 * MIB, "free_bytes": 60 * MIB, "used_bytes": 2 * MIB,
        "dirty_bytes": 2 * MIB, "lanes_bytes": [40 * MIB, 22 * MIB], "volumes": 1,
        "members": [member], "vssds": ["vm1", "vm2"]}])
    assert [line.split()[-3:] for line in text.splitlines()[:2]] == [
        ["LANES", "VOLUMES", "VSSDS"], ["2", "1", "2"]]
    assert "nvme0n1" in text and "62.0 MiB" in text and "5.0 MiB" in text
    assert tables.pools([]) == "no pools"
