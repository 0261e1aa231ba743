# SPDX-License-Identifier: Apache-2.0
"""Run the kernel tests in User Mode Linux or in the emulated box.

``python -m tests.kernel --uml [--debug] [--poison] [pytest arguments]``
``python -m tests.kernel [--kernel 6.12] [--cpus 1] [--poison] [pytest arguments]``
"""

import argparse
import sys

from tests.box import Box, Uml, boxed, ssd, uml
from tests.box.kernels import default
from tests.box.machine import Machine


def main() -> int:
    """Run the tests and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel", description=__doc__,
                                     allow_abbrev=False)
    parser.add_argument("--uml", action="store_true",
                        help="run in User Mode Linux, with one processor")
    parser.add_argument("--debug", action="store_true",
                        help="with --uml: the kernel that looks for our mistakes (slow)")
    parser.add_argument("--kernel", default=default(),
                        help="release or its beginning (%(default)s)")
    parser.add_argument("--cpus", type=int, default=2,
                        help="processors (%(default)s); tests marked smp need two")
    parser.add_argument("--timeout", type=float, default=3200, help="seconds (%(default)s)")
    parser.add_argument("--poison", action="store_true",
                        help="fill freed memory, so that its use shows (slower)")
    options, arguments = parser.parse_known_args()
    if options.debug and not options.uml:
        parser.error("--debug is an option of --uml; see .ci/debug-kernel for the box")
    kernel_args = ["slub_debug=FP,vc_block,kmalloc-*"] if options.poison else []
    box: Machine
    ssd.build()
    if options.uml:
        uml.build_module(options.debug)
        box = Uml(memory="2G", kernel_args=kernel_args, debug=options.debug)
    else:
        box = Box(kernel=options.kernel, cpus=options.cpus, memory="2G", kernel_args=kernel_args)
    return boxed.run(box, "kernel", arguments, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
