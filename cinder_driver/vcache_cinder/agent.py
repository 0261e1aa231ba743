# SPDX-License-Identifier: Apache-2.0
"""Client of vcache-agent's operations for volumes, with Cinder's exceptions."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cinder import exception

from vcache_agent import admin_client
from vcache_agent.admin_client import AdminError, NotHere

Ask = Callable[[Path, dict[str, Any], float], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Managed:
    """A volume that the agent manages.

    :param state: ``attached``: it has its cache; ``drained`` or ``leaving``: it does not
    :param pool: name of its pool; None: none
    :param specs: the keys ``vcache:*`` of its volume type
    """

    id: str
    device: str
    state: str
    pool: str | None
    specs: Mapping[str, str]

    @property
    def cached(self) -> bool:
        """Return whether the volume is to have its cache."""
        return self.state == "attached"


class Agent:
    """The agent of this host.

    :param socket: its socket for volumes
    :param seconds: time limit of one operation
    :param ask: sends a request
    """

    def __init__(self, socket: str, seconds: float, ask: Ask = admin_client.ask) -> None:
        self._socket = Path(socket)
        self._seconds = seconds
        self._ask = ask

    def get(self, volume: str) -> Managed | None:
        """Return a volume; None: the agent does not manage it.

        :param volume: its id
        """
        try:
            return _managed(self._request("volume-get", id=volume))
        except NotHere:
            return None

    def all(self) -> dict[str, Managed]:
        """Return all volumes that the agent manages, by their id."""
        return {row["id"]: _record(row) for row in self._request("volume-list")["volumes"]}

    def put(self, volume: str, device: str, pool: str | None,
            specs: Mapping[str, str]) -> Managed:
        """Give a volume its cache.

        :param device: path of its logical volume
        :param pool: name of the pool; None: none, only for mode flush-only
        """
        return _managed(self._request("volume-put", id=volume, device=device, pool=pool,
                                      specs=dict(specs)))

    def drain(self, volume: str) -> None:
        """Write back and remove the cache of a volume, which the agent manages further."""
        try:
            self._request("volume-drain", id=volume)
        except NotHere:
            pass

    def delete(self, volume: str, *, discard: bool = False) -> None:
        """Write back and remove the cache of a volume, and forget the volume.

        :param discard: discard what a pool has of a logical volume that no longer exists
        """
        self._request("volume-delete", id=volume, discard=discard)

    def pools(self) -> dict[str, dict[str, Any]]:
        """Return the pools of the host by name."""
        return {pool["name"]: pool for pool in self._request("volume-pools")["pools"]}

    def _request(self, operation: str, **fields: object) -> dict[str, Any]:
        """Send a request.

        :raises NotHere: if the agent does not manage the volume
        :raises VolumeBackendAPIException: if it fails
        """
        try:
            return self._ask(self._socket, {"op": operation, **fields}, self._seconds)
        except NotHere:
            raise
        except AdminError as error:
            raise exception.VolumeBackendAPIException(
                data=f"vcache-agent, {operation}: {error}") from None


def _managed(answer: Mapping[str, Any]) -> Managed:
    return _record(answer["volume"])


def _record(row: Mapping[str, Any]) -> Managed:
    return Managed(row["id"], row["device"], row["state"], row["pool"], row["specs"])
