# SPDX-License-Identifier: Apache-2.0
"""Boot the box and run the tests of this folder in it.

``python -m tests.host [--kernel 6.12] [pytest arguments]``
"""

import argparse
import sys

from tests.box import Box, boxed
from tests.box.guest import image
from tests.box.kernels import default


def main() -> int:
    """Run the tests, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.host", description=__doc__)
    parser.add_argument("--kernel", default=default(),
                        help="release or its beginning (%(default)s)")
    parser.add_argument("--timeout", type=float, default=3200, help="seconds (%(default)s)")
    options, arguments = parser.parse_known_args()
    # Compile on the host, which takes a tenth of the time.
    image.build(options.kernel)
    # On a machine without spare processors, the two processors of a box wait for each other.
    # Beside another box, everything took three times as long with two.
    return boxed.run(Box(kernel=options.kernel, cpus=1), "host", arguments, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
