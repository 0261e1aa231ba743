# SPDX-License-Identifier: Apache-2.0
"""The program with both compilers: its command line, start and exit."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.box.limits import limit
from tests.nvmetcp import build
from tests.nvmetcp.client import Queue
from tests.nvmetcp.ssd import Ssd, host


def _run(program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *options], capture_output=True, text=True, check=False,
                          timeout=limit(20))


def test_gcc_as_well() -> None:
    program = build.vcache_ssd("gcc", build.BUILD / "gcc")
    with Ssd(program) as ssd, host(ssd, hdgst=True, ddgst=True) as h:
        q = h.io()
        assert q.write(0, bytes(range(256)) * 64).status == 0
        assert q.read(0, 4).data == bytes(range(256)) * 64
        assert q.flush().status == 0


def test_crc32c_against_the_slow_way(program: Path) -> None:
    """Each length and alignment of the loop over the table, by digests of read data."""
    with Ssd(program, "--block-size", "512", "--timing", "off") as ssd:
        with host(ssd, ddgst=True) as h:
            for length in range(4, 84, 4):
                assert len(h.admin.get_log(5, length, offset=4).data) == length


@pytest.mark.parametrize(("options", "says"), [
    (["--listen", "127.0.0.1"], "--listen 127.0.0.1: must be ADDR:PORT"),
    (["--listen", "127.0.0.1:65536"], "must be ADDR:PORT"),
    (["--listen", ":4420"], "must be ADDR:PORT"),
    (["--listen", "localhost:4420"], "must be ADDR:PORT"),
    (["--listen", "::1:4420"], "must be ADDR:PORT"),
    (["--listen", "[::1:4420"], "must be ADDR:PORT"),
    (["--listen", ":"], "must be ADDR:PORT"),
    (["--size", "0"], "--size 0: must be a number of bytes"),
    (["--size", "12Q"], "must be a number of bytes"),
    (["--size", "-1"], "must be a number of bytes"),
    (["--size", "K"], "must be a number of bytes"),
    (["--size", "9999999T"], "must be a number of bytes"),
    (["--size", "99999999999999999999999999"], "must be a number of bytes"),
    (["--handles", "9"], "--handles 9: must be 1 to 8"),
    (["--personality", "Tagged"], "--personality Tagged: must be tagged or baseline"),
    (["--nand", "slc"], "--nand slc: must be tlc, jasmine, none or svd"),
    (["--mapping", "block"], "--mapping block: must be page or fast"),
    (["--tags", "0"], "--tags 0: must be 1 to 256"),
    (["--tags", "257"], "must be 1 to 256"),
    (["--buffer", "0"], "--buffer 0: must be 1 to 4096 MiB"),
    (["--buffer", "4097"], "must be 1 to 4096 MiB"),
    (["--namespaces", "0"], "--namespaces 0: must be 1 to 1024"),
    (["--namespaces", "1025"], "must be 1 to 1024"),
    (["--namespaces", "two"], "must be 1 to 1024"),
    (["--block-size", "1024"], "--block-size 1024: must be 512 or 4096"),
    (["--nqn", "disk"], "--nqn disk: must be an NVMe qualified name"),
    (["--nqn", "nqn." + "a" * 220], "must be an NVMe qualified name"),
    (["--nqn", "nqn.a b"], "must be an NVMe qualified name"),
    (["--nqn", "nqn.2014-08.org.nvmexpress.discovery"], "must be an NVMe qualified name"),
    (["--timing", "slow"], "--timing slow: must be on or off"),
    (["--flush", "sata"], "--flush sata: must be overlapped or exclusive"),
    (["--slowdown", "0"], "--slowdown 0: must be 1 to 1000"),
    (["--slowdown", "1001"], "must be 1 to 1000"),
    (["--slowdown", "1.5"], "must be 1 to 1000"),
    (["--peer-timeout", "0"], "--peer-timeout 0: must be 1 to 3600 seconds"),
    (["--image", ""], "--image '': must be the name of a file"),
    (["--image"], "requires an argument"),
    (["--unknown"], "unrecognized option"),
    (["image"], "image: not an option"),
    (["--size", "8K", "--namespaces", "3"], "--namespaces 3: must be at most 2"),
], ids=str)
def test_wrong_options(program: Path, options: list[str], says: str) -> None:
    done = _run(program, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_help(program: Path) -> None:
    done = _run(program, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("listen", "image", "size", "personality", "mapping", "nand", "tags", "buffer",
                   "namespaces", "block-size", "nqn", "timing", "flush", "slowdown",
                   "peer-timeout"):
        assert f"--{option}" in done.stdout


def test_image_that_cannot_be(program: Path, tmp_path: Path) -> None:
    done = _run(program, "--image", str(tmp_path), "--size", "1M")
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    image = tmp_path / "image"
    image.write_bytes(bytes(8192))
    done = _run(program, "--image", str(image), "--size", "1M")
    assert done.returncode == 1
    assert "another size" in done.stderr


def test_address_that_is_taken(program: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = _run(program, "--size", "1M", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert "--listen: Address already in use" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_with_hosts_connected(program: Path, how: signal.Signals) -> None:
    with Ssd(program, env={"RAM_SSD_FLUSH_US": "3000000"}) as ssd, host(ssd) as h:
        q = h.io()
        q.start(0x00, nsid=1)
        q.start(0x01, nsid=1, length=1 << 20, cdw=(0, 0, 255))
        with Queue(ssd.address) as half:
            half.send(half.icreq()[:50])
            assert ssd.end(how) == (0, "")
