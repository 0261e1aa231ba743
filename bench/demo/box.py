# SPDX-License-Identifier: Apache-2.0
"""One box of the demo, in User Mode Linux; ``python -m bench.demo`` starts it.

    python -m bench.demo.box NAME SETTINGS FOLDER KERNEL INITRD

Leaves FOLDER/PART.json of each part, also of one that fails, and the error, if there is
one, in FOLDER/NAME.error.
"""

import sys
from pathlib import Path

from tests.box import BoxError, Uml, kernels, steps

# Seconds on an idle machine, for a machine that hangs; Uml adapts them. A box takes about five
# minutes.
_LIMIT_SECONDS = 2400


def main() -> int:
    """Boot the box and measure its parts; return 0 if all of them are complete."""
    name, settings, folder, kernel, initrd = sys.argv[1:]
    error_file = Path(folder) / f"{name}.error"
    command = [sys.executable, "-m", "bench.demo.inside", "--settings", settings,
               "--kernel", kernel, "--initrd", initrd, "--folder", folder,
               "--error", str(error_file), name]
    box = Uml(memory="3G")
    try:
        status = box.run(command, timeout=_LIMIT_SECONDS).status
    except (BoxError, kernels.KernelNotFound) as error:
        if not error_file.exists():
            error_file.write_text(steps.describe(error))
        print(f"demo: {steps.describe(error)}", flush=True)
        return 1
    if status and not error_file.exists():
        error_file.write_text(f"the measurement in box {name} ended with status {status}")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
