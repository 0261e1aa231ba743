# SPDX-License-Identifier: Apache-2.0
"""The identity of each disk: normally its domain and its target.

Within a domain, a disk can get another target: Nova's rescue puts the instance's own
disk second, behind the rescue disk; a new bus changes the name. So the layers of a disk
tell which disk of its domain it is. A disk that finds the identity of its target taken,
such as the rescue disk, has one with a plus sign.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vcache_agent.model import DiskId, DiskState
from vcache_agent.plan.holders import Known
from vcache_agent.records import DiskRow, LayerRow


def identify(states: Iterable[DiskState], rows: Mapping[DiskId, DiskRow],
             layers: Mapping[str, LayerRow]) -> tuple[DiskState, ...]:
    """Return the disks with their identities.

    :param rows: the store's disks
    :param layers: the store's layers
    """
    known = Known(layers)
    of_domain: dict[str, list[DiskState]] = defaultdict(list)
    rows_of: dict[str, list[DiskRow]] = defaultdict(list)
    for state in states:
        of_domain[state.domain.uuid].append(state)
    for row in rows.values():
        rows_of[row.domain].append(row)
    return tuple(state for domain, disks in of_domain.items()
                 for state in _domain(disks, rows_of[domain], known))


def _domain(disks: Sequence[DiskState], rows: Sequence[DiskRow],
            known: Known) -> Iterator[DiskState]:
    """Yield the disks of one domain with their identities."""
    taken: set[DiskId] = set()
    found: dict[str, DiskId] = {}

    def take(state: DiskState, identity: DiskId) -> None:
        if state.source.target not in found and identity not in taken:
            taken.add(identity)
            found[state.source.target] = identity

    owners = {state.source.target: _owner(state, rows, known) for state in disks}
    # The layers decide; of two disks with the same layers, the one that kept its target.
    current = {row.id: row.current for row in rows}
    owned = [(state, owner) for state in disks
             if (owner := owners[state.source.target]) is not None]
    for state, owner in owned:
        if current.get(owner, owner.target) == state.source.target:
            take(state, owner)
    for state, owner in owned:
        take(state, owner)
    # A disk with new layers, for example by a block copy, is the one with its target.
    for row in sorted(rows, key=lambda row: row.released is not None):
        for state in disks:
            if row.current == state.source.target:
                take(state, row.id)
    for state in disks:
        identity = state.id
        while state.source.target not in found:
            take(state, identity)
            identity = DiskId(identity.domain, f"{identity.target}+")
        identity = found[state.source.target]
        yield state if state.id == identity else dataclasses.replace(state, identity=identity)


def _owner(state: DiskState, rows: Iterable[DiskRow], known: Known) -> DiskId | None:
    """Return the disk of the domain that the first known layer belongs to."""
    if state.unknown:
        return next((row.id for row in rows if row.path and row.path == state.source.path), None)
    locations = [state.location, *(layer.location for layer in state.backing)]
    for location in locations:
        row = known.of_domain(location.key, state.id) if location is not None else None
        if row is not None:
            return row.owner
    return None
