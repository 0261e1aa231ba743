# SPDX-License-Identifier: Apache-2.0
"""Errors of calls from vcache-api to a host.

Hosts raise InstanceNotHere, AgentUnavailable and Refused. oslo.messaging raises them
again in the caller, because this module is in ``allowed_remote_exmods`` of the transport.
"""


class HostError(Exception):
    """A call to a host failed; the text says why."""


class InstanceNotHere(HostError):
    """The instance is not on that host."""


class AgentUnavailable(HostError):
    """vcache-host runs, but the agent or the kernel on its host does not answer."""


class Refused(HostError):
    """The agent rejected the request; the text names the allowed values."""


class HostTimeout(HostError):
    """The host did not answer in time."""


class BusDown(HostError):
    """The message bus is not reachable."""


def as_raised(error: HostError) -> HostError:
    """Return the original error for one that oslo.messaging has raised again.

    oslo.messaging creates a subclass whose text includes a traceback. The arguments are
    those of the original error.
    """
    kind = next((kind for kind in (InstanceNotHere, AgentUnavailable, Refused)
                 if isinstance(error, kind)), HostError)
    return kind(str(error.args[0]))
