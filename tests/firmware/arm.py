# SPDX-License-Identifier: Apache-2.0
"""Boot the self-test on the emulated Zynq-7000, and compare it with that of the host.

``python -m tests.firmware.arm`` builds both, prints the board's console, the
sizes and the stack, and writes build/firmware/zynq7000/selftest.json.
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.box import limits
from tests.firmware.build import BUILD, FAST, REPO, compile_files, sources

__all__ = ["LIMIT", "OUT", "Boot", "boot", "build_board", "build_host", "change", "copy_firmware",
           "differences", "main", "result", "sizes", "stack_usage"]

OUT = BUILD / "zynq7000"
#: Time limit of a boot in seconds: ten times its duration on a machine with two busy cores.
LIMIT = 120.0


class Boot(NamedTuple):
    """The result of a boot.

    :param status: exit status of the program; None: the time limit has passed
    :param lines: lines of the console
    :param errors: messages of QEMU
    """

    status: int | None
    lines: list[str]
    errors: str


def build_board(out: Path = OUT, tree: Path = REPO, *variables: str) -> Path:
    """Build the image and return its path.

    :param out: where everything goes
    :param tree: the repository, or a copy of its ``firmware``
    :param variables: of make
    :raises AssertionError: with the compiler's messages, if it has any
    """
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", str(tree / "firmware/port/zynq7000"), f"OUT={out}",
         *variables], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return out / "vcache-fw.elf"


def build_host(compiler: str, out: Path, kind: tuple[str, ...] = FAST, tree: Path = REPO) -> Path:
    """Build the same self-test as a program of the host, and return its path."""
    return compile_files(out / "selftest", compiler,
                         sources(tree, "core", "nand", "port/selftest", "port/host"), *kind,
                         tree=tree)


def copy_firmware(to: Path) -> Path:
    """Copy the firmware, so that it can be changed."""
    shutil.copytree(REPO / "firmware", to / "firmware")
    return to


def change(path: Path, old: str, new: str) -> None:
    """Break a file of a copy."""
    text = path.read_text()
    assert text.count(old) == 1, "the line to be broken is not there (any more)"
    path.write_text(text.replace(old, new))


def boot(image: Path, limit: float = LIMIT) -> Boot:
    """Run an image until it exits by semihosting, or until the time limit."""
    command = ["qemu-system-arm", "-M", "xilinx-zynq-a9", "-m", "256M", "-display", "none",
               "-monitor", "none", "-serial", "stdio", "-no-reboot",
               "-semihosting-config", "enable=on,target=native", "-kernel", str(image)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limits.limit(limit), check=False)
    except subprocess.TimeoutExpired as expired:
        # Bytes, whatever was asked for.
        output = expired.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        return Boot(None, text.splitlines(), "")
    return Boot(done.returncode, done.stdout.splitlines(), done.stderr)


def differences(host: list[str], board: list[str]) -> list[str]:
    """Return the lines that differ, without those about the port itself."""
    pairs = itertools.zip_longest(*([line for line in lines if not line.startswith("port ")]
                                    for lines in (host, board)), fillvalue="(nothing)")
    return [f"host: {a}\nboard: {b}" for a, b in pairs if a != b]


def objects(out: Path = OUT) -> list[Path]:
    """Return the linked objects; the folder may contain more."""
    linked = re.findall(r"^LOAD (\S+\.o)$", (out / "vcache-fw.map").read_text(), re.MULTILINE)
    return sorted(map(Path, linked))


def sizes(out: Path = OUT) -> dict[str, dict[str, int]]:
    """Return bytes by object, named ``folder-file``, and of the image.

    text includes constants; arena is what stands in for the NAND and the DRAM.
    """
    kinds = {"text": "text", "rodata": "text", "vectors": "text", "data": "data", "bss": "bss",
             "arena": "arena"}
    found: dict[str, dict[str, int]] = {}
    for path in [*objects(out), out / "vcache-fw.elf"]:
        done = subprocess.run(["arm-none-eabi-size", "-A", str(path)],
                              capture_output=True, text=True, check=True)
        size = found.setdefault(path.stem, dict.fromkeys(kinds.values(), 0))
        for section, value in re.findall(r"^\.(\w+)\S*\s+(\d+)\s", done.stdout, re.MULTILINE):
            if section in kinds:
                size[kinds[section]] += int(value)
    return found


def by_folder(size_of: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Add up the objects of each folder."""
    total: dict[str, dict[str, int]] = {}
    for name, size in size_of.items():
        folder = total.setdefault(name.partition("-")[0], dict.fromkeys(size, 0))
        for section, value in size.items():
            folder[section] += value
    return total


