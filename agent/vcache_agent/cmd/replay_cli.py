# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache replay``: what a policy would have decided on a recording."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcache_agent import tables
from vcache_agent.policies import POLICIES

if TYPE_CHECKING:
    from vcache_agent.decide.replay import Step


class ReplayError(Exception):
    """The recording cannot be replayed."""


def add_command(commands: Any) -> None:
    """Add ``replay`` to the commands of ``vcache``."""
    command = commands.add_parser(
        "replay", help="show which shares a policy would have given on a recording",
        description="Read a recording of 'vcache record' or of the agent's option record_path, "
                    "and show the shares that a policy would have given after each control "
                    "period. Neither the agent nor the kernel module is needed.")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--policy", choices=[*POLICIES], required=True)
    command.add_argument("--last", action="store_true", help="show the last period only")
    command.add_argument("--json", action="store_true", help="print one JSON object a period")
    command.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> None:
    from vcache_agent.decide.replay import replay
    from vcache_agent.observe.recording import RecordingError, read_samples

    shown = False
    step = None
    try:
        for step in replay(read_samples(arguments.file), arguments.policy):
            if not arguments.last:
                print(_text(step, as_json=arguments.json), flush=True)
                shown = True
    except (RecordingError, OSError) as error:
        raise ReplayError(str(error)) from None
    if step is None:
        raise ReplayError(f"{arguments.file}: no sample has miss-ratio curves; record at least "
                          "15 s, on a host whose devices have a pool")
    if not shown:
        print(_text(step, as_json=arguments.json))


def _text(step: "Step", *, as_json: bool) -> str:
    rows = list(_rows(step))
    if as_json:
        return json.dumps({"wall": step.sample.wall, "policy": step.policy,
                           "missed_per_s": step.missed, "tags": rows})
    return (f"{step.sample.wall:.0f}: policy {step.policy}, {step.missed:.0f} missed blocks a "
            "second\n" + tables.table(
                ("DEVICE", "TAG", "MIN", "MAX", "LANES", "BECAUSE"),
                [(row["device"], row["tag"], tables.size(row["min_bytes"]),
                  tables.size(row["max_bytes"]) if row["max_bytes"] else None,
                  row["lanes"] or None, "; ".join(row["because"])) for row in rows]) + "\n")


def _rows(step: "Step") -> Iterator[dict[str, Any]]:
    for (device, tag), share in sorted(step.decision.shares.items()):
        yield {"device": str(device), "tag": tag, "min_bytes": share.limits.least,
               "max_bytes": share.limits.most, "lanes": share.lanes.bit_count(),
               "because": list(share.reasons)}
