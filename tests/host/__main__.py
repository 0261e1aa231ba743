# SPDX-License-Identifier: Apache-2.0
"""Run the tests of this folder in User Mode Linux or in the emulated box.

``python -m tests.host --uml [pytest arguments]``
``python -m tests.host [--kernel 6.12] [pytest arguments]``
"""

import argparse
import sys

from tests.box import Box, Uml, boxed, uml
from tests.box.guest import image
from tests.box.kernels import default
from tests.box.machine import Machine


def main() -> int:
    """Run the tests, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.host", description=__doc__)
    parser.add_argument("--uml", action="store_true", help="run in User Mode Linux")
    parser.add_argument("--kernel", default=default(),
                        help="release or its beginning (%(default)s)")
    parser.add_argument("--timeout", type=float, default=3200, help="seconds (%(default)s)")
    options, arguments = parser.parse_known_args()
    # Compile on the host, which takes a tenth of the time.
    image.build(options.kernel)
    box: Machine
    if options.uml:
        uml.build_module()
        box = Uml(memory="2G")
    else:
        # On a machine without spare processors, the two processors of a box wait for each
        # other. Beside another box, everything took three times as long with two.
        box = Box(kernel=options.kernel, cpus=1)
    return boxed.run(box, "host", arguments, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
