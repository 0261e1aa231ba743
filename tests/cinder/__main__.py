# SPDX-License-Identifier: Apache-2.0
"""Run the functional tests of this folder in User Mode Linux.

``build/openstack/venv/bin/python -m tests.cinder [pytest arguments]``
"""

import sys
import tempfile
from pathlib import Path

from tests.box import Uml, boxed, uml
from tests.box.machine import REPO, Disk

# Sparse files: the volume group, and the cache device.
_DISKS = {"group": 24 << 30, "group2": 8 << 30, "cache": 1 << 30}
_SECONDS = 3600


def main() -> int:
    """Run the tests, and return pytest's exit status."""
    uml.build_module(storage=True)
    (REPO / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cinder-", dir=REPO / "build") as folder:
        disks = []
        for name, size in _DISKS.items():
            path = Path(folder) / name
            with open(path, "wb") as file:
                file.truncate(size)
            disks.append(Disk(path, name))
        machine = Uml(memory="3G", storage=True, disks=disks)
        return boxed.run(machine, "cinder/functional", sys.argv[1:], _SECONDS)


if __name__ == "__main__":
    sys.exit(main())
