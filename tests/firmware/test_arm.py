# SPDX-License-Identifier: Apache-2.0
"""The firmware on the emulated Zynq-7000: same results as on the host; reports of faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.firmware import arm, build

#: The line of the core that is broken: the first command reaches it.
COMMAND = "uint64_t vs_blocks(const struct vs_ssd *s)\n{\n"


@pytest.fixture(scope="module")
def host() -> list[str]:
    """Return the output of the host's program."""
    return build.run(arm.build_host("gcc", build.BUILD / "fast")).stdout.splitlines()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the firmware, built once, in which tests break files."""
    copy = arm.copy_firmware(tmp_path_factory.mktemp("arm"))
    arm.build_board(copy / "out", copy)
    return copy


class Broken:
    """The copy: one test changes it, and it is restored afterwards."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.texts: dict[Path, str] = {}

    def change(self, file: str, old: str, new: str) -> None:
        path = self.tree / "firmware" / file
        self.texts.setdefault(path, path.read_text())
        arm.change(path, old, new)

    def boot(self, limit: float = arm.LIMIT) -> arm.Boot:
        image = arm.build_board(self.tree / "out", self.tree, "WARNINGS=-w")
        return arm.boot(image, limit)


@pytest.fixture
def broken(tree: Path) -> Iterator[Broken]:
    changed = Broken(tree)
    yield changed
    for path, text in changed.texts.items():
        path.write_text(text)


def said(boot: arm.Boot, kind: str) -> dict[str, str]:
    """Return the fields of a fault's line; the program must have exited with it."""
    assert boot.status == 2, (boot.lines[-5:], boot.errors)
    assert boot.lines[-1] == "RESULT fail"
    line = next(line for line in boot.lines if line.startswith(f"fault {kind}"))
    return dict(word.split("=", 1) for word in line.replace("not ", "not-").split() if "=" in word)


def test_same_device_as_on_the_host(host: list[str]) -> None:
    image = arm.build_board()
    board = arm.boot(image)
    assert board.status == 0, (board.lines[-5:], board.errors)
    assert arm.differences(host, board.lines) == []
    assert board.lines[-1] == "RESULT ok"
    report = arm.result(host, board)
    assert report["result"] == "ok"
    assert len(report["phases"]) == 11 * len(report["device_bytes"])
    assert 0 < report["stack"]["stack_used"] < report["stack"]["stack_bytes"] / 2
    assert all(row["kind"] == "static" for row in report["stack"]["functions"])
    assert report["size"]["core"]["data"] == 0, "not to be copied from ROM"
    assert 10000 < report["size"]["core"]["text"] < report["image"]["text"]


def test_another_map_hash_of_the_host_is_noticed(host: list[str]) -> None:
    at = next(i for i, line in enumerate(host) if line.startswith("phase "))
    line = host[at].replace("map=", "map=f", 1)
    assert len(arm.differences([*host[:at], line, *host[at + 1:]], host)) == 1
    assert arm.differences(host[:-1], host)
    assert arm.differences(host, [*host, "port zynq7000 anything"]) == []


def of_config(lines: list[str], config: str) -> list[str]:
    return [line for line in lines if line.split()[1:2] == [config]]


def test_another_step_of_the_trace_is_noticed(host: list[str], broken: Broken) -> None:
    """One device is sufficient; the unchanged parts are equal."""
    config = next(line.split()[1] for line in host if line.startswith("config "))
    broken.change("port/selftest/selftest.c", "i < st_config_count", "i < 1")
    broken.change("port/selftest/selftest.c", "#define STEPS 1000u", "#define STEPS 999u")
    board = broken.boot()
    assert board.status == 0, "another trace, but nothing is wrong with it"
    wrong = arm.differences(of_config(host, config), of_config(board.lines, config))
    assert wrong
    assert not any(f"{config} fill" in line for line in wrong)
    assert all(f"{config} {phase}" in " ".join(wrong) for phase in ("load", "recovered"))


