# SPDX-License-Identifier: Apache-2.0
"""The speed of this machine, or of User Mode Linux on it, at this moment.

User Mode Linux sees the time that the host gives to other processes as processor time of its
own. So on a busy host its processor times are too large.
"""

import statistics
import time

_ROUNDS, _STEPS = 7, 200_000


def work_ms() -> float:
    """Return the processor time of a fixed calculation in ms."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        total = 0
        for number in range(_STEPS):
            total += number
        taken.append(1000 * (time.process_time() - began))
    return statistics.median(taken)
