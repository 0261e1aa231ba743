# SPDX-License-Identifier: Apache-2.0
"""Boot the box in virtual time and read what was measured in it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.box import Box, kernels
from tests.box import ssd as drive

HERE = Path(__file__).resolve().parent


def measure(folder: Path, systems: Sequence[str],
            timeout: int = 2400) -> tuple[str, list[dict[str, Any]]]:
    """Measure systems; return the kernel's release and the runs.

    :param folder: where the load's program and the runs go
    """
    folder.mkdir(parents=True, exist_ok=True)
    drive.build()
    load = folder / "load"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-static", "-o",
                    str(load), str(HERE / "load.c")], check=True)
    release = kernels.select(kernels.default())
    module = Path("build/module") / release / "dm-vcache.ko"
    if not (drive.REPO / module).exists():
        raise SystemExit(f"bench-vflush: {module} is missing: run `make module`")
    out = folder / "box.json"
    out.unlink(missing_ok=True)
    # The kernel tests its ciphers as it boots, which this mode can make fail.
    box = Box(kernel=release, icount=True, memory="3G",
              rw=[drive.REPO / "build"], kernel_args=["cryptomgr.notests"])
    command = [sys.executable, "-m", "bench.vflush.box.inside", str(load), str(out), *systems]
    result = box.run(command, timeout=timeout)
    if result.status:
        raise SystemExit(f"bench-vflush: the run in the box failed with {result.status}")
    runs: list[dict[str, Any]] = json.loads(out.read_text())
    return release, runs
