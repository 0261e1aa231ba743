# SPDX-License-Identifier: Apache-2.0
"""The Linux host driver and nvme-cli, in the box, with vcache-ssd and the real firmware."""

import json
import re
import shutil
import struct
import sys

import pytest

from tests.box import Box
from tests.nvmetcp import build


def _sections(text: str) -> dict[str, str]:
    """Return the script's output by its headings."""
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _words(text: str) -> dict[str, str]:
    """Return the first two words of each line."""
    return dict(line.split()[:2] for line in text.splitlines() if len(line.split()) > 1)


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """The output of the script in the box, all commands of which must succeed."""
    if not shutil.which("nvme"):
        pytest.fail("nvme-cli is missing (make deps)")
    program = build.compile_files(build.BUILD / "plain" / "vcache-ssd", "gcc",
                                  build.real_sources(), *build.PLAIN)
    result = Box(cpus=1, memory="1G").run(
        ["sh", str(build.HERE / "linux_host.sh"), str(program), sys.executable], timeout=240)
    text = result.stdout.decode()
    assert result.status == 0, text[-3000:]
    return _sections(text)


def test_discovery(said: dict[str, str]) -> None:
    assert "subnqn:  nqn.2026-01.org.example:boxed" in said["discover"]
    assert re.search(r"traddr: +127\.0\.0\.1$", said["discover"], re.MULTILINE)


def test_namespaces_are_there(said: dict[str, str]) -> None:
    assert "/dev/nvme0n1" in said["list"]
    assert "/dev/nvme0n2" in said["list"]
    assert "nova-vcache emulated SSD" in said["list"]


def test_several_io_queues(said: dict[str, str]) -> None:
    assert "creating 2 I/O queues" in said["kernel"]


def test_cache_and_fua_are_used(said: dict[str, str]) -> None:
    queue = _words(said["queue"])
    assert queue == {"logical_block_size": "4096", "max_hw_sectors_kb": "1024",
                     "write_cache": "write", "fua": "1", "discard_max_bytes": queue[
                         "discard_max_bytes"], "write_zeroes_max_bytes": "1048576"}
    assert int(queue["discard_max_bytes"]) > 0


def test_file_system(said: dict[str, str]) -> None:
    assert "file system is right" in said["file system"]
    # ext4 trims the blocks freed since then: more than 8 MiB
    trimmed = re.search(r"\((\d+) bytes\) trimmed", said["file system"])
    assert trimmed
    assert int(trimmed[1]) >= 8 << 20


def test_commands(said: dict[str, str]) -> None:
    words = _words(said["commands"])
    assert words["written"] == words["data"]
    assert words["deallocated"] == words["zeroed"] == words["zeroes"]


def test_tagged_commands(said: dict[str, str]) -> None:
    data = _words(said["commands"])["data"]
    assert _words(said["tagged"])["read"] == data
    assert "vcacheSS" in said["tagged"]


def test_the_probe_of_the_drive(said: dict[str, str]) -> None:
    found = json.loads(said["probe"])
    (disk,) = found["disks"]
    assert (disk["name"], disk["isolation"]) == ("nvme0n1", "tagged")
    assert disk["nvme"] == {
        "nsid": 1, "cache_enabled": True, "fdp_enabled": False, "tagged": True,
        "controller": {"model": "nova-vcache emulated SSD", "volatile_cache": True,
                       "sets": False, "groups": False, "fdp": False},
        "namespace": {"nvm_set": 0, "group": 0}}
    assert found["measured"]["fua"]["p50"] > 0
    # The drive limits a FLUSH to the namespace. A busy machine may hide it.
    assert disk["flush_limited"] is not False


def _log(said: dict[str, str], lid: str) -> bytes:
    """Return a log page read by nvme-cli."""
    return bytes.fromhex("".join(said[f"log {lid}"].split()))


def test_vendor_logs(said: dict[str, str]) -> None:
    pages = {lid: _log(said, lid) for lid in ("0xc0", "0xc1", "0xc2", "0xc3")}
    assert {page[:10] for page in pages.values()} == {b"vcacheSS\1\0"}
    tags = [struct.unpack("<II12Q", pages["0xc1"][at:at + 104]) for at in (64, 224)]
    assert [tag[0] for tag in tags] == [0, 7]
    # a write, a flush and a read of one block of 4 KiB
    assert tags[1][2:7] == (1, 1, 1, 8, 8)
    # The data page of so small a flush carries what a log page would say.
    assert tags[1][9:14] == (0, 0, 1, 0, 1)
    written, absorbed = struct.unpack("<QQ", pages["0xc2"][40:56])
    host = struct.unpack("<Q", pages["0xc2"][128:136])[0]
    buffered = sum(tag[9] for tag in tags)
    assert written > 1000
    # trimmed blocks leave the buffer too
    assert 0 < host + buffered <= written - absorbed
    assert sum(struct.unpack("<256I", pages["0xc3"][64:])) > 0


def test_shares_of_tags(said: dict[str, str]) -> None:
    host, seven = json.loads(said["shares"])
    assert (host["tag"], host["weight"]) == (0, 0)
    assert (seven["tag"], seven["weight"], seven["writes"], seven["flushes"]) == (7, 300, 1, 1)
    # its flush has programmed a page, twice
    assert seven["bank_ns"] > 0


def test_smart_log(said: dict[str, str]) -> None:
    smart = dict(line.split(":", 1) for line in said["logs"].splitlines() if ":" in line)
    smart = {key.strip(): value.strip() for key, value in smart.items()}
    assert smart["available_spare"] == "100%"
    assert smart["percentage_used"] == "0%"


def test_tag_that_was_flushed_survives_a_power_cut(said: dict[str, str]) -> None:
    """The host reconnects by itself, to a process with only the durable data."""
    words = _words(said["commands"])
    cut = _words(said["power cut"])
    assert (cut["before"], cut["flushed"], cut["unflushed"]) == (
        words["data"], words["data"], words["zeroes"])


def test_kernel_saw_no_error(said: dict[str, str]) -> None:
    """Linux does not report failed discards to the caller."""
    assert "i/o error" not in said["kernel"].lower()


def test_without_digests(said: dict[str, str]) -> None:
    assert "the file is right" in said["again without digests"]
    assert _words(said["stop"])["status"] == "0"