def stack_usage(out: Path = OUT) -> list[dict[str, Any]]:
    """Return each function's frame as the compiler has it, largest first."""
    rows = []
    for path in objects(out):
        usage = path.with_suffix(".su")
        for line in usage.read_text().splitlines() if usage.exists() else ():
            place, frame, kind = line.split("\t")
            rows.append({"object": path.stem, "function": place.rpartition(":")[2],
                         "bytes": int(frame), "kind": kind})
    return sorted(rows, key=lambda row: (-row["bytes"], row["object"], row["function"]))


def values(line: str) -> dict[str, int | str]:
    """Return the key=value pairs of a line; hashes stay text."""
    return {key: value if key in ("map", "nand") else int(value)
            for key, value in re.findall(r"(\w+)=(\w+)", line)}


def phases(lines: list[str]) -> list[dict[str, int | str]]:
    """Return the hashes after each phase."""
    found = []
    for line in lines:
        words = line.split()
        if words[:1] == ["phase"]:
            hashes = values(line)
            found.append({"config": words[1], "phase": words[2],
                          "map": hashes["map"], "nand": hashes["nand"]})
    return found


def result(host: list[str], board: Boot) -> dict[str, Any]:
    """Return what selftest.json has."""
    wrong = differences(host, board.lines)
    ports = [line.split() for line in board.lines if line.startswith("port ")]
    of_board = [values(" ".join(words)) for words in ports if words[1] == "zynq7000"]
    size = sizes()
    image = size.pop("vcache-fw")
    return {
        "result": "ok" if board.status == 0 and not wrong else "fail",
        "exit_status": board.status,
        "same_as_host": not wrong,
        "differences": wrong,
        "phases": phases(board.lines),
        "device_bytes": {words[1]: values(words[3])["bytes"]
                         for words in ports if words[2] == "memory"},
        "dram": {words[2]: values(" ".join(words)) for words in ports if words[1] == "dram"},
        "size": by_folder(size),
        "image": image,
        "objects": size,
        "stack": {**(of_board[0] if of_board else {}), "functions": stack_usage()},
    }


def print_sizes(report: dict[str, Any]) -> None:
    """Print the sizes as tables."""
    print(f"\n{'bytes':20}{'text':>8}{'data':>8}{'bss':>8}{'arena':>11}")
    for name, size in [*report["objects"].items(), *report["size"].items(),
                       ("image", report["image"])]:
        print(f"{name:20}{size['text']:>8}{size['data']:>8}{size['bss']:>8}{size['arena']:>11}")
    print("\nlargest frames")
    for row in report["stack"]["functions"][:10]:
        print(f"{row['bytes']:>5}  {row['object']}: {row['function']} ({row['kind']})")


def main() -> int:
    """Build, boot, compare, print; the exit status says whether all is well."""
    image = build_board()
    host = subprocess.run([build_host("gcc", BUILD / "fast")], capture_output=True, text=True,
                          timeout=limits.limit(LIMIT), check=False).stdout.splitlines()
    board = boot(image)
    print("\n".join(board.lines))
    print(board.errors, end="", file=sys.stderr)
    report = result(host, board)
    print_sizes(report)
    (OUT / "selftest.json").write_text(json.dumps(report, indent=1) + "\n")
    if board.status is None:
        print(f"\nfirmware-arm-selftest: not finished after {LIMIT:.0f} s")
    for wrong in report["differences"][:5]:
        print(f"\ndifferent\n{wrong}")
    print(f"\nfirmware-arm-selftest: {report['result']}, the hashes are "
          f"{'equal to' if report['same_as_host'] else 'DIFFERENT from'} those of the host "
          f"({len(report['phases'])} phases)")
    return 0 if report["result"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
