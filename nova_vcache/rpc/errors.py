# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between vcache-api and a host.

The first three cross the bus: oslo.messaging makes them again on the other side, since
this module is in the transport's ``allowed_remote_exmods``.
"""


class HostError(Exception):
    """A host could not do what was asked; the text says why."""


class InstanceNotHere(HostError):
    """The instance is not on that host (any more)."""


class AgentUnavailable(HostError):
    """vcache-host runs, but the agent on its host does not answer, or the kernel."""


class Refused(HostError):
    """The agent does not take what was asked; the text says what is allowed."""


class HostTimeout(HostError):
    """Nobody answered for the host in time."""


class BusDown(HostError):
    """The message bus cannot be reached."""


def as_raised(error: HostError) -> HostError:
    """Return an error that has crossed the bus as it was raised there.

    oslo.messaging makes one of a class of its own of it, whose text has a traceback; its
    arguments are what they were.
    """
    kind = next((kind for kind in (InstanceNotHere, AgentUnavailable, Refused)
                 if isinstance(error, kind)), HostError)
    return kind(str(error.args[0]))
