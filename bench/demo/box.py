# SPDX-License-Identifier: Apache-2.0
"""One box of the demo; ``python -m bench.demo`` starts it.

    python -m bench.demo.box NAME SETTINGS FOLDER KERNEL INITRD

Leaves FOLDER/PART.json of each part, also of one that fails, and the error, if there is
one, in FOLDER/NAME.error.
"""

import sys
from pathlib import Path

from tests.box import Box, BoxError, kernels, steps

# One processor: with two, TCG now and then breaks a nested VM, and the figures depend on
# which of the VMs shares a processor with what.
_CPUS = 1

# The box's processor is emulated where there is no KVM. Work that only real
# processors need (against speculation), or that burns them while there is
# nothing to do (polling for a halted guest), would only add noise.
_KERNEL_ARGS = ("mitigations=off", "kvm.halt_poll_ns=0")

# Seconds on an idle machine, for an emulator that hangs; Box adapts them. A box takes less
# than 12 minutes.
_LIMIT_SECONDS = 2400


def main() -> int:
    """Boot the box and measure its parts; return 0 if all of them are complete."""
    name, settings, folder, kernel, initrd = sys.argv[1:]
    error_file = Path(folder) / f"{name}.error"
    command = [sys.executable, "-m", "bench.demo.inside", "--settings", settings,
               "--kernel", kernel, "--initrd", initrd, "--folder", folder,
               "--error", str(error_file), name]
    box = Box(cpus=_CPUS, memory="4G", kernel_args=_KERNEL_ARGS)
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
