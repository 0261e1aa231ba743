# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache mrc``: how many accesses of a trace a cache would miss, by its size.

The work is done by ``vcache-mrc`` (native/tools), with the code of the kernel module.
"""

import argparse
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
#: Where ``make tools`` puts it, in a source tree.
_BUILT = Path(__file__).resolve().parents[3] / "build" / "tools" / "vcache-mrc"


class MrcError(Exception):
    """There is no curve; says why."""


def add_command(commands: Any) -> None:
    """Add the command to those of ``vcache``."""
    command = commands.add_parser(
        "mrc", help="the miss-ratio curve of a trace",
        description="Print how many of a trace's accesses an LRU cache of 4 KiB blocks would "
                    "miss, by its size. The trace has a line 'ts,offset,size,op' for each request, "
                    "offset and size in bytes, op R, W or D; D is skipped.")
    command.add_argument("file", type=Path, metavar="FILE.csv[.xz]")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--samples", type=_samples, default=8192, metavar="N",
                       help="sample up to so many blocks (%(default)s)")
    group.add_argument("--rate", type=_rate, metavar="R",
                       help="sample this part of the blocks, 1 is all")
    group.add_argument("--exact", action="store_true", help="sample all blocks")
    command.add_argument("--sizes", type=_sizes, metavar="N,N,...",
                         help="sizes of the cache in 4 KiB blocks "
                              "(parts of the blocks in the trace, a thousandth to all)")
    command.add_argument("--json", action="store_true", help="for programs")
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
            f"{text!r}: must be up to {SIZES_MAX} integers from 1 to 2^52, with commas between")
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
    """Return what ``vcache-mrc`` says of a trace.

    :param path: the trace; when its name ends in ``.xz`` it is compressed
    :param options: for ``vcache-mrc``
    :raises MrcError: when it cannot be read, or is no trace
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
        raise MrcError(f"{path}: must be a whole .xz file: {error}") from error
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
        raise MrcError("the program vcache-mrc is not there: make tools builds it into "
                       "build/tools, install it into a folder of PATH")
    return found


def _feed(command: list[str], pieces: Iterator[bytes]) -> tuple[int, bytes, bytes]:
    """Run a command with input that comes in pieces. It prints little, and at the end."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            for piece in pieces:
                process.stdin.write(piece)
        except BrokenPipeError:
            pass  # it has ended, and says why
        except BaseException:
            process.kill()
            raise
        out, said = process.communicate()
        return process.returncode, out, said
