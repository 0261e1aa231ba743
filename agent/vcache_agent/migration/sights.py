# SPDX-License-Identifier: Apache-2.0
"""What libvirt reports of the domains that migrate; called by the thread that calls libvirt."""

from typing import Any, NamedTuple

import libvirt

from vcache_agent.migration.arrivals import Arrivals
from vcache_agent.migration.departures import Departures
from vcache_agent.migration.moves import Moves, Role
from vcache_agent.migration.verdict import Sight

# Reasons of a pause that ends when the migration does.
_WAITING = frozenset({libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
                      libvirt.VIR_DOMAIN_PAUSED_POSTCOPY})
_HAS_GUEST = frozenset({libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED,
                        libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PMSUSPENDED})
_GONE = frozenset({libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID})


class State(NamedTuple):
    """A domain's state.

    :param waiting: it is paused until its migration ends
    :param job: libvirt has a job that is a migration to another host
    """

    active: bool
    waiting: bool = False
    job: bool = False


class Sights:
    """Looks at the domains that migrate."""

    def __init__(self, moves: Moves, departures: Departures, arrivals: Arrivals) -> None:
        self._moves = moves
        self._departures = departures
        self._arrivals = arrivals

    def look(self, connection: Any) -> None:
        """Look at all domains that leave or arrive.

        :raises libvirt.libvirtError: if the connection fails
        :raises OSError: if a change cannot be recorded
        """
        for domain, move in self._moves.with_role(Role.LEAVING, Role.ARRIVING).items():
            state = _state(connection, domain)
            if move.role is Role.LEAVING:
                self._departures.saw(domain, Sight(state.active, state.waiting or state.job))
            else:
                self._arrivals.saw(domain, active=state.active,
                                   landed=state.active and not state.waiting)


def _state(connection: Any, uuid: str) -> State:
    try:
        domain = connection.lookupByUUIDString(uuid)
        if not domain.isActive():
            return State(False)
        state, reason = domain.state()
        waiting = state not in _HAS_GUEST or (state == libvirt.VIR_DOMAIN_PAUSED
                                              and reason in _WAITING)
        return State(True, waiting, _migrates(domain.jobStats()))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _GONE:
            raise
        return State(False)


def _migrates(job: dict[str, Any]) -> bool:
    if job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) == libvirt.VIR_DOMAIN_JOB_NONE:
        return False
    # Other jobs of a domain are dumps and backups.
    out = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    return bool(job.get("operation", out) == out)
