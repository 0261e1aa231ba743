# SPDX-License-Identifier: Apache-2.0
"""The messages between the agents of two hosts, and their limits.

An agent trusts the other host no further than this module checks: a message comes over a
message bus, and possibly from another version.

The question is ``{"version": 1, "domain": UUID, "seconds": S}``: the domain is about to
migrate away; answer within S seconds. The answer:

``version``
    1. A later version may add fields, which are ignored.
``domain``
    the UUID of the question
``ready``
    the volumes of the domain have no data that is not on their origins, and will not have any
    while it migrates
``dirty_bytes``
    how much data is still not on the origins
``reason``
    why it is not ready, or empty
``override``
    the overrides of the instance (overrides.py), by name
``disks``
    by target: ``weight`` and ``mode`` that an operator has set, or null
"""

import dataclasses
import math
import uuid
from collections.abc import Mapping
from typing import Any

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs
from vcache_agent.model import TAG_MODES
from vcache_agent.netlink import spec
from vcache_agent.overrides import NONE, Override

VERSION = 1
#: Largest message in bytes, as JSON.
MESSAGE_BYTES = 64 << 10
#: Longest time in seconds that a question may give.
MOST_SECONDS = 30.0
_MOST_DISKS = 512
_MOST_TARGET = 64
_MOST_REASON = 500


class BadMessage(ValueError):
    """A message of another host is not valid; the text says why."""


@dataclasses.dataclass(frozen=True)
class DiskSettings:
    """The settings of ``vcache tag set`` that move with a disk; None: not set.

    Lanes do not move: their numbers mean nothing on another host.
    """

    weight: int | None = None
    mode: str | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """The operator's settings of a domain.

    :param disks: by target of the disk in the domain
    """

    override: Override = NONE
    disks: Mapping[str, DiskSettings] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Question:
    """A domain is about to migrate away.

    :param seconds: time limit of the answer
    """

    domain: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of the source; the module's description explains the fields."""

    domain: str
    ready: bool
    dirty_bytes: int = 0
    reason: str = ""
    settings: Settings = Settings()


def encode_question(question: Question) -> dict[str, Any]:
    """Return a question as JSON values."""
    return {"version": VERSION, "domain": question.domain, "seconds": question.seconds}


def parse_question(data: object) -> Question:
    """Return a question; its time is at most MOST_SECONDS.

    :raises BadMessage: if it is not valid
    """
    fields = _fields(data)
    seconds = fields.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) \
            or not math.isfinite(seconds) or seconds < 0:
        raise BadMessage(f"seconds {_shown(seconds)} must be a number of at least 0")
    return Question(_domain(fields), min(float(seconds), MOST_SECONDS))


def encode_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values."""
    return {"version": VERSION, "domain": answer.domain, "ready": answer.ready,
            "dirty_bytes": answer.dirty_bytes, "reason": answer.reason[:_MOST_REASON],
            **encode_settings(answer.settings)}


def parse_answer(data: object, domain: str) -> Answer:
    """Return an answer.

    :param domain: UUID of the question
    :raises BadMessage: if it is not valid, or answers another question
    """
    fields = _fields(data)
    if _domain(fields) != domain:
        raise BadMessage("it is about another domain")
    ready, dirty = fields.get("ready"), fields.get("dirty_bytes")
    reason = fields.get("reason", "")
    if not isinstance(ready, bool):
        raise BadMessage(f"ready {_shown(ready)} must be true or false")
    if type(dirty) is not int or not 0 <= dirty < 1 << 63:
        raise BadMessage(f"dirty_bytes {_shown(dirty)} must be an integer of at least 0")
    if ready and dirty:
        raise BadMessage("it is ready, but has dirty_bytes")
    if not isinstance(reason, str) or len(reason) > _MOST_REASON:
        raise BadMessage(f"reason must be a text of at most {_MOST_REASON} characters")
    # It goes to logs and to libvirt.
    reason = "".join(sign if sign.isprintable() else " " for sign in reason)
    return Answer(domain, ready, dirty, reason, parse_settings(fields))


def encode_settings(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON values."""
    return {"override": settings.override.given,
            "disks": {target: {"weight": disk.weight, "mode": disk.mode}
                      for target, disk in settings.disks.items()}}


def parse_settings(fields: Mapping[str, Any]) -> Settings:
    """Return the fields ``override`` and ``disks``.

    :raises BadMessage: if they are not valid
    """
    override, disks = fields.get("override", {}), fields.get("disks", {})
    if not isinstance(override, dict):
        raise BadMessage(f"override {_shown(override)} must be an object")
    # Overrides that a later version may add do not belong to this one.
    known = {name: value for name, value in override.items() if name in extra_specs.OVERRIDABLE}
    try:
        extra_specs.check_override(known)
    except InvalidExtraSpecs as error:
        raise BadMessage(f"override: {error}") from None
    if not isinstance(disks, dict) or len(disks) > _MOST_DISKS:
        raise BadMessage(f"disks must be an object of at most {_MOST_DISKS} disks")
    return Settings(Override(**known), dict(map(_disk, disks, disks.values())))


def _disk(target: str, fields: object) -> tuple[str, DiskSettings]:
    if not 0 < len(target) <= _MOST_TARGET or not target.isprintable():
        raise BadMessage(f"disk {_shown(target)} must have 1 to {_MOST_TARGET} printable "
                         "characters")
    if not isinstance(fields, dict):
        raise BadMessage(f"disk {target}: {_shown(fields)} must be an object")
    weight, mode = fields.get("weight"), fields.get("mode")
    if weight is not None and (type(weight) is not int or not 1 <= weight <= spec.WEIGHT_MAX):
        raise BadMessage(f"disk {target}: weight {_shown(weight)} must be an integer from 1 to "
                         f"{spec.WEIGHT_MAX}, or null")
    if mode is not None and mode not in TAG_MODES:
        raise BadMessage(f"disk {target}: mode {_shown(mode)} must be one of "
                         f"{', '.join(TAG_MODES)}, or null")
    return target, DiskSettings(weight, mode)


def _fields(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadMessage(f"{_shown(data)} must be an object")
    version = data.get("version")
    if type(version) is not int or version != VERSION:
        raise BadMessage(f"version {_shown(version)} must be {VERSION}")
    return data


def _domain(fields: Mapping[str, Any]) -> str:
    domain = fields.get("domain")
    try:
        if isinstance(domain, str) and str(uuid.UUID(domain)) == domain:
            return domain
    except ValueError:
        pass
    raise BadMessage(f"domain {_shown(domain)} must be a UUID")


def _shown(value: object) -> str:
    return repr(value)[:40]
