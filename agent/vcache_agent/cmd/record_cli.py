# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache record``: record samples of the kernel for some time."""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcache_agent.admin_client import AdminError, AgentNotRunning, ask
from vcache_agent.netlink import connect
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.observe.describe import claims_of

if TYPE_CHECKING:
    from vcache_agent.observe.claim import PoolSize
    from vcache_agent.observe.sample import Sample


class RecordError(Exception):
    """The file cannot be created or written."""


def add_command(commands: Any, seconds: Any) -> None:
    """Add ``record`` to the commands of ``vcache``.

    :param seconds: argparse type that converts a number of seconds
    """
    command = commands.add_parser(
        "record", help="record samples of all devices and tags to a file",
        description="Record one sample each second, with all counters of all devices and tags, "
                    "to a new file of JSON lines, and every 15 s their miss-ratio curves and "
                    "what their flavors request. Ctrl-C ends the recording; the file is then "
                    "complete. The agent need not run; without it, the requests are those that "
                    "the kernel has. 'vcache replay' reads the file.")
    command.add_argument("file", type=Path, metavar="FILE", help="the file; it must not exist")
    command.add_argument("--seconds", type=seconds, default=60, metavar="N",
                         help="duration (%(default)s)")
    command.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> None:
    from vcache_agent.netlink.bulk import TagDecoder
    from vcache_agent.observe.recording import Writer
    from vcache_agent.observe.sample import take
    from vcache_agent.observe.survey import Surveyor

    decoder, count, surveyor = TagDecoder(), 0, Surveyor()
    with connect() as client:
        try:
            with Writer(arguments.file) as writer:
                end = due = time.monotonic()
                end += arguments.seconds
                while due < end:
                    sample = take(client, decoder)
                    survey = surveyor.survey(client, sample)
                    writer.write(sample if survey is None else _described(survey, arguments.socket))
                    count += 1
                    due = max(due + 1.0, time.monotonic())
                    time.sleep(max(0.0, min(due, end) - time.monotonic()))
        except NetlinkError:
            raise
        except OSError as error:
            raise RecordError(f"{arguments.file}: {error.strerror or error}") from None
    print(f"{count} samples")


def _described(survey: "Sample", socket: Path) -> "Sample":
    """Return a survey with the claims and the pools, from the agent or from the kernel."""
    from vcache_agent.observe import codec
    from vcache_agent.observe.claim import Claim, PoolSize

    try:
        answer = ask(socket, {"op": "claims"})
        return dataclasses.replace(
            survey, claims=codec.decode_parts(answer["claims"], Claim, "claims"),
            pools=codec.decode_parts(answer["pools"], PoolSize, "pools"))
    except (AgentNotRunning, AdminError, codec.FieldError, KeyError):
        return dataclasses.replace(survey, claims=claims_of(survey), pools=_pools(survey))


def _pools(survey: "Sample") -> "tuple[PoolSize, ...]":
    from vcache_agent import pools
    from vcache_agent.dm import Dm, DmError
    from vcache_agent.observe.claim import PoolSize

    try:
        with Dm() as dm:
            found = pools.by_number(dm, {device.pool for device in survey.devices} - {""})
    except DmError:
        return ()
    return tuple(PoolSize(number, pool.chunks * pool.chunk_bytes, tuple(pool.lanes))
                 for number, pool in sorted(found.items()))
