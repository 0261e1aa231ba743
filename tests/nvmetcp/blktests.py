# SPDX-License-Identifier: Apache-2.0
"""Run blktests' NVMe tests against vcache-ssd: ``python -m tests.nvmetcp.blktests CHECKOUT``.

CHECKOUT is a compiled copy (``make``) of https://github.com/linux-blktests/blktests. It runs
in the box, with vcache-ssd as the external target. Writes build/nvmetcp/blktests.json, prints
the result of each test, and exits with 1 if a test failed. Needs fio, nvme-cli and udev.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from tests.box import Box
from tests.box.steps import explained
from tests.nvmetcp import build

_RESULT = re.compile(r"^(nvme/\d+) .*\[(passed|failed|not run)\]\s*$")


def results(text: str) -> dict[str, dict[str, str]]:
    """Return the outcome and the reason of each test in the output of blktests' check.

    A test may run several times, for example with a file and with a device. It failed if one of
    these failed, and it ran if one of these ran.
    """
    worst = ("failed", "passed", "not run")
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for line in text.splitlines():
        if match := _RESULT.match(line):
            name, outcome = match.groups()
            current = {"outcome": outcome, "reason": ""}
            if name not in found or worst.index(outcome) < worst.index(found[name]["outcome"]):
                found[name] = current
        elif line.startswith("    ") and current is not None and current["outcome"] != "passed":
            current["reason"] = f"{current['reason']} {line.strip()}".strip()
        elif not line.startswith(" "):
            current = None
    return found


def main() -> int:
    """Run the tests and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path, help="compiled copy of blktests")
    parser.add_argument("test", nargs="*", default=["nvme"], help="tests (default: nvme)")
    parser.add_argument("--kernel", help="release of the kernel, or its beginning")
    options = parser.parse_args()
    if not (options.checkout / "check").exists():
        parser.error(f"{options.checkout}: not a copy of blktests")
    program = build.compile_files(build.BUILD / "plain" / "vcache-ssd", "gcc",
                                  build.real_sources(), *build.PLAIN)
    log = build.BUILD / "blktests.log"
    kernel = {"kernel": options.kernel} if options.kernel else {}
    box = Box(cpus=2, memory="3G", cwd=build.REPO, allow_splats=True, **kernel)
    with log.open("wb") as said:
        box.run(["sh", str(build.HERE / "blktests.sh"), str(options.checkout.resolve()),
                 str(program), *options.test], timeout=3600, stdout=said)
    found = results(log.read_text(errors="replace"))
    (build.BUILD / "blktests.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, result in found.items():
        print(f"{name} {result['outcome']}: {result['reason']}".rstrip(": "))
    counts = [result["outcome"] for result in found.values()]
    print({outcome: counts.count(outcome) for outcome in sorted(set(counts))})
    return 1 if "failed" in counts or not counts else 0


if __name__ == "__main__":
    with explained("blktests"):
        sys.exit(main())
