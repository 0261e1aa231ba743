# SPDX-License-Identifier: Apache-2.0
"""Let fio write and verify for minutes: ``python -m tests.nvmetcp.soak --minutes 10``.

In the box, the Linux host driver uses both digests with the shipped vcache-ssd, on an image
file. The program is stopped and killed in between, and fio continues after the host has
reconnected. Exits with 1 if fio reads wrong data, or if a power cut loses durable data.
"""

import argparse
import sys

from tests.box import Box
from tests.box.steps import explained
from tests.nvmetcp import build


def main() -> int:
    """Run the test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10, help="minimum duration (default: 10)")
    options = parser.parse_args()
    program = build.compile_files(build.BUILD / "plain" / "vcache-ssd", "gcc",
                                  build.real_sources(), *build.PLAIN)
    seconds = int(options.minutes * 60)
    result = Box(cpus=1, memory="1G").run(
        ["sh", str(build.HERE / "soak.sh"), str(program), str(seconds)], timeout=2 * seconds + 600)
    return 1 if result.status else 0


if __name__ == "__main__":
    with explained("soak"):
        sys.exit(main())
