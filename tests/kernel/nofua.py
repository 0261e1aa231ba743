# SPDX-License-Identifier: Apache-2.0
"""A disk with a volatile cache and without FUA: a loop device."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.box.steps import at_end
from tests.kernel import stack


@contextlib.contextmanager
def loop_device(backing: str) -> Iterator[str]:
    """Create a loop device over a device; the kernel gives it no FUA."""
    path = stack.run("losetup", "--direct-io=on", "--find", "--show", backing).strip()
    with at_end(stack.run, "losetup", "--detach", path):
        queue = Path(f"/sys/block/{Path(path).name}/queue")
        assert (queue / "write_cache").read_text().strip() == "write back"
        assert (queue / "fua").read_text().strip() == "0"
        yield path
