# SPDX-License-Identifier: Apache-2.0
"""Boot the box and run the tests of this folder in it.

``python -m tests.host [--kernel 6.12] [pytest arguments]``
"""

import argparse
import sys

from tests.box import Box
from tests.box.box import BoxError, BoxTimeout
from tests.box.guest import image
from tests.box.kernels import default


def main() -> int:
    """Run the tests and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.host", description=__doc__)
    parser.add_argument("--kernel", default=default(),
                        help="release or its beginning (%(default)s)")
    parser.add_argument("--timeout", type=float, default=3200, help="seconds (%(default)s)")
    options, arguments = parser.parse_known_args()
    # Compiled here, where that takes a tenth of the time.
    image.build(options.kernel)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short"]
    paths = [a for a in arguments if not a.startswith("-") and "tests/" in a]
    try:
        # Two processors of one box wait for one another where the machine has none to
        # spare: beside another box, everything took three times as long with two.
        return Box(kernel=options.kernel, cpus=1).run(
            [*command, *arguments, *([] if paths else ["tests/host"])],
            timeout=options.timeout).status
    except BoxTimeout as error:
        print(error, file=sys.stderr)
        return 124
    except BoxError as error:
        print(error, file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
