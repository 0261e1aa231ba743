# SPDX-License-Identifier: Apache-2.0
"""vcache-check, vcache-dump and vcache-repair on a small pool, see make_image.c."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.box.limits import limit
from tests.box.steps import at_end

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build" / "tools"
BLOCK = 4096
#: First block of the second copy of the metadata, and of the chunks.
COPY, CHUNK = 80, 16
SLOTS, TABLE, SEALS = 1, 65, (14, 15)
GOOD, DAMAGE, USAGE = 0, 1, 2


@pytest.fixture(scope="session", name="maker")
def fixture_maker() -> Path:
    subprocess.run(["make", "--no-print-directory", "tools"], cwd=REPO, check=True)
    core = [str(REPO / "native" / "core" / f"{name}.c")
            for name in ("crc32c", "index", "log", "meta", "recover", "seal")]
    program = BUILD / "make_image"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1",
                    "-o", str(program), str(REPO / "tests" / "tools" / "make_image.c"), *core],
                   check=True)
    return program


@pytest.fixture(name="clean")
def fixture_clean(maker: Path, tmp_path: Path) -> Path:
    subprocess.run([str(maker), str(tmp_path / "pool"), "clean"], check=True)
    return tmp_path / "pool"


@pytest.fixture(name="crashed")
def fixture_crashed(maker: Path, tmp_path: Path) -> Path:
    subprocess.run([str(maker), str(tmp_path / "pool"), "crashed"], check=True)
    return tmp_path / "pool"


def tool(name: str, *arguments: str | Path) -> tuple[int, str]:
    """Run a tool; return its status and output."""
    done = subprocess.run([str(BUILD / f"vcache-{name}"), *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=limit(60))
    return done.returncode, done.stdout + done.stderr


def damage(pool: Path, block: int, offset: int = 100) -> None:
    """Flip a bit of a block."""
    with pool.open("r+b") as file:
        file.seek(block * BLOCK + offset)
        byte = file.read(1)[0]
        file.seek(block * BLOCK + offset)
        file.write(bytes([byte ^ 1]))


def dump(pool: Path) -> object:
    """Return the output of vcache-dump, with the entries of all chunks."""
    status, text = tool("dump", "--json", "--entries", pool)
    assert status == GOOD, text
    return json.loads(text)


#: The damaged block, and the line that reports it.
KNOWN = {
    "superblock": ([0], "superblock 0: copy 0 is damaged"),
    "second superblock": ([COPY], "superblock 0: copy 1 is damaged"),
    "slots": ([SLOTS], "slot block 0: copy 0 is damaged"),
    "second slots": ([COPY + SLOTS + 5], "slot block 5: copy 1 is damaged"),
    "table": ([TABLE], "table block 0: copy 0 is damaged"),
    "seal": ([10 * CHUNK + SEALS[0]], "chunk 10: copy 0 of the seal is damaged"),
    "second seal": ([11 * CHUNK + SEALS[1]], "chunk 11: copy 1 of the seal is damaged"),
    "seal of reads": ([14 * CHUNK + SEALS[1]], "chunk 14: copy 1 of the seal is damaged"),
    "both seals": ([11 * CHUNK + seal for seal in SEALS], "chunk 11: the seal is lost"),
}
#: The same, with both copies damaged.
UNKNOWN = {
    "superblocks": ([0, COPY], "there is no superblock"),
    "slots": ([SLOTS, COPY + SLOTS], "slot block 0: both copies are lost"),
    "table": ([TABLE, COPY + TABLE], "table block 0: both copies are lost"),
    "record": ([12 * CHUNK], "chunk 12: the first record is damaged"),
    "data": ([10 * CHUNK + 1], "chunk 10: block 1 has damaged data of block 10 "),
}


def test_good(clean: Path) -> None:
    assert tool("check", "--data", clean) == (GOOD, "")
    before = clean.read_bytes()
    assert tool("repair", "--in-place", clean) == (GOOD, "")
    assert clean.read_bytes() == before


@pytest.mark.parametrize("case", KNOWN)
def test_known(clean: Path, case: str) -> None:
    before = dump(clean)
    blocks, line = KNOWN[case]
    for block in blocks:
        damage(clean, block)
    status, text = tool("check", clean)
    assert status == DAMAGE
    assert line in text
    assert len(text.splitlines()) == 1
    assert tool("check", "--quiet", clean) == (DAMAGE, "")
    status, text = tool("repair", "--in-place", clean)
    assert status == GOOD, text
    assert "restored" in text or "sealed from its records" in text
    assert ("LOST" in text) == (case == "both seals")
    assert tool("check", "--data", clean) == (GOOD, "")
    assert dump(clean) == before


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown(clean: Path, case: str) -> None:
    blocks, line = UNKNOWN[case]
    for block in blocks:
        damage(clean, block)
    status, text = tool("check", "--data", clean)
    assert status == DAMAGE
    assert line in text
    before = clean.read_bytes()
    assert tool("repair", "--in-place", clean)[0] == DAMAGE
    assert clean.read_bytes() == before


def test_data_is_read_only_when_asked(clean: Path) -> None:
    damage(clean, 10 * CHUNK + 1)
    assert tool("check", clean) == (GOOD, "")


def test_crashed(crashed: Path) -> None:
    status, text = tool("check", crashed)
    assert status == DAMAGE
    assert text.splitlines() == [f"{crashed}: the target found damage earlier: its flag is set"]
    damage(crashed, 12 * CHUNK + 3)
    status, text = tool("repair", "--in-place", crashed)
    assert status == GOOD, text
    assert "chunk 12: sealed from its records: 2 entries" in text
    assert "LOST: chunk 12: data of 1 entries" in text
    assert "the damage flag is cleared" in text
    assert tool("check", "--data", crashed) == (GOOD, "")


def test_output(clean: Path, tmp_path: Path) -> None:
    damage(clean, 0)
    before = clean.read_bytes()
    copy = tmp_path / "copy"
    status, text = tool("repair", "--output", copy, clean)
    assert status == GOOD, text
    assert clean.read_bytes() == before
    assert tool("check", "--data", copy) == (GOOD, "")
    assert len(copy.read_bytes()) == len(before)
    assert tool("repair", "--output", copy, clean)[0] == USAGE


def test_dump(clean: Path) -> None:
    pool = json.loads(tool("dump", "--json", clean)[1])
    assert pool["superblock"]["clean"] is True
    assert pool["superblock"]["next_seq"] == 1000
    assert [volume["name"] for volume in pool["volumes"]] == ["volume-1", "volume-2"]
    assert [(chunk["chunk"], chunk["volume"], chunk["tag"], chunk["state"])
            for chunk in pool["chunks"]] == [
        (10, 1, 1, "sealed"), (11, 1, 2, "sealed"), (12, 2, 1, "sealed"), (14, 1, 2, "reads")]
    text = tool("dump", "--entries", clean)[1]
    assert "chunk 11: volume 1, tag 2, generation 20 to 21" in text
    assert "block 90, mask 0x00, place 2, blocks 3" in text


def test_elastic_ssd(maker: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    subprocess.run([str(maker), str(pool), "vssd"], check=True)
    assert tool("check", "--data", pool) == (GOOD, "")
    before = pool.read_bytes()
    assert tool("repair", "--in-place", pool) == (GOOD, "")
    assert pool.read_bytes() == before
    found = json.loads(tool("dump", "--json", "--entries", pool)[1])
    assert found["volumes"][2]["mode"] == "vssd"
    assert [chunk for chunk in found["chunks"] if chunk["volume"] == 3] == [
        {"chunk": 15, "volume": 3, "state": "vssd", "block": 1},
        {"chunk": 16, "volume": 3, "state": "vssd", "block": 2}]
    assert "chunk 16: volume 3, vssd, block 2" in tool("dump", pool)[1]
    subprocess.run([str(maker), str(pool), "vssd-bad"], check=True)
    status, text = tool("check", pool)
    assert status == DAMAGE
    assert text.splitlines() == [
        f"{pool}: chunk 18: block 6 is behind the end of volume 3",
        f"{pool}: two chunks have block 2 of an elastic SSD"]


@pytest.mark.parametrize("name", ["check", "dump", "repair"])
def test_refused(name: str, tmp_path: Path) -> None:
    how = ["--in-place"] if name == "repair" else []
    assert tool(name)[0] == USAGE
    assert tool(name, *how, tmp_path / "none")[0] == USAGE
    assert tool(name, *how, tmp_path)[0] == USAGE
    assert tool(name, "--nonsense", *how, tmp_path)[0] == USAGE
    (tmp_path / "empty").touch()
    assert tool(name, *how, tmp_path / "empty")[0] == DAMAGE


@pytest.mark.skipif(os.geteuid() != 0, reason="loop devices are root's")
def test_in_use(clean: Path) -> None:
    loop = subprocess.run(["losetup", "--find", "--show", str(clean)],
                          capture_output=True, text=True, check=False)
    if loop.returncode:
        pytest.skip(loop.stderr)
    device = loop.stdout.strip()
    with at_end(subprocess.run, ["losetup", "--detach", device], check=True):
        assert tool("check", device) == (GOOD, "")
        held = os.open(device, os.O_RDWR | os.O_EXCL)
        with at_end(os.close, held):
            assert tool("check", device) == (GOOD, "")
            status, text = tool("repair", "--in-place", device)
            assert status == USAGE
            assert "busy" in text
        assert tool("repair", "--in-place", device) == (GOOD, "")
