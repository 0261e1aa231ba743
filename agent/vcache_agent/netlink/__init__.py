# SPDX-License-Identifier: Apache-2.0
"""The generic-netlink family of the dm target "vcache"."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcache_agent.netlink.client import Client


def connect() -> "Client":
    """Return a client; import its module, and pyroute2, only now.

    The import of pyroute2 takes longer than most commands, and few commands need it.
    """
    from vcache_agent.netlink.client import Client

    return Client()
