# SPDX-License-Identifier: Apache-2.0
"""Which lines of the module the tests of the debug kernel have run.

``python -m tests.kernel.coverage RELEASE``: reads what tests/kernel/conftest.py
has left in build/debug/gcov, prints a line for each file, and writes
build/debug/coverage.json.
"""

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "debug"


def lines(release: str) -> dict[str, dict[int, int]]:
    """Return how often each line of each file has run."""
    tree = ROOT / "build" / "module" / release / "tree"
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for data in sorted((OUT / "gcov").glob("*.gcda")):
            notes, = tree.glob(f"*/{data.stem}.gcno")
            shutil.copy(data, work)
            shutil.copy(notes, work)
            subprocess.run(["gcov", "--json-format", data.name], cwd=work, check=True,
                           capture_output=True)
        for report in work.glob("*.json.gz"):
            for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                path = Path(file["file"])
                # What the kernel's own headers bring is not ours.
                if path.parts[-2] not in {"core", "dm"} or not path.is_relative_to(tree):
                    continue
                name = "/".join(path.parts[-2:])
                for line in file["lines"]:
                    counts[name][line["line_number"]] += line["count"]
    return counts


def main() -> int:
    """Print and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.coverage")
    parser.add_argument("release", help="of the debug kernel")
    counts = lines(parser.parse_args().release)
    if not counts:
        print("coverage: nothing in build/debug/gcov: run `make test-debug`", file=sys.stderr)
        return 1
    total = ran = 0
    report = {}
    for name, found in sorted(counts.items()):
        missed = sorted(number for number, count in found.items() if not count)
        total += len(found)
        ran += len(found) - len(missed)
        report[name] = {"lines": len(found), "missed": missed}
        print(f"{name:24} {len(found) - len(missed):5} of {len(found):5} lines "
              f"{100 - 100 * len(missed) / len(found):6.1f} %")
    print(f"{'all':24} {ran:5} of {total:5} lines {100 * ran / total:6.1f} %")
    (OUT / "coverage.json").write_text(json.dumps(
        {"lines": total, "ran": ran, "percent": 100 * ran / total, "files": report},
        indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
