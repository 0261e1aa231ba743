# SPDX-License-Identifier: Apache-2.0
"""Two volumes that share a pool: shares, policies, and the effect of a larger share."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.disks import mapped
from tests.box.inside import run
from tests.box.steps import at_end
from tests.host import lab
from tests.host.lab import Agent, Vm, cli, contents, eventually, tags
from vcache_agent.model import Tag

MIB = 1 << 20
MAPS = Path("/var/lib/vcache/maps")
MakeVm = Callable[..., Vm]
# The pool's chunks: 256 MiB without the one or two for metadata.
POOL_MIB = range(250, 257)


@contextlib.contextmanager
def attached(name: str, start: int, tag: int) -> Iterator[Path]:
    """Create a volume of 64 MiB, as LVM would, and attach a cache to it."""
    with mapped(name, f"0 131072 linear /dev/ram2 {start}") as path:
        run("dmsetup", "mknodes", name)
        cli("attach", name, "--pool", "lab", "--tag", str(tag))
        with at_end(cli, "detach", name):
            yield Path(path)


@pytest.fixture
def volumes(agent: Agent) -> Iterator[list[Path]]:
    """Two volumes of a pool, with tags 4001 and 4002."""
    with two_volumes() as found:
        yield found


@contextlib.contextmanager
def two_volumes(*options: str) -> Iterator[list[Path]]:
    """Create two volumes, with options for the pool."""
    cli("pool", "create", "lab", "/dev/ram3", *options)
    with at_end(cli, "pool", "remove", "lab"):
        with attached("first", 0, 4001) as first, attached("second", 131072, 4002) as second:
            yield [first, second]
            cli("policy", "set", "configured")


def of(volume: Path, tag: int) -> Tag:
    return tags(lab.number_of(volume))[tag]


def test_a_stopped_instance_gives_up_its_cache_and_has_it_back(
        agent: Agent, volumes: list[Path], vm: MakeVm) -> None:
    keeps = vm("swap-a", [volumes[0]], {"mode": "writeback", "persist": "true"})
    forgets = vm("swap-b", [volumes[1]], {"mode": "writeback"})
    for number, (one, volume) in enumerate(zip((keeps, forgets), volumes, strict=True)):
        one.start()
        eventually(lambda one=one, number=number, volume=volume:  # type: ignore[misc]
                   of(volume, 4001 + number).name.startswith(one.uuid), "its tag")
        one.io("write -P 0x5a 0 8M")
        one.io("flush")
        one.io("read 0 4M")
        contents(volume, "raw", {"0 8M": 0x5a})
    assert min(of(volumes[0], 4001).cached_bytes, of(volumes[1], 4002).cached_bytes) >= 8 * MIB
    keeps.destroy()
    forgets.destroy()
    eventually(lambda: not of(volumes[0], 4001).cached_bytes, "it is given up")
    eventually(lambda: not of(volumes[1], 4002).cached_bytes, "it is given up")
    eventually(lambda: "swapped out, 8." in cli("status"), "that is said")
    (saved,) = MAPS.glob("*.map")
    assert saved.stat().st_mode & 0o777 == 0o600
    # It exists independent of the agent.
    agent.kill()
    agent.start()
    eventually(lambda: "swapped out, 8." in cli("status"), "that is said again")
    keeps.start()
    eventually(lambda: not list(MAPS.glob("*.map")), "all is back")
    tag = of(volumes[0], 4001)
    assert tag.prefetched_bytes >= 8 * MIB
    assert not tag.prefetch_waiting_bytes
    keeps.io("read 0 8M")
    after = of(volumes[0], 4001)
    assert after.stats.cache_hit_bytes - tag.stats.cache_hit_bytes >= 8 * MIB
    contents(volumes[0], "raw", {"0 8M": 0x5a})
    # By hand: existing data is skipped.
    cli("tag", "save", "4001", "/run/saved.map")
    assert "0 B of 8." in cli("tag", "load", "4001", "/run/saved.map")


def test_a_policy_divides_the_pool_by_the_flavors(
        agent: Agent, volumes: list[Path], vm: MakeVm) -> None:
    first = vm("policy-a", [volumes[0]], {"mode": "writeback", "weight": "100"})
    second = vm("policy-b", [volumes[1]], {"mode": "writeback", "weight": "300", "max_mb": "200"})
    first.start()
    second.start()

    def most() -> list[int]:
        return [of(volumes[0], 4001).cache_max_bytes // MIB,
                of(volumes[1], 4002).cache_max_bytes // MIB]

    eventually(lambda: most() == [0, 200], "what the flavors say")
    assert json.loads(cli("policy", "show", "--json"))["policy"] == "weighted"
    cli("policy", "set", "static")
    # It is active when the command returns.
    parts = most()
    assert sum(parts) in POOL_MIB
    assert abs(parts[1] - 3 * parts[0]) <= 3
    shown = json.loads(cli("policy", "show", "--json"))
    assert (shown["policy"], shown["set"]) == ("static", True)
    assert {item["tag"]: item["cache_max_bytes"] // MIB for item in shown["tags"]
            if item["tag"] > 4000} == {4001: parts[0], 4002: parts[1]}
    assert "policy static, set by an operator" in cli("policy", "show")
    # When a tag is removed, the other gets its part.
    second.destroy()
    eventually(lambda: most()[0] in POOL_MIB, "all of it")


def test_what_a_tag_would_gain_from_a_cache(
        agent: Agent, volumes: list[Path], vm: MakeVm) -> None:
    one = vm("curve", [volumes[0]], {"mode": "writeback"})
    one.start()
    eventually(lambda: of(volumes[0], 4001).name.startswith(one.uuid), "its tag")
    before = json.loads(cli("tag", "curve", "4001", "--json"))
    one.io("write 0 8M")
    for _ in range(2):
        one.io("read 0 8M")
    found = json.loads(cli("tag", "curve", "4001", "--json"))
    assert found["writes"] - before["writes"] == 2048
    assert found["reads"] - before["reads"] == 4096
    largest = found["sizes"][-1]
    assert largest["read_misses"] < before["reads"] + 100
    # With a cache of half the size, no read would have been a hit; with the full size, all.
    half = next(item for item in found["sizes"] if item["blocks"] * 2 >= largest["blocks"])
    assert half["read_misses"] > largest["read_misses"] + 4000
    assert "READ-MISSES" in cli("tag", "curve", "4001")


def test_a_dedicated_instance_has_a_lane_of_the_pool_and_the_next_one_is_told(
        agent: Agent, vm: MakeVm) -> None:
    with two_volumes("--lanes", "2") as volumes:
        first = vm("lane-a", [volumes[0]], {"mode": "writeback", "isolation": "dedicated"})
        second = vm("lane-b", [volumes[1]], {"mode": "writeback", "isolation": "dedicated"})
        first.start()
        eventually(lambda: of(volumes[0], 4001).cache_lanes == 2, "its lane")
        second.start()
        eventually(lambda: of(volumes[1], 4002).name.startswith(second.uuid), "its tag")
        assert of(volumes[1], 4002).cache_lanes == 0
        notes = {domain: row["note"] for (domain, _), row in agent.disks().items()}
        assert "no free lane" in notes["lane-b"] and not notes["lane-a"]
        (pool,) = json.loads(cli("pool", "list", "--json"))["pools"]
        for one in (first, second):
            one.io("write -P 0x5a 0 48M")
            one.io("flush")
        alone, shares = of(volumes[0], 4001), of(volumes[1], 4002)
        assert 40 * MIB <= alone.cached_bytes == alone.cache_own_bytes <= pool["lanes_bytes"][1]
        assert shares.cached_bytes >= 40 * MIB and shares.cache_own_bytes == 0
        # The lane is available to the other tag as soon as it is free.
        first.destroy()
        eventually(lambda: of(volumes[1], 4002).cache_lanes == 2, "the lane")
        second.destroy()
        eventually(lambda: of(volumes[1], 4002).cache_lanes == 0, "it is everybody's again")