def test_sizes_beyond_the_address_space_are_refused(broken: Broken) -> None:
    """The host cannot show this: its sizes have 64 bits."""
    broken.change("core/geometry.c", "return a.used <= PTRDIFF_MAX;", "return true;")
    # Fail early: the other configurations are not needed.
    broken.change("port/selftest/selftest.c", "ok &= try_config(&st_configs[i]);",
                  "(void)try_config;")
    board = broken.boot()
    assert board.status == 1
    assert "fail dram sizes are too small for the map" in board.lines


#: Name of the fault, its statements, kind, cause, first digits of the address, access.
FAULTS = [
    ("a null write", "uint32_t *volatile p = NULL; *p = 1;",
     "data abort", "not-mapped", "00000000", "write"),
    ("a null read", "uint32_t *volatile p = NULL; (void)*(volatile uint32_t *)p;",
     "data abort", "not-mapped", "00000000", "read"),
    ("an unaligned word", "static uint32_t w[2]; uint8_t *volatile p = (uint8_t *)w + 1;"
     " *(volatile uint32_t *)p = 1;", "data abort", "alignment", "006", "write"),
    ("a write into code", "void *volatile p = (void *)(uintptr_t)vs_blocks;"
     " *(volatile uint32_t *)p = 1;", "data abort", "not-allowed", "001", "write"),
    ("a jump into data", "static uint32_t w[1]; void *volatile p = w;"
     " ((void (*)(void))(uintptr_t)p)();", "prefetch abort", "not-allowed", "006", None),
    ("a stack that is too small", "volatile uint8_t big[80000]; big[0] = 1;",
     "data abort", "not-mapped", "004", "write"),
    ("no device there", "volatile uint32_t *p = (void *)0xf8000000; *p = 1;",
     "data abort", "not-mapped", "f8000000", "write"),
]


@pytest.mark.parametrize(("statements", "kind", "cause", "address", "access"),
                         [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_fault_is_told_and_ends_the_run(broken: Broken, statements: str, kind: str, cause: str,
                                        address: str, access: str | None) -> None:
    broken.change("core/ssd.c", COMMAND, f"{COMMAND}{statements}\n")
    board = broken.boot()
    fault = said(board, kind)
    assert fault["cause"] == f'"{cause}"'
    assert fault["address"].startswith(address)
    assert fault.get("access") == access
    assert any(line.startswith("fault registers ") for line in board.lines)


def test_undefined_instruction(broken: Broken) -> None:
    broken.change("core/ssd.c", COMMAND, COMMAND + '__asm__ volatile("udf #0");\n')
    assert int(said(broken.boot(), "undefined instruction")["pc"], 16) >> 20 == 1


def test_division_by_zero(broken: Broken) -> None:
    broken.change("core/ssd.c", COMMAND,
                  f"{COMMAND}volatile uint64_t zero = 0;\nif (s->blocks / zero)\nreturn 1;\n")
    board = broken.boot()
    assert board.status == 3
    assert board.lines[-2:] == ["panic division by zero", "RESULT fail"]


def test_broken_rule_of_the_nand(broken: Broken) -> None:
    """A block is programmed without an erase."""
    broken.change("core/block.c", "\t\tstatus = s->ops->erase(",
                  "\t\tstatus = (done = now) ? VS_OK : s->ops->erase(")
    board = broken.boot()
    assert board.status == 3
    assert any(line.startswith("nand: broken rule:") for line in board.lines)


def test_a_firmware_that_hangs_ends_at_the_time_limit(broken: Broken) -> None:
    # wfi: the emulated processor hangs without keeping a real one busy.
    broken.change("core/ssd.c", COMMAND,
                  COMMAND + 'for (volatile int i = 0; ; )\n__asm__ volatile("wfi");\n')
    board = broken.boot(limit=10)
    assert board.status is None
    assert board.lines[0].startswith("selftest vcache-fw")
