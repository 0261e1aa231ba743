# SPDX-License-Identifier: Apache-2.0
"""Boot a box in virtual time for each mapping, and read its results."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import virtual
from bench.svd import prepare, settings
from tests.box import ssd as drive


def _box(release: str, folder: Path, mapping: str, timeout: float) -> list[dict[str, Any]]:
    out = folder / f"{mapping}.json"
    out.unlink(missing_ok=True)
    cases = [f"{place}/{mapping}/{form}" for form in settings.FORMATS
             for place in settings.PLACES]
    virtual.run(f"bench-svd: {mapping}", release,
                [sys.executable, "-m", "bench.svd.box.inside", str(folder), str(out), *cases],
                memory="2G", timeout=timeout)
    runs: list[dict[str, Any]] = json.loads(out.read_text())
    return runs


def measure(folder: Path, boxes: int, timeout: float = 3600) -> tuple[str, list[dict[str, Any]]]:
    """Measure all cases; return the kernel release and the runs.

    :param folder: folder for prepared files and runs
    :param boxes: number of boxes at a time; no figure depends on it
    """
    drive.build()
    prepare.prepare(folder)
    release, _ = virtual.built("bench-svd")
    with ThreadPoolExecutor(boxes) as pool:
        found = list(pool.map(lambda mapping: _box(release, folder, mapping, timeout),
                              settings.MAPPINGS))
    runs = [run for part in found for run in part]
    loads = list(settings.LOADS)
    runs.sort(key=lambda run: loads.index(run["load"]))
    return release, runs
