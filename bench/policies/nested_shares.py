# SPDX-License-Identifier: Apache-2.0
"""SymFlex, figure 10: shares of applications nested in two VMs.

The VMs have the ratio 1:2. Each has two applications, at first 1:1. Then those of the second VM
have 2:3, then the cache loses a fifth. The weights of the four tenants are those of the agent's
nested shares, and the policy is ``throughput``, on the loads of proportional.py.
"""

import statistics
from typing import Any

from bench.policies import proportional
from bench.policies.model import Library
from bench.policies.proportional import PERIODS, SETS, SIZE, Phase
from vcache_agent.decide.nested import Disk, fractions, kernel_weights

#: Weights of the VMs, of the applications in the VMs, and bytes of the cache.
STEPS = (((100, 200), (1, 1, 1, 1), SIZE), ((100, 200), (1, 1, 2, 3), SIZE),
         ((100, 200), (1, 1, 2, 3), SIZE * 4 // 5))


def phases() -> tuple[Phase, ...]:
    """Return the phases with the nested weights."""
    found = []
    for vms, applications, size in STEPS:
        disks = [Disk((f"vm{at // 2}",), weight) for at, weight in enumerate(applications)]
        weights = kernel_weights(fractions(disks, {
            (f"vm{at}",): float(weight) for at, weight in enumerate(vms)}))
        found.append((tuple(weights), SETS, size))
    return tuple(found)


def _of_vms(row: dict[str, Any]) -> float:
    """Return by how many percent the ratio of the VMs differs from 1:2."""
    each = row["per_second"]
    return 100 * abs(sum(each[2:]) / sum(each[:2]) / 2 - 1)


def measure(library: Library, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the errors from the sixth period of each phase on, of tenants and of VMs."""
    runs = [proportional.run(library, seed, phases()) for seed in seeds]
    found = proportional.summary(runs)
    late = [row for run in runs for row in run if row["period"] >= PERIODS // 2]
    return {**found, "vm_ratio_error_pct_median": statistics.median(map(_of_vms, late)),
            "vm_ratio_error_pct_worst": max(map(_of_vms, late)), "runs": runs}
