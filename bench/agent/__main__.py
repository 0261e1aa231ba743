# SPDX-License-Identifier: Apache-2.0
"""Measure the agent: ``python -m bench.agent``.

Boots User Mode Linux, once for each part. Writes build/bench/agent.json.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.agent.speed import work_ms
from tests.box import Uml, uml
from tests.box.machine import REPO

OUT = REPO / "build" / "bench"
#: The largest values that the figures should have.
AIMS = {"period_ms": 50, "rss_mb": 150, "first_reconcile_s": 5, "hook_ms_p99": 50}
PARTS = ("kernel", "process")


def inside(module: str, memory: str, *arguments: str) -> Any:
    """Run a module of this package in User Mode Linux; return its figures."""
    uml.build_module()
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        raw = Path(folder) / "figures.json"
        done = Uml(memory=memory).run(
            [sys.executable, "-m", module, str(raw), *arguments], timeout=2400)
        if done.status:
            raise SystemExit(f"bench.agent: {module} ended with status {done.status}")
        return json.loads(raw.read_text())


def kernel_figures() -> dict[str, Any]:
    """Measure the agent's requests to the kernel."""
    found = inside("bench.agent.kernel", "3G")
    return {"kernel_ms": found["apart"]["dump_ms"], "kernel": found}


def process_figures(*profile: str) -> dict[str, Any]:
    """Measure the agent's process."""
    found: dict[str, Any] = inside("bench.agent.process", "6G", *profile)
    # On an idle machine, User Mode Linux is as fast as the host.
    found["slowdown"] = found["work_ms"] / work_ms()
    return {name: found[name] for name in AIMS} | {"process": found}


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("part", nargs="*", default=PARTS, help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--profile", type=Path, help="write a profile of the worker to this file")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "agent.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if "kernel" in options.part:
        found |= kernel_figures()
    if "process" in options.part:
        found |= process_figures(*([str(options.profile.resolve())] if options.profile else ()))
    path.write_text(json.dumps(found, indent=1) + "\n")
    for name, value in found.items():
        aim = f", aim: at most {AIMS[name]}" if name in AIMS else ""
        print(f"{name} {value:.1f}{aim}" if isinstance(value, float) else f"{name} {value}")
    print(f"bench.agent: {path.relative_to(REPO)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
