# SPDX-License-Identifier: Apache-2.0
"""Boot the box and run the kernel tests in it.

``python -m tests.kernel [--kernel 6.12] [--poison] [pytest arguments]``
"""

import argparse
import sys

from tests.box import Box, ssd
from tests.box.box import BoxError, BoxTimeout
from tests.box.kernels import default


def main() -> int:
    """Run the tests and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel", description=__doc__,
                                     allow_abbrev=False)
    parser.add_argument("--kernel", default=default(),
                        help="release or its beginning (%(default)s)")
    parser.add_argument("--timeout", type=float, default=3200, help="seconds (%(default)s)")
    parser.add_argument("--poison", action="store_true",
                        help="fill freed memory, so that its use shows (slower)")
    options, arguments = parser.parse_known_args()
    box = Box(kernel=options.kernel, memory="2G",
              kernel_args=["slub_debug=FP,vc_block,kmalloc-*"] if options.poison else [])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
               "-v", "--tb=short"]
    ssd.build()
    paths = [a for a in arguments if not a.startswith("-") and "tests/" in a]
    try:
        return box.run([*command, *arguments, *([] if paths else ["tests/kernel"])],
                       timeout=options.timeout).status
    except BoxTimeout as error:
        print(error, file=sys.stderr)
        return 124
    except BoxError as error:
        print(error, file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
