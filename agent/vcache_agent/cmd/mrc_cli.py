# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache mrc``: the miss-ratio curve of a trace.

It runs the program ``vcache-mrc`` (native/tools), which uses the kernel module's code.
"""

import argparse
import contextlib
import json
import lzma
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcache_agent import tables
from vcache_agent.model import BLOCK_BYTES

SAMPLES = (16, 1 << 28)
RATE = (1e-9, 1.0)
SIZES_MAX, BLOCKS_MAX = 4096, 1 << 52

_PIECE = 1 << 20
#: Path of ``vcache-mrc`` after ``make tools`` in a source tree.
_BUILT = Path(__file__).resolve().parents[3] / "build" / "tools" / "vcache-mrc"


class MrcError(Exception):
    """The curve could not be computed."""


def add_command(commands: Any) -> None:
    """Add ``mrc`` to the commands of ``vcache``."""
    command = commands.add_parser(
        "mrc", help="compute the miss-ratio curve of a trace",
        description="Print how many accesses of a trace an LRU cache of 4 KiB blocks would miss, "
                    "for several cache sizes. The trace has one line 'ts,offset,size,op' for each "
                    "request: offset and size in bytes, op is R, W or D. D is ignored.")
    command.add_argument("file", type=Path, metavar="FILE.csv[.xz]")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--samples", type=_samples, default=8192, metavar="N",
                       help="sample at most N blocks (%(default)s)")
    group.add_argument("--rate", type=_rate, metavar="R",
                       help="sample this fraction of the blocks, from 1e-9 to 1")
    group.add_argument("--exact", action="store_true", help="sample all blocks")
    command.add_argument("--sizes", type=_sizes, metavar="N,N,...",
                         help="cache sizes in 4 KiB blocks (by default 0.1 %% to 100 %% of the "
                              "blocks in the trace)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_mrc)


def _samples(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not SAMPLES[0] <= int(text[:11]) <= SAMPLES[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be an integer from {SAMPLES[0]} to {SAMPLES[1]}")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0
    if not RATE[0] <= rate <= RATE[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number from {RATE[0]} to 1")
    return rate


def _sizes(text: str) -> list[int]:
    parts = text.split(",")
    good = all(part.isascii() and part.isdigit() and 1 <= int(part[:17]) <= BLOCKS_MAX
               for part in parts)
    if not good or len(parts) > SIZES_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be 1 to {SIZES_MAX} integers from 1 to 2^52, separated by commas")
    return [int(part) for part in parts]


def _mrc(arguments: argparse.Namespace) -> None:
    options = ["--json"]
    if arguments.exact:
        options.append("--exact")
    elif arguments.rate is not None:
        options += ["--rate", repr(arguments.rate)]
    else:
        options += ["--samples", str(arguments.samples)]
    if arguments.sizes:
        options += ["--sizes", ",".join(map(str, sorted(set(arguments.sizes))))]
    curve = estimate(arguments.file, options)
    if arguments.sizes:
        of_size = {one["blocks"]: one for one in curve["sizes"]}
        curve["sizes"] = [of_size[blocks] for blocks in arguments.sizes]
    print(json.dumps(curve, indent=2) if arguments.json else text(curve))


def text(curve: dict[str, Any]) -> str:
    """Return a curve as a table."""
    return f"{curve['accesses']} accesses of 4 KiB\n\n" + tables.table(
        ("BLOCKS", "SIZE", "MISSES", "MISS-RATIO"),
        [(one["blocks"], tables.size(one["blocks"] * BLOCK_BYTES), one["misses"],
          f"{one['miss_ratio']:.6f}") for one in curve["sizes"]])


def estimate(path: Path, options: list[str]) -> dict[str, Any]:
    """Return the curve of a trace, as ``vcache-mrc --json`` prints it.

    :param path: the trace; a name that ends in ``.xz`` means that it is compressed
    :param options: options of ``vcache-mrc``
    :raises MrcError: if the file cannot be read or is not a trace
    """
    command = [_program(), *options]
    try:
        if path.suffix == ".xz":
            with lzma.open(path) as packed:
                status, out, said = _feed(command, iter(lambda: packed.read(_PIECE), b""))
        else:
            with path.open("rb") as file:
                done = subprocess.run(command, stdin=file, capture_output=True, check=False)
                status, out, said = done.returncode, done.stdout, done.stderr
    except OSError as error:
        raise MrcError(f"{error.filename or path}: {error.strerror}") from error
    except (lzma.LZMAError, EOFError) as error:
        raise MrcError(f"{path}: not a complete .xz file: {error}") from error
    if status:
        reason = said.decode(errors="replace").strip().removeprefix("vcache-mrc: ")
        raise MrcError(f"{path}: {reason or f'vcache-mrc ended with status {status}'}")
    curve: dict[str, Any] = json.loads(out)
    return curve


def _program() -> str:
    found = shutil.which("vcache-mrc")
    if found is None and _BUILT.is_file():
        found = str(_BUILT)
    if found is None:
        raise MrcError("the program vcache-mrc was not found: build it with 'make tools' and "
                       "install build/tools/vcache-mrc into a directory of PATH")
    return found


def _feed(command: list[str], pieces: Iterator[bytes]) -> tuple[int, bytes, bytes]:
    """Run a command and write pieces to its standard input.

    The command prints little, and only at the end, so the pipes cannot block each other.

    :return: exit status, standard output, standard error
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            for piece in pieces:
                process.stdin.write(piece)
        except BrokenPipeError:
            pass  # the program ended early; its standard error says why
        except BaseException:
            process.kill()
            # Else Popen writes what is buffered, and that error replaces this one.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            raise
        out, said = process.communicate()
        return process.returncode, out, said
