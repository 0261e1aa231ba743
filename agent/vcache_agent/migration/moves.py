# SPDX-License-Identifier: Apache-2.0
"""The migrations of this host's domains, with a file for each that survives the agent.

A domain has one of three roles:

``leaving``
    It runs here and may migrate away. Its volumes have no data that is not on their origins.
``arriving``
    It comes from another host, whose guest still writes its volumes. Nothing of them may be
    in a cache here.
``left``
    It has migrated away, and another host writes its volumes. What the cache here has of them
    is outdated, and must go before the domain can start here again.
"""

import contextlib
import dataclasses
import enum
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from oslo_log import log as logging

from nova_vcache.extra_specs import Mode
from vcache_agent.migration.messages import (
    MESSAGE_BYTES,
    BadMessage,
    Settings,
    encode_settings,
    parse_settings,
)
from vcache_agent.migration.verdict import Departure
from vcache_agent.model import NO_LIMITS, Limits

LOG = logging.getLogger(__name__)

_SUFFIX = ".json"
_NEW = ".new"


class Role(enum.StrEnum):
    """What a domain does; see the module's description."""

    LEAVING = "leaving"
    ARRIVING = "arriving"
    LEFT = "left"


@dataclasses.dataclass(frozen=True)
class Move:
    """A migration of a domain. Times are monotonic, in seconds.

    :param since: when it was recorded; after a restart of the agent: the restart
    :param departure: with role `leaving`
    :param settings: with role `arriving`: the operator's settings at the source; None: unknown
    """

    role: Role
    since: float
    departure: Departure | None = None
    settings: Settings | None = None


class Moves:
    """All migrations, by UUID of the domain. Thread-safe.

    :param folder: folder of the files; created when it is needed
    :param copied: image files, which QEMU copies, have the limits of volumes while they leave
    :param now: returns a monotonic time in seconds
    """

    def __init__(self, folder: Path, *, copied: bool = False,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._copied = copied
        self._now = now
        self._lock = threading.Lock()
        self._moves = self._load()

    def get(self, domain: str) -> Move | None:
        """Return the migration of a domain."""
        with self._lock:
            return self._moves.get(domain)

    def with_role(self, *roles: Role) -> dict[str, Move]:
        """Return the migrations with one of some roles."""
        with self._lock:
            return {domain: move for domain, move in self._moves.items() if move.role in roles}

    def limits(self, domain: str) -> Limits:
        """Return the limits for the modes of a domain's disks."""
        move = self.get(domain)
        if move is None:
            return NO_LIMITS
        if move.role is Role.LEAVING:
            return Limits(Mode.WRITETHROUGH, Mode.WRITETHROUGH if self._copied else None,
                          "while the instance migrates to another host")
        return Limits(Mode.FLUSH_ONLY, None, "until the instance runs here")

    def leave(self, domain: str) -> None:
        """Record that a domain may migrate away.

        :raises OSError: if that cannot be written
        """
        now = self._now()
        with self._lock:
            old = self._moves.get(domain)
            departure = Departure(now) if old is None or old.departure is None else \
                dataclasses.replace(old.departure, asked=now, ready=False)
            self._set(domain, Move(Role.LEAVING, now, departure))

    def note(self, domain: str, *, ready: bool | None = None, job: bool = False,
             dirty: bool = False) -> None:
        """Record what was seen of a domain that leaves.

        :param ready: the destination was told that it may come; None: unchanged
        :param job: libvirt has a migration for it now
        :param dirty: it has data that is not on its origins
        """
        with self._lock:
            move = self._moves.get(domain)
            if move is None or move.departure is None:
                return
            old, now = move.departure, self._now()
            self._moves[domain] = dataclasses.replace(move, departure=Departure(
                old.asked, old.ready if ready is None else ready, now if job else old.job,
                now if dirty else old.dirty))

    def arrive(self, domain: str) -> None:
        """Record that a domain comes from another host.

        :raises OSError: if that cannot be written
        """
        with self._lock:
            self._set(domain, Move(Role.ARRIVING, self._now()))

    def learn(self, domain: str, settings: Settings) -> None:
        """Record the operator's settings of a domain that arrives.

        :raises OSError: if that cannot be written
        """
        with self._lock:
            move = self._moves.get(domain)
            if move is not None and move.role is Role.ARRIVING:
                self._set(domain, dataclasses.replace(move, settings=settings))

    def ended(self, domain: str) -> None:
        """Record that a domain no longer runs here."""
        with self._lock:
            move = self._moves.get(domain)
            if move is not None and move.role is Role.LEAVING:
                self._set(domain, Move(Role.LEFT, self._now()), durable=True)
            elif move is not None and move.role is Role.ARRIVING:
                # Nothing of it is in the cache here, if it was emptied.
                self._remove(domain)

    def remove(self, domain: str, *roles: Role) -> Move | None:
        """Forget the migration of a domain if it has one of some roles; return it."""
        with self._lock:
            move = self._moves.get(domain)
            if move is None or move.role not in roles:
                return None
            self._remove(domain)
            return move

    def _set(self, domain: str, move: Move, *, durable: bool = False) -> None:
        """Write the file of a domain.

        :param durable: it must survive a power cut. That is of no use while QEMU runs, which
            does not survive one either.
        """
        fields = {"role": str(move.role)}
        if move.settings is not None:
            fields |= encode_settings(move.settings)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{domain}{_SUFFIX}"
        new = path.with_name(path.name + _NEW)
        with open(new, "w", encoding="utf-8", opener=_private) as file:
            file.write(json.dumps(fields))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(new, path)
        self._moves[domain] = move

    def _remove(self, domain: str) -> None:
        self._moves.pop(domain, None)
        with contextlib.suppress(FileNotFoundError):
            (self._folder / f"{domain}{_SUFFIX}").unlink()

    def _load(self) -> dict[str, Move]:
        """Read the files; remove those that are not valid."""
        found = {}
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            try:
                found[_domain_of(path)] = self._read(path)
            except (OSError, ValueError, RecursionError) as error:
                LOG.warning("%s: %s; removing it", path, error)
                with contextlib.suppress(OSError):
                    path.unlink()
        return found

    def _read(self, path: Path) -> Move:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            data = file.read(MESSAGE_BYTES + 1)
        if len(data) > MESSAGE_BYTES:
            raise BadMessage(f"it has more than {MESSAGE_BYTES} bytes")
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise BadMessage("it must be an object")
        role, now = Role(str(fields.get("role"))), self._now()
        settings = parse_settings(fields) if "override" in fields else None
        return Move(role, now, Departure(now) if role is Role.LEAVING else None, settings)


def _domain_of(path: Path) -> str:
    if path.suffix != _SUFFIX or str(uuid.UUID(path.stem)) != path.stem:
        raise ValueError("its name is not that of a domain's file")
    return path.stem


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
