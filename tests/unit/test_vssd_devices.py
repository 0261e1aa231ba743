# SPDX-License-Identifier: Apache-2.0
"""Elastic SSDs of a host and the commands for them, on a model of device mapper."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dm_model import MIB, Dm, Kernel, Killed, as_dm, host
from vcache_agent import owners, pools, report
from vcache_agent.admin_client import AgentNotRunning
from vcache_agent.boot import restore, stopping
from vcache_agent.boot.setup_file import SetupFile, VssdLine
from vcache_agent.cmd import cli, pool_cli, vssd_cli
from vcache_agent.dm import Line
from vcache_agent.pools import PoolError
from vcache_agent.store import Store
from vcache_agent.vssd import devices
from vcache_agent.vssd.devices import Wanted

VM1 = Wanted("vm1", "fast", 40 * MIB, 10 * MIB)


@pytest.fixture
def kernel() -> Kernel:
    return host()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "agent.sqlite")
    yield found
    found.close()


def test_an_elastic_ssd_is_made_in_whole_blocks(kernel: Kernel, store: Store) -> None:
    made = devices.create(as_dm(Dm(kernel)), store, Wanted("vm1", "fast", 40 * MIB - 1, 1,
                                                           persist=True))
    (line,) = kernel.devices["vm1"].live
    assert line == Line(0, 40 * 2048, "vcache-vssd",
                        f"{kernel.devices['fast'].number} 1 1 1 persist")
    assert kernel.devices["vm1"].uuid == "VCACHE-VSSD-vm1"
    assert (made.most, made.quota, made.persist, made.settled) == (40, 1, True, True)
    assert store.volumes("fast") == {"VCACHE-VSSD-vm1": 1}


def test_volumes_are_not_shared(kernel: Kernel, store: Store) -> None:
    """Not with another elastic SSD, one that is not active, a device, or what is in the pool."""
    dm = as_dm(Dm(kernel))
    store.remember_volume("fast", "LVM-other", 2)
    kernel.volumes[3] = 0
    made = [devices.create(dm, store, Wanted(name, "fast", MIB, MIB)).volume
            for name in ("vm1", "vm2")]
    assert made == [1, 4]
    with pytest.raises(PoolError, match="volume 4 of pool fast belongs to another device"):
        devices.create(dm, store, Wanted("vm3", "fast", MIB, MIB, volume=4))
    assert devices.volumes(dm, pools.pool(dm, "fast")) == {1, 4}
    info = dm.info("lv")
    assert info is not None
    assert owners.allocate(dm, store, pools.pool(dm, "fast"), info, None, origin="/x") == 3


@pytest.mark.parametrize(("wanted", "problem"), [
    (Wanted("a/b", "fast", MIB, MIB), "must have 1 to"),
    (Wanted("vm1", "slow", MIB, MIB), "slow is not a pool"),
    (Wanted("vm1", "fast", MIB, 2 * MIB), "at most the maximum"),
    (Wanted("vm1", "fast", 0, 0), "greater than 0"),
    (Wanted("lv", "fast", MIB, MIB), "already exists and is another one"),
    (Wanted("vm0", "fast", 80 * MIB, MIB), "already exists and is another one"),
    (Wanted("vm0", "fast", 40 * MIB, MIB, persist=True), "already exists and is another one")])
def test_what_cannot_be_made(kernel: Kernel, store: Store, wanted: Wanted, problem: str) -> None:
    dm = as_dm(Dm(kernel))
    devices.create(dm, store, Wanted("vm0", "fast", 40 * MIB, 10 * MIB))
    with pytest.raises(PoolError, match=problem):
        devices.create(dm, store, wanted)


def test_a_refused_table_leaves_nothing(kernel: Kernel, store: Store) -> None:
    kernel.refuse_load = "vcache-vssd"
    with pytest.raises(PoolError, match="vm1: refused"):
        devices.create(as_dm(Dm(kernel)), store, VM1)
    assert "vm1" not in kernel.devices


def test_a_command_that_was_killed_is_repeated(store: Store) -> None:
    for at in itertools.count(1):
        kernel = host()
        with contextlib.suppress(Killed):
            devices.create(as_dm(Dm(kernel, at)), store, VM1)
            break
        made = devices.create(as_dm(Dm(kernel)), store, VM1)
        assert (made.volume, made.quota) == (1, 10)
    assert at > 5


def test_one_that_is_there_keeps_its_size(kernel: Kernel, store: Store) -> None:
    """The agent may have changed it since the file was written."""
    dm = as_dm(Dm(kernel))
    devices.create(dm, store, VM1)
    said = restore.start_vssd(dm, lambda: contextlib.nullcontext(store),
                              VssdLine("vm1", "fast", 40 * MIB, 30 * MIB, 1))
    assert said == "elastic SSD vm1 is active"
    assert devices.find(dm, "vm1").quota == 10


def test_the_stop_of_a_host_removes_it_before_its_pool(kernel: Kernel, store: Store,
                                                       tmp_path: Path) -> None:
    dm = as_dm(Dm(kernel))
    devices.create(dm, store, VM1)
    devices.create(dm, store, Wanted("vm2", "fast", MIB, MIB))
    kernel.devices["vm2"].users = 1
    said: list[str] = []
    stopping.stop(dm, tmp_path / "agent.sqlite", said.append)
    assert "vm1" not in kernel.devices
    assert {"vm2", "fast"} <= kernel.devices.keys()
    kernel.devices["vm2"].users = 0
    stopping.stop(dm, tmp_path / "agent.sqlite", said.append)
    assert "fast" not in kernel.devices
    assert said == ["elastic SSD vm1 is stopped", "vm2 is in use and stays",
                    "elastic SSD vm2 is stopped", "pool fast is stopped"]


class Agent:
    """The agent's socket: resizes in the model at once."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.asked, self.forced, self.runs = kernel, list[Any](), 0, True

    def ask(self, socket: Path, request: dict[str, Any]) -> dict[str, Any]:
        if not self.runs:
            raise AgentNotRunning("not running")
        self.asked.append(request)
        if request["op"] == "vssd-set":
            blocks = -(-request["size"] // MIB)
            device = self.kernel.devices[request["name"]]
            words = device.live[0].arguments.split()
            self.forced = max(int(words[2]) - blocks, 0)
            device.live = (device.live[0]._replace(
                arguments=" ".join([*words[:2], str(blocks), *words[3:]])),)
            return {"size": blocks * MIB}
        return {"guests": {name: {
            "domain": "instance-1", "uuid": "u", "disk": "vdb", "state": "present", "problem": "",
            "note": "", "guaranteed_bytes": 0, "told_bytes": MIB, "busy": False,
            "seconds_left": None,
            "forced_bytes": self.forced * MIB} for name in self.kernel.devices}}


@pytest.fixture
def agent(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Agent:
    found = Agent(kernel)
    monkeypatch.setattr(vssd_cli, "ask", found.ask)
    monkeypatch.setattr(pool_cli, "mapper", lambda: contextlib.nullcontext(Dm(kernel)))
    return found


def test_the_commands(kernel: Kernel, agent: Agent, tmp_path: Path,
                      capsys: pytest.CaptureFixture[str]) -> None:
    state, setup = str(tmp_path / "agent.sqlite"), tmp_path / "setup.conf"

    def vssd(*words: str) -> str:
        assert cli.main(["vssd", *words]) == 0
        return capsys.readouterr().out

    recorded = ("--setup", str(setup))
    assert vssd("create", "vm1", "fast", "--max", "40M", "--size", "10M", "--persist", "--state",
                state, *recorded) == (
        "elastic SSD vm1: 10.0 MiB of at most 40.0 MiB, volume 1 of pool fast\n")
    (entry,) = SetupFile(setup).entries
    assert entry.value == VssdLine("vm1", "fast", 40 * MIB, 10 * MIB, 1, persist=True)
    assert vssd("resize", "vm1", "4M", "--deadline", "5", *recorded) == (
        "elastic SSD vm1: 4.0 MiB, was 10.0 MiB; 6.0 MiB were taken by force\n")
    assert {"op": "vssd-set", "name": "vm1", "size": 4 * MIB, "seconds": 5.0} in agent.asked
    (entry,) = SetupFile(setup).entries
    assert entry.value == VssdLine("vm1", "fast", 40 * MIB, 4 * MIB, 1, persist=True)
    assert [word for word in vssd("list").splitlines()[1].split() if word not in ("MiB", "B")] == [
        "vm1", "fast", "40.0", "4.0", "4.0", "0", "0", "yes", "instance-1", "vdb", "present",
        "settled"]
    assert "told size       1.0 MiB\n" in vssd("show", "vm1")
    assert json.loads(vssd("show", "vm1", "--json"))["guest"]["disk"] == "vdb"
    assert cli.main(["pool", "remove", "fast", "--no-setup"]) == 1
    assert "delete vm1 first" in capsys.readouterr().err
    assert vssd("delete", "vm1", "--state", state, *recorded) == "elastic SSD vm1 is deleted\n"
    assert SetupFile(setup).entries == []
    assert vssd("list") == "no elastic SSDs\n"
    store = Store(Path(state))
    assert store.volumes("fast") == {}
    store.close()


def test_without_an_agent_nothing_is_resized(kernel: Kernel, agent: Agent, tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    agent.runs = False
    assert cli.main(["vssd", "create", "vm1", "fast", "--max", "40M", "--no-setup", "--state",
                     str(tmp_path / "agent.sqlite")]) == 0
    assert cli.main(["vssd", "resize", "vm1", "4M", "--no-setup"]) == cli.EXIT_NO_AGENT
    assert devices.find(as_dm(Dm(kernel)), "vm1").quota == 40
    assert cli.main(["vssd", "list"]) == 0
    assert "unknown" in capsys.readouterr().out


def test_vcache_host_is_told(kernel: Kernel, store: Store,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    devices.create(as_dm(Dm(kernel)), store, VM1)
    monkeypatch.setattr(report, "Dm", lambda: contextlib.nullcontext(Dm(kernel)))
    monkeypatch.setattr(pools, "row", lambda pool, _members: {"name": pool.info.name})
    rows, vssds, problem = report._pools({"vm1": {"uuid": "u"}})
    assert (rows, problem) == ([{"name": "fast"}], "")
    assert vssds == [{"name": "vm1", "pool": str(kernel.devices["fast"].number), "uuid": "u",
                      "size_bytes": 10 * MIB, "max_bytes": 40 * MIB, "used_bytes": 0}]


def test_one_in_use_is_not_deleted(kernel: Kernel, store: Store) -> None:
    dm = as_dm(Dm(kernel))
    devices.create(dm, store, VM1)
    kernel.devices["vm1"].users = 1
    with pytest.raises(PoolError, match="stop the domain that has it"):
        devices.delete(dm, store, "vm1")
    with pytest.raises(PoolError, match="lv is not an elastic SSD; those of this host: vm1"):
        devices.delete(dm, store, "lv")
    assert store.volumes("fast") == {"VCACHE-VSSD-vm1": 1}


@pytest.mark.parametrize("words", [
    ("resize", "vm1", "4M", "--deadline", "3601"), ("resize", "vm1", "4M", "--deadline", "x"),
    ("resize", "vm1", "-1"), ("create", "vm1", "fast"), ("create", "vm1", "fast", "--max", "0"),
    ("create", "vm1", "fast", "--max", "1M", "--volume", "0")])
def test_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["vssd", *words])
    assert end.value.code == 2
