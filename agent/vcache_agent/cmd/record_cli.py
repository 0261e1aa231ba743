# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache record``: record samples of the kernel for some time."""

import argparse
import time
from pathlib import Path
from typing import Any

from vcache_agent.netlink import connect
from vcache_agent.netlink.errors import NetlinkError


class RecordError(Exception):
    """The file cannot be created or written."""


def add_command(commands: Any, seconds: Any) -> None:
    """Add ``record`` to the commands of ``vcache``.

    :param seconds: argparse type that converts a number of seconds
    """
    command = commands.add_parser(
        "record", help="record samples of all devices and tags to a file",
        description="Record one sample each second, with all counters of all devices and tags, "
                    "to a new file of JSON lines. Ctrl-C ends the recording; the file is then "
                    "complete. The agent need not run.")
    command.add_argument("file", type=Path, metavar="FILE", help="the file; it must not exist")
    command.add_argument("--seconds", type=seconds, default=60, metavar="N",
                         help="duration (%(default)s)")
    command.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> None:
    from vcache_agent.netlink.bulk import TagDecoder
    from vcache_agent.observe.recording import Writer
    from vcache_agent.observe.sample import take

    decoder, count = TagDecoder(), 0
    with connect() as client:
        try:
            with Writer(arguments.file) as writer:
                end = due = time.monotonic()
                end += arguments.seconds
                while due < end:
                    writer.write(take(client, decoder))
                    count += 1
                    due = max(due + 1.0, time.monotonic())
                    time.sleep(max(0.0, min(due, end) - time.monotonic()))
        except NetlinkError:
            raise
        except OSError as error:
            raise RecordError(f"{arguments.file}: {error.strerror or error}") from None
    print(f"{count} samples")
