# SPDX-License-Identifier: Apache-2.0
"""The generic-netlink family of the dm target "vcache"."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcache_agent.netlink.client import Client


def connect() -> "Client":
    """Return a client, for commands that seldom need one.

    pyroute2, which it is made with, takes longer to import than they take.
    """
    from vcache_agent.netlink.client import Client

    return Client()
