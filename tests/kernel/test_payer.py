# SPDX-License-Identifier: Apache-2.0
"""The cgroup whose process wrote data pays for the write of it to the origin."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern

MIB = 2048
BLOCKS = 64
BYTES = BLOCKS * 4096
#: Blocks that are apart, so that each is a request.
APART = 32


@pytest.fixture(name="payers", autouse=True)
def fixture_payers() -> Iterator[None]:
    """Let cgroups have the files of the controller io."""
    control = Path("/sys/fs/cgroup/cgroup.subtree_control")
    before = control.read_text().split()
    if "io" not in Path("/sys/fs/cgroup/cgroup.controllers").read_text().split():
        pytest.skip("the kernel has no io controller")
    control.write_text("+io")
    yield
    if "io" not in before:
        control.write_text("-io")


def paid(group: Cgroup, device: str) -> int:
    """Return the bytes written to a device that a cgroup was charged for."""
    number = os.stat(device).st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    for line in (group.path / "io.stat").read_text().splitlines():
        words = line.split()
        if words[0] == name:
            return int(dict(word.split("=") for word in words[1:]).get("wbytes", 0))
    return 0


def write(path: str) -> Callable[[], None]:
    """Return a function that writes blocks and flushes them."""
    def work() -> None:
        with Disk(path) as disk:
            for nr in range(BLOCKS):
                disk.write(nr * APART, pattern(nr, 8))
            disk.flush()
    return work


def is_clean(device: stack.Mapped) -> bool:
    return stack.cache_status(device).state == "clean"


def test_destage(origin: str, cgroup: Callable[[str], Cgroup]) -> None:
    group, other = cgroup("one"), cgroup("two")
    with stack.null_blk(64) as ssd, stack.pool(ssd) as pool, stack.cached(origin, pool) as device:
        group.run(write(device.path))
        assert stack.wait_until(lambda: is_clean(device))
        assert paid(group, origin) == BYTES
        # The last one who writes pays.
        other.run(write(device.path))
        assert stack.wait_until(lambda: is_clean(device))
        assert (paid(group, origin), paid(other, origin)) == (BYTES, BYTES)


def test_a_cgroup_that_is_gone(origin: str, cgroup: Callable[[str], Cgroup]) -> None:
    parent = cgroup("parent")
    (parent.path / "cgroup.subtree_control").write_text("+io")
    child = parent.child("child")
    with stack.null_blk(64) as ssd, stack.pool(ssd) as pool, stack.cached(origin, pool) as device:
        device.message("pause 600")
        child.run(write(device.path))
        child.path.rmdir()
        device.message("pause 0")
        assert stack.wait_until(lambda: is_clean(device))
        assert paid(parent, origin) == BYTES


def test_a_drain_is_that_of_the_host(origin: str, cgroup: Callable[[str], Cgroup]) -> None:
    group = cgroup("one")
    with stack.null_blk(64) as ssd, stack.pool(ssd) as pool, stack.cached(origin, pool) as device:
        device.message("pause 600")
        group.run(write(device.path))
        device.message("drain")
        assert stack.wait_until(lambda: is_clean(device))
        assert paid(group, origin) == 0


def test_without_a_cache(origin: str, cgroup: Callable[[str], Cgroup]) -> None:
    group = cgroup("one")
    with stack.vcache(origin) as device:
        group.run(write(device.path))
        assert paid(group, origin) == BYTES


def test_nobody_pays_if_several_tags_share_a_device(origin: str,
                                                    cgroup: Callable[[str], Cgroup]) -> None:
    group = cgroup("one")
    with stack.null_blk(64) as ssd, stack.pool(ssd) as pool, \
            stack.cached(origin, pool, scope="filesystem") as device:
        group.run(write(device.path))
        assert stack.wait_until(lambda: is_clean(device))
        assert paid(group, origin) == 0
