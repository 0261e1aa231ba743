# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache module replace``."""

import argparse
from pathlib import Path
from typing import Any

from vcache_agent import replace
from vcache_agent.cmd import pool_cli
from vcache_agent.dm import Dm


def add_commands(commands: Any) -> None:
    """Add the command to those of ``vcache``."""
    module = commands.add_parser("module", help="manage the kernel module")
    command = module.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "replace", help="replace the loaded module by the installed one, under running instances",
        description="Write back all dirty data, give the devices tables without the module, "
                    "replace the module, and restore pools and devices. I/O continues, but "
                    "without the caches, which are empty afterwards. If a step before the "
                    "replacement fails, everything is restored. If the command is interrupted, "
                    "run it again.")
    command.add_argument("--file", type=Path, metavar="PATH",
                         help="module to load (the one that modprobe finds, with its parameters "
                              "of /etc/modprobe.d)")
    pool_cli.add_state(command)
    command.set_defaults(run=_replace)


def _replace(arguments: argparse.Namespace) -> None:
    with Dm() as dm, pool_cli.locked_store(arguments.state) as store:
        pool_cli.say(replace.replace(dm, store, replace.KernelModule(arguments.file),
                                     arguments.state.with_suffix(".module"), pool_cli.say))
