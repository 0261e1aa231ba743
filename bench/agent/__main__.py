# SPDX-License-Identifier: Apache-2.0
"""Measure the agent's requests to the kernel: ``python -m bench.agent``.

Boots User Mode Linux. Writes build/bench/agent.json.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.box import Uml, uml
from tests.box.machine import REPO

OUT = REPO / "build" / "bench"


def kernel_figures() -> dict[str, dict[str, float]]:
    """Run kernel.py in User Mode Linux; return its figures."""
    uml.build_module()
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        raw = Path(folder) / "kernel.json"
        done = Uml(memory="3G").run([sys.executable, "-m", "bench.agent.kernel", str(raw)],
                                    timeout=1200)
        if done.status:
            raise SystemExit(f"bench.agent: bench.agent.kernel ended with status {done.status}")
        found: dict[str, dict[str, float]] = json.loads(raw.read_text())
        return found


def main() -> int:
    """Measure and report."""
    OUT.mkdir(parents=True, exist_ok=True)
    found = kernel_figures()
    path = OUT / "agent.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, "kernel_ms": found["apart"]["dump_ms"],
                                "kernel": found}, indent=1) + "\n")
    for layout, figures in found.items():
        print(layout, ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
    print(f"bench.agent: {path.relative_to(REPO)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
