# SPDX-License-Identifier: Apache-2.0
"""The plugin's storage for instances, with the target, in the box."""

import subprocess

import pytest

from tests.devstack import ROOT

ONES_OWN = ROOT / ".venv"  # contains what boots the box, and the command vcache
FILES = "/run/data/vcache/instances /run/data/vcache/pool"
CACHED = "vcache-instances: vcache writeback vcache-pool: vcache-pool"


@pytest.fixture(scope="module")
def said() -> list[str]:
    # No limit here: the box has its own.
    done = subprocess.run(
        [ONES_OWN / "bin/python", "-m", "tests.box", "--timeout", "1500", "--",
         "tests/devstack/inside/storage.sh", str(ONES_OWN)], cwd=ROOT, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-6000:]
    return [line.removeprefix("== ") for line in done.stdout.splitlines()
            if line.startswith("== ")]


def of(said: list[str], moment: str) -> dict[str, str]:
    """Return the results of one inspection."""
    lines = [line.removeprefix(f"{moment}: ") for line in said if line.startswith(f"{moment}: ")]
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines)}


def test_the_file_system_is_on_a_cached_target(said):
    first = of(said, "first")
    assert first["mount"] == "/dev/mapper/vcache-instances ext4"
    assert first["owner"] == "daemon"
    assert len(first["file"]) > 64
    assert (first["tables"], first["loops"]) == (CACHED, FILES)


def test_a_second_time_changes_nothing(said):
    assert of(said, "again") == of(said, "first")


def test_after_a_start_all_is_as_before(said):
    # Including data that only the pool may have had.
    assert of(said, "restarted") == of(said, "first")


def test_nothing_is_left(said):
    for moment in ("cleaned", "end"):
        left = of(said, moment)
        assert [left["mount"], left["tables"], left["loops"]] == ["", "", ""]


def test_flush_only_has_no_pool(said):
    found = of(said, "flush-only")
    assert found["mount"] == "/dev/mapper/vcache-instances ext4"
    assert found["tables"] == "vcache-instances: vcache flush-only"
    assert found["loops"] == FILES.split()[0]


def test_another_mount_is_left_alone(said):
    index = said.index("refused")
    assert "/run/data/instances is mounted, but not from /dev/mapper/vcache-instances; unmount " \
        "it" in said[index - 1]
