# SPDX-License-Identifier: Apache-2.0
"""Which service-level objectives an instance meets, and why it misses others.

Two things are known of an objective: the latency of the last minute, and the verdict of the
agent about the last control period, which names a cause. An objective is missed if one of them
is above the limit. A verdict ``no-load`` is no miss: the instance does not ask for more.

The module imports only the standard library.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nova_vcache.rpc.report import MET, MISSED, UNKNOWN, ObjectiveReport

Json = Mapping[str, Any]

# By objective: the field of a disk with the measured value, and how many of its units are one
# of the objective's.
_LATENCIES = {"slo_flush_ms": ("flush_p99_us", 1000), "slo_read_us": ("read_p99_us", 1)}
_RATE = "slo_iops"

_NO_LOAD, _NO_CAUSE = "no-load", "unknown"


def objectives(specs: Json, disk: Json) -> Iterator[ObjectiveReport]:
    """Yield the objectives of a disk.

    :param specs: effective extra specs of its instance
    :param disk: from the agent's answer; without a tag it has no objectives
    """
    if disk["tag"] is None:
        return
    # An older agent has no verdicts.
    verdicts = {item["objective"]: item for item in disk.get("missed", ())}
    for name in (*_LATENCIES, _RATE):
        limit = specs.get(name)
        if limit is None:
            continue
        yield _objective(disk["disk"], name, float(limit), _measured(name, disk),
                         verdicts.get(name))


def _objective(disk: str, name: str, limit: float, now: float | None,
               verdict: Json | None) -> ObjectiveReport:
    slow = name != _RATE and now is not None and now > limit
    if slow or (verdict is not None and verdict["cause"] != _NO_LOAD):
        state = MISSED
    elif now is None or (name == _RATE and now < limit):
        # Only the agent knows whether more requests were waiting.
        state = UNKNOWN
    else:
        state = MET
    if verdict is None or state == MET:
        return ObjectiveReport(disk, name, limit, now, state,
                               _NO_CAUSE if state == MISSED else "")
    # The verdict is about another period: if only that was bad, show the value that it is about.
    return ObjectiveReport(disk, name, limit, now if slow else float(verdict["measured"]), state,
                           verdict["cause"], verdict["text"])


def _measured(name: str, disk: Json) -> float | None:
    if name == _RATE:
        value = disk.get("requests_per_s")
        return None if value is None else round(value, 3)
    field, scale = _LATENCIES[name]
    return None if disk[field] is None else round(disk[field] / scale, 6)
