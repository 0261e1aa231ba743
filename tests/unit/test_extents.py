# SPDX-License-Identifier: Apache-2.0
"""Lists of extents: their difference, their limit, and how the executor sets them."""

import errno
import random
from collections.abc import Sequence

import pytest

from vcache_agent.extent_delta import difference
from vcache_agent.extent_limit import limit
from vcache_agent.kernel import Executor
from vcache_agent.model import DeviceNumber, Extent, Extents
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.plan.actions import DeleteTag, SetExtents

DEVICE = DeviceNumber(254, 3)
KEY = (DEVICE, 5)


def random_extents(rng: random.Random) -> Extents:
    found, at = [], 0
    for _ in range(rng.randrange(12)):
        at += rng.randrange(3)
        length = rng.randrange(1, 4)
        found.append(Extent(at, length))
        at += length
    return tuple(found)


def sectors(extents: Sequence[Extent]) -> set[int]:
    return {at for extent in extents for at in range(extent.start, extent.start + extent.length)}


@pytest.mark.parametrize("seed", range(200))
def test_a_difference_leads_from_one_list_to_the_other(seed: int) -> None:
    rng = random.Random(seed)
    before, after = random_extents(rng), random_extents(rng)
    removed, added = difference(before, after)
    assert set(removed) == set(before) - set(after)
    assert set(added) == set(after) - set(before)
    assert (removed, added) == (sorted(removed), sorted(added))
    assert (sectors(before) - sectors(removed)) | sectors(added) == sectors(after)


def test_the_largest_extents_are_kept() -> None:
    extents = (Extent(0, 3), Extent(10, 8), Extent(20, 1), Extent(30, 3), Extent(40, 9))
    assert limit(extents, 5) == (extents, 0)
    assert limit(extents, 4) == ((extents[0], extents[1], extents[3], extents[4]), 1 * 512)
    assert limit(extents, 3) == ((extents[0], extents[1], extents[4]), 4 * 512)
    assert limit(extents, 1) == ((extents[4],), 15 * 512)
    assert limit(extents, 0) == ((), 24 * 512)
    assert limit((), 0) == ((), 0)


class Kernel:
    """The extents of one tag, with the semantics of the kernel."""

    def __init__(self, *, knows_changes: bool = True) -> None:
        self.extents: Extents = ()
        self.calls: list[str] = []
        self.refuse = 0
        self._knows_changes = knows_changes

    def set_extents(self, device: DeviceNumber, tag: int, extents: Sequence[Extent]) -> None:
        assert (device, tag) == KEY
        self.calls.append(f"set {len(extents)}")
        if self.refuse:
            raise NetlinkError(self.refuse, "refused")
        self.extents = tuple(extents)

    def change_extents(self, device: DeviceNumber, tag: int, remove: Sequence[Extent],
                       add: Sequence[Extent]) -> tuple[int, int]:
        assert (device, tag) == KEY
        self.calls.append(f"change -{len(remove)} +{len(add)}")
        if not self._knows_changes:
            raise NetlinkError(errno.EOPNOTSUPP, "not supported")
        if self.refuse:
            raise NetlinkError(self.refuse, "refused")
        # Lists of whole extents are enough here.
        self.extents = tuple(sorted((set(self.extents) - set(remove)) | set(add)))
        return len(self.extents), sum(extent.length for extent in self.extents)

    def tag_del(self, device: DeviceNumber, tag: int) -> None:
        self.extents = ()


def every_16(count: int, length: int = 8) -> Extents:
    return tuple(Extent(16 * number, length) for number in range(count))


def apply(executor: Executor, kernel: Kernel, extents: Extents) -> bool:
    kernel.calls.clear()
    return executor.apply(kernel, [SetExtents(*KEY, extents)])  # type: ignore[arg-type]


def test_extents_are_set_once_and_changed_from_then_on() -> None:
    executor, kernel = Executor(), Kernel()
    apply(executor, kernel, every_16(100))
    assert kernel.calls == ["set 100"]
    grown = (*every_16(98), Extent(16 * 98, 16), Extent(5000, 8))
    apply(executor, kernel, grown)
    assert kernel.calls == ["change -2 +2"]
    assert executor.applied[KEY] == kernel.extents == grown


def test_a_difference_that_is_no_shorter_is_not_sent() -> None:
    executor, kernel = Executor(), Kernel()
    apply(executor, kernel, every_16(100))
    apply(executor, kernel, every_16(100, 4))
    assert kernel.calls == ["set 100"]
    apply(executor, kernel, ())
    assert kernel.calls == ["set 0"]
    assert kernel.extents == ()


def test_extents_that_the_kernel_has_lost_are_set_as_a_whole() -> None:
    executor, kernel = Executor(), Kernel()
    apply(executor, kernel, every_16(100))
    kernel.extents = ()
    apply(executor, kernel, every_16(100))
    assert kernel.calls == ["set 100"]
    # A discard has taken one, and another one is wanted.
    kernel.extents = kernel.extents[1:]
    apply(executor, kernel, every_16(101))
    assert kernel.calls == ["change -0 +1", "set 101"]
    assert kernel.extents == every_16(101)


def test_an_older_kernel_gets_whole_lists() -> None:
    executor, kernel = Executor(), Kernel(knows_changes=False)
    apply(executor, kernel, every_16(100))
    apply(executor, kernel, every_16(101))
    assert kernel.calls == ["change -0 +1", "set 101"]
    assert executor.applied[KEY] == kernel.extents == every_16(101)


@pytest.mark.parametrize(("code", "claimed"), [(errno.EEXIST, True), (errno.E2BIG, False)])
def test_after_a_refusal_the_next_list_is_whole(code: int, claimed: bool) -> None:
    executor, kernel = Executor(), Kernel()
    apply(executor, kernel, every_16(100))
    kernel.refuse = code
    assert apply(executor, kernel, every_16(101)) is claimed
    assert kernel.calls == ["change -0 +1"]
    assert executor.errors == {KEY: "SetExtents: refused"}
    assert KEY not in executor.applied
    kernel.refuse = 0
    apply(executor, kernel, every_16(101))
    assert kernel.calls == ["set 101"]


def test_a_tag_that_was_removed_gets_a_whole_list() -> None:
    executor, kernel = Executor(), Kernel()
    apply(executor, kernel, every_16(100))
    executor.apply(kernel, [DeleteTag(*KEY)])  # type: ignore[arg-type]
    apply(executor, kernel, every_16(101))
    assert kernel.calls == ["set 101"]
