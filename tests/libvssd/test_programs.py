# SPDX-License-Identifier: Apache-2.0
"""Run the test programs of the library, with both compilers and their sanitizers."""

import struct
import subprocess

import pytest

from tests.libvssd import build
from vcache_guest import app_protocol
from vcache_guest.app_protocol import Forced, Grant, Reclaim, Refused, Welcome
from vcache_guest.protocol import Range

#: Seconds of fuzzing.
SECONDS = 12

_DISK = Welcome(4096, 64, "/dev/vdb")
_SEEDS: dict[str, tuple[app_protocol.Message | None, ...]] = {
    "life": (_DISK, Grant((Range(1, 5), Range(60, 4))), Reclaim(1, 2, 1000), None, None,
             Forced((Range(0, 62),)), Grant((Range(2, 2),)), Refused("no")),
    "touching": (_DISK, Grant((Range(1, 5), Range(6, 4), Range(0, 1))), Forced((Range(3, 4),))),
    "twice": (_DISK, Grant((Range(1, 5), Range(5, 4)))),
    "again": (_DISK, _DISK),
}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", [name for name in build.PROGRAMS if name.startswith("test_")])
def test_program(name: str, compiler: str) -> None:
    program = build.compile_program(name, compiler, build.BUILD / compiler)
    done = build.run(program)
    assert done.returncode == 0, done.stderr


def test_only_the_interface_is_exported() -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", str(build.library())],
                          capture_output=True, text=True, check=True)
    exported = {line.split()[2].partition("@")[0] for line in done.stdout.splitlines()
                if line.split()[1] == "T"}
    header = (build.SOURCES / "vssd.h").read_text()
    assert exported
    assert all(f"{name}(" in header for name in exported)
    needs = subprocess.run(["objdump", "-p", str(build.library())], capture_output=True, text=True,
                           check=True).stdout
    assert [line.split()[1] for line in needs.splitlines() if "NEEDED" in line] == ["libc.so.6"]


@pytest.mark.slow
def test_fuzz() -> None:
    """Messages of a daemon."""
    folder = build.BUILD / "fuzz"
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed, messages in _SEEDS.items():
        parts = [app_protocol.encode(one) if one else b"" for one in messages]
        (corpus / seed).write_bytes(b"".join(struct.pack("B", len(one)) + one for one in parts))
    program = build.compile_program("fuzz_client", "clang", folder, "-fsanitize=fuzzer")
    done = build.run(program, f"-max_total_time={SECONDS}", "-max_len=2048", "-seed=1",
                     "-print_final_stats=1", f"-artifact_prefix={folder}/", str(corpus))
    assert done.returncode == 0, done.stderr[-4000:]
    assert next(int(line.split()[-1]) for line in done.stderr.splitlines()
                if line.startswith("stat::number_of_executed_units")) > 10_000
