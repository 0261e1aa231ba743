# SPDX-License-Identifier: Apache-2.0
"""The data of a stopped instance returns from a file, and never replaces newer data."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.inside import run
from tests.box.steps import at_end
from tests.host import lab
from tests.host.cached import CachedFilesystem, cached_filesystem
from tests.host.lab import Agent, Vm, cli, contents, eventually
from vcache_agent.netlink.client import Client

MIB = 1 << 20
DATA = Path("/var/lib/vcache/swap")
MakeVm = Callable[..., Vm]


@pytest.fixture
def cells(agent: Agent) -> Iterator[CachedFilesystem]:
    """A file system with a cache, and an agent that copies data of stopped instances."""
    with cached_filesystem(Path("/dev/ram2"), Path("/dev/ram3"), Path("/run/persist")) as found:
        agent.configure(swap_after=1, swap_mb=64)
        with at_end(agent.configure):
            agent.start()
            yield found


def files() -> list[Path]:
    """Return the files with data."""
    return list(DATA.glob("*.data"))


def cached(cells: CachedFilesystem, tag: int) -> int:
    """Return the bytes that a tag has in the cache; a stopped instance has no tag any more."""
    with Client() as client:
        return sum(run.len for run in client.cached(cells.number, tag)) * 512


def origin_read() -> int:
    """Return the bytes that were read from the disk below the cache."""
    number = lab.number_of(Path("/dev/mapper/cells-disk"))
    return int(Path(f"/sys/dev/block/{number}/stat").read_text().split()[2]) * 512


def run_once(agent: Agent, cells: CachedFilesystem, vm: MakeVm) -> tuple[Vm, int]:
    """Start an instance that has 8 MiB in the cache; return it and its tag."""
    image = lab.image(cells.folder / "a.raw", 16)
    one = vm("persist-a", [image], {"mode": "writeback", "persist": "true"})
    one.start()
    name = ("persist-a", "sda")
    tag = eventually(lambda: agent.disks().get(name, {}).get("tag"), "its tag")
    one.io("write -P 0x5a 0 8M")
    one.io("flush")
    one.io("read 0 8M")
    assert cached(cells, tag) >= 8 * MIB
    return one, tag


def swapped_out(cells: CachedFilesystem, one: Vm, tag: int) -> None:
    """Stop the instance, and wait until its data is in a file only."""
    one.destroy()
    eventually(files, "its data is copied")
    lab.image(cells.folder / "filler", 180)
    eventually(lambda: not cached(cells, tag), "its blocks are released")


def test_data_returns_without_a_read_of_the_disk(
        agent: Agent, cells: CachedFilesystem, vm: MakeVm) -> None:
    one, tag = run_once(agent, cells, vm)
    one.destroy()
    # While the pool has space, the data stays in the cache as well.
    eventually(lambda: "kept, 8." in cli("status"), "that is said")
    (saved,) = files()
    assert saved.stat().st_mode & 0o777 == 0o600 and saved.stat().st_size >= 8 * MIB
    assert cached(cells, tag) >= 8 * MIB
    # Another one needs it.
    lab.image(cells.folder / "filler", 180)
    eventually(lambda: "swapped out, 8." in cli("status"), "that is said")
    eventually(lambda: not cached(cells, tag), "its blocks are released")
    # The file exists independent of the agent.
    agent.kill()
    agent.start()
    (cells.folder / "filler").unlink()
    run("sync")
    before = origin_read()
    one.start()
    eventually(lambda: not files(), "all is back")
    now = cells.tag(tag)
    assert now.prefetched_bytes >= 8 * MIB
    # The first reads of the guest.
    one.io("read 0 8M")
    after = cells.tag(tag)
    hits = after.stats.cache_hit_bytes - now.stats.cache_hit_bytes
    assert hits >= 0.99 * (after.stats.read_bytes - now.stats.read_bytes)
    assert origin_read() - before < 2 * MIB
    contents(cells.folder / "a.raw", "raw", {"0 8M": 0x5a})
    one.destroy()


def test_what_the_host_changed_meanwhile_is_not_replaced(
        agent: Agent, cells: CachedFilesystem, vm: MakeVm) -> None:
    one, tag = run_once(agent, cells, vm)
    swapped_out(cells, one, tag)
    run("qemu-io", "-f", "raw", "-c", "write -P 0x33 1M 1M", "-c", "discard 6M 1M",
        str(cells.folder / "a.raw"))
    run("sync")
    (cells.folder / "filler").unlink()
    one.start()
    eventually(lambda: not files(), "all is back")
    one.io("read -P 0x5a 0 1M")
    one.io("read -P 0x33 1M 1M")
    one.io("read -P 0x5a 2M 4M")
    one.io("read -P 0 6M 1M")
    one.io("read -P 0x5a 7M 1M")
    one.destroy()


def test_what_was_changed_below_the_cache_is_not_replaced(
        agent: Agent, cells: CachedFilesystem, vm: MakeVm) -> None:
    """Without the device nobody sees the write, as after a reboot: the file is not used."""
    one, tag = run_once(agent, cells, vm)
    swapped_out(cells, one, tag)
    (cells.folder / "filler").unlink()
    agent.kill()
    cells.down(detach=True)
    run("mount", "/dev/ram2", str(cells.folder))
    run("qemu-io", "-f", "raw", "-c", "write -P 0x33 0 8M", str(cells.folder / "a.raw"))
    run("umount", str(cells.folder))
    cells.up()
    since = len(agent.log())
    agent.start()
    assert files()
    one.start()
    agent.wait_for("no longer knows which of its blocks were written", since)
    eventually(lambda: not files(), "the file is removed")
    one.io("read -P 0x33 0 8M")
    one.destroy()
