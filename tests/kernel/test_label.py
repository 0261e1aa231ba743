# SPDX-License-Identifier: Apache-2.0
"""Labels of volumes: which device a volume belongs to, on the cache device itself."""

from collections.abc import Iterator

import pytest

from tests.kernel import dm, stack
from tests.kernel.conftest import KernelLog


@pytest.fixture
def cache() -> Iterator[str]:
    """Give an SSD."""
    with stack.null_blk(discard=True) as path:
        yield path


def labels(pool: stack.Mapped) -> dict[int, str]:
    """Return the label of each volume."""
    lines = (line.partition(" ") for line in dm.answer(pool.name, "labels").splitlines())
    return {int(number): text for number, _, text in lines}


def test_a_label_stays_over_a_restart(cache: str, origin: str) -> None:
    with stack.null_blk() as second:
        with stack.pool(cache) as pool, stack.cached(origin, pool, 3), \
                stack.cached(second, pool, 7):
            assert labels(pool) == {3: "", 7: ""}
            pool.message("label 3 LVM-abc:123")
            pool.message("label 7 " + "x" * 127)
        with stack.pool(cache) as pool:
            assert labels(pool) == {3: "LVM-abc:123", 7: "x" * 127}
            pool.message("label 3 other")
            assert labels(pool)[3] == "other"


def test_a_new_volume_has_no_label_of_an_old_one(cache: str, origin: str) -> None:
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool, 3):
            pool.message("label 3 old")
        pool.message("drop 3 force")
        assert labels(pool) == {}
        with stack.cached(origin, pool, 4):
            assert labels(pool) == {4: ""}


@pytest.mark.parametrize(("text", "problem"), [
    ("label 9 some", "there is no such volume"),
    ("label 3", "messages are:"),
    ("label 3 a b", "messages are:"),
    ("label three a", "messages are:"),
    ("label 3 " + "x" * 128, "at most 127"),
    ("label 3 gr\u00fcn", "printable"),
    ("labels 3", "messages are:"),
])
def test_bad_labels(cache: str, origin: str, kmsg: KernelLog, text: str, problem: str) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool, 3):
        pool.message("label 3 kept")
        with pytest.raises(dm.DmError):
            pool.message(text)
        assert problem in kmsg.read()
        assert labels(pool) == {3: "kept"}


def test_many_volumes_fit_into_an_answer(cache: str) -> None:
    with stack.null_blk() as origin, stack.pool(cache) as pool:
        for number in range(1, 200):
            with stack.cached(origin, pool, number):
                pool.message(f"label {number} " + f"{number}-".ljust(127, "y"))
        found = labels(pool)
        assert len(found) == 199
        assert all(found[n].startswith(f"{n}-y") and len(found[n]) == 127 for n in found)
