# SPDX-License-Identifier: Apache-2.0
"""Boot the box in virtual time, and read its results."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import virtual
from tests.box import ssd as drive

HERE = Path(__file__).resolve().parent


def measure(folder: Path, systems: Sequence[str],
            timeout: int = 2400) -> tuple[str, list[dict[str, Any]]]:
    """Measure systems; return the kernel release and the runs.

    :param folder: folder for the load's program and the runs
    """
    folder.mkdir(parents=True, exist_ok=True)
    drive.build()
    load = folder / "load"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-static", "-o",
                    str(load), str(HERE / "load.c")], check=True)
    release, _ = virtual.built("bench-vflush")
    out = folder / "box.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.vflush.box.inside", str(load), str(out), *systems]
    virtual.run("bench-vflush", release, command, memory="3G", timeout=timeout)
    runs: list[dict[str, Any]] = json.loads(out.read_text())
    return release, runs
