# SPDX-License-Identifier: Apache-2.0
"""The schema of the flavor extra specs ``vcache:*``, and their parser.

Only this module defines the names, types, ranges and defaults of the keys. Nova's
validators, the scheduler filter, the agent, the commands and the documentation use
it. It imports only the standard library.

The agent parses the extra specs again, because Nova validates them only from
microversion 2.86 on.
"""

import dataclasses
import enum
import math
import re
from collections.abc import Mapping

#: Prefix of all keys.
PREFIX = "vcache:"

#: Largest amount of a Placement inventory, and so of ``vcache:min_mb``.
_PLACEMENT_MAX = 2**31 - 1

# The boolean words of oslo.utils, and so of nova-api.
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)

# Largest part of a value in an error message, because users choose the values.
_SHOWN = 60
# Most keys that a warning names.
_NAMED = 5


class Mode(enum.StrEnum):
    """Mode of an instance's disks."""

    #: Reads and writes are cached; a flush makes data durable in the cache.
    WRITEBACK = "writeback"
    #: Reads are cached; writes go to the origin.
    WRITETHROUGH = "writethrough"
    #: Isolated flushes without a cache device.
    FLUSH_ONLY = "flush-only"
    #: The disks have no tag.
    NONE = "none"


class Isolation(enum.StrEnum):
    """Lanes of the cache device that an instance uses."""

    #: As the placement algorithm decides.
    AUTO = "auto"
    #: Dedicated lanes.
    DEDICATED = "dedicated"
    #: Lanes that it shares with other instances.
    SHARED = "shared"


class Kind(enum.Enum):
    """Type of a value."""

    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


@dataclasses.dataclass(frozen=True)
class Key:
    """One extra spec.

    :param name: the key without :data:`PREFIX`, and its field in :class:`ExtraSpecs`
    :param kind: type of the value
    :param default: value if the key is absent
    :param doc: its meaning, in one or two sentences
    :param unit: unit of the value, for messages
    :param minimum: smallest value of an integer or a number
    :param maximum: largest value of an integer or a number
    :param choices: the values of a choice
    """

    name: str
    kind: Kind
    default: object
    doc: str
    unit: str = ""
    minimum: int | float = 0
    maximum: int | float = 0
    choices: type[enum.StrEnum] | None = None

    @property
    def key(self) -> str:
        """The key in a flavor."""
        return PREFIX + self.name

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        if self.choices is not None:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        noun = "an integer" if self.kind is Kind.INTEGER else "a number"
        unit = f" {self.unit}" if self.unit else ""
        return f"{noun} from {self.minimum} to {self.maximum}{unit}"


KEYS: tuple[Key, ...] = (
    Key("mode", Kind.CHOICE, Mode.NONE, choices=Mode,
        doc="Mode of the instance's disks; flush-only isolates flushes without a cache device."),
    Key("weight", Kind.INTEGER, 100, minimum=1, maximum=1000,
        doc="Share of the cache and of the write buffer, relative to the other instances of the "
            "host."),
    Key("min_mb", Kind.INTEGER, 0, unit="MiB", minimum=0, maximum=_PLACEMENT_MAX,
        doc="Guaranteed cache of the instance, divided equally among its disks."),
    Key("max_mb", Kind.INTEGER, None, unit="MiB", minimum=1, maximum=_PLACEMENT_MAX,
        doc="Largest cache of the instance; unlimited if absent."),
    Key("isolation", Kind.CHOICE, Isolation.AUTO, choices=Isolation,
        doc="Dedicated lanes of the cache device, shared lanes, or as the algorithm decides."),
    Key("slo_flush_ms", Kind.NUMBER, None, unit="ms", minimum=0.001, maximum=60000,
        doc="Objective for the latency of 99 % of the flushes; none if absent."),
    Key("slo_read_us", Kind.NUMBER, None, unit="us", minimum=0.001, maximum=60000000,
        doc="Objective for the latency of 99 % of the reads; none if absent."),
    Key("slo_iops", Kind.NUMBER, None, unit="IOPS", minimum=1, maximum=100000000,
        doc="Objective for the number of requests per second; none if absent."),
    Key("persist", Kind.BOOLEAN, False,
        doc="Load the cached blocks of the instance again after it was stopped and started."),
    Key("vssd_max_mb", Kind.INTEGER, None, unit="MiB", minimum=1, maximum=_PLACEMENT_MAX,
        doc="Size of the instance's elastic SSD, a disk that the guest uses as a cache; no such "
            "disk if absent."),
    Key("vssd_mb", Kind.INTEGER, 0, unit="MiB", minimum=0, maximum=_PLACEMENT_MAX,
        doc="Guaranteed part of the elastic SSD."),
    Key("vssd_persist", Kind.BOOLEAN, False,
        doc="Keep the data of the elastic SSD while the instance is stopped."),
    Key("required", Kind.BOOLEAN, False,
        doc="The instance does not start without the requested vcache:mode, guarantee and "
            "dedicated lanes; otherwise it starts with what there is, and a warning."),
)

_BY_KEY = {key.key: key for key in KEYS}

#: Keys that an operator may override for a running instance.
OVERRIDABLE = ("weight", "slo_flush_ms", "slo_read_us", "slo_iops")


@dataclasses.dataclass(frozen=True)
class ExtraSpecs:
    """The parsed extra specs of one flavor; each field is a key of :data:`KEYS`."""

    mode: Mode = Mode.NONE
    weight: int = 100
    min_mb: int = 0
    max_mb: int | None = None
    isolation: Isolation = Isolation.AUTO
    slo_flush_ms: float | None = None
    slo_read_us: float | None = None
    slo_iops: float | None = None
    persist: bool = False
    vssd_max_mb: int | None = None
    vssd_mb: int = 0
    vssd_persist: bool = False
    required: bool = False

    def to_extra_specs(self) -> dict[str, str]:
        """Return the extra specs that differ from their default, in the format of a flavor."""
        specs = {}
        for key in KEYS:
            value = getattr(self, key.name)
            if value != key.default:
                specs[key.key] = _format(value)
        return specs


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem with one extra spec.

    :param key: the key, with its prefix
    :param value: its value
    :param allowed: the allowed values
    """

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{_shown(self.key)}: {_shown(self.value)!r} is not allowed, must be {self.allowed}"


class InvalidExtraSpecs(ValueError):
    """Invalid extra specs; the text names all invalid keys.

    :param problems: at least one problem
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def unknown(specs: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the ``vcache:*`` keys that this release does not know, sorted."""
    allowed = f"absent (unknown key, the keys are {', '.join(_BY_KEY)})"
    return tuple(Problem(name, text, allowed) for name, text in sorted(specs.items())
                 if name.startswith(PREFIX) and name not in _BY_KEY)


def warning(specs: Mapping[str, str]) -> str:
    """Return a warning about keys that :func:`parse` ignores, or nothing."""
    found = ", ".join(_shown(item.key) for item in unknown(specs)[:_NAMED])
    return f"extra specs that this release does not know are ignored: {found}" if found else ""


def check(specs: Mapping[str, str]) -> ExtraSpecs:
    """Parse as :func:`parse`, but do not accept unknown keys, for whoever writes a flavor.

    :raises InvalidExtraSpecs: as :func:`parse`, and for each unknown key
    """
    found = unknown(specs)
    try:
        parsed = parse(specs)
    except InvalidExtraSpecs as error:
        raise InvalidExtraSpecs((*error.problems, *found)) from None
    if found:
        raise InvalidExtraSpecs(found)
    return parsed


def parse(specs: Mapping[str, str]) -> ExtraSpecs:
    """Parse and check the ``vcache:*`` keys of a flavor's extra specs.

    Unknown keys are ignored: during an upgrade they are those of a newer release. Otherwise
    the flavor would lose its other keys, too.

    :param specs: all extra specs of a flavor; other keys are ignored
    :raises InvalidExtraSpecs: names each invalid key, its value and the allowed values
    """
    values: dict[str, object] = {}
    problems = []
    for name, text in sorted(specs.items()):
        key = _BY_KEY.get(name)
        if key is None:
            continue
        value = _value(key, text)
        if value is None:
            problems.append(Problem(name, text, key.allowed))
        else:
            values[key.name] = value
    if not problems:
        problems += _contradictions(values, specs)
    if problems:
        raise InvalidExtraSpecs(tuple(problems))
    return ExtraSpecs(**values)  # type: ignore[arg-type] # checked by kind


def check_override(values: Mapping[str, object]) -> None:
    """Check the overrides of one instance.

    :param values: typed values by name of the key without prefix; None: the flavor's value
    :raises InvalidExtraSpecs: names each invalid key, its value and the allowed values
    """
    problems = []
    for name, value in values.items():
        key = _BY_KEY.get(PREFIX + name)
        if key is None or name not in OVERRIDABLE:
            problems.append(Problem(name, str(value),
                                    f"absent (the keys are {', '.join(OVERRIDABLE)})"))
        elif value is not None and not _in_range(key, value):
            problems.append(Problem(name, str(value),
                                    f"{key.allowed}, or null for the flavor's value"))
    if problems:
        raise InvalidExtraSpecs(tuple(problems))


def _in_range(key: Key, value: object) -> bool:
    # A boolean is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if key.kind is Kind.INTEGER and not isinstance(value, int):
        return False
    return key.minimum <= value <= key.maximum


def is_required(specs: Mapping[str, str]) -> bool:
    """Return True if extra specs, which may be invalid, have ``vcache:required``."""
    return specs.get(PREFIX + "required", "").strip().lower() in _TRUE


def _contradictions(values: Mapping[str, object], specs: Mapping[str, str]) -> list[Problem]:
    found = []
    for least, most in ("min_mb", "max_mb"), ("vssd_mb", "vssd_max_mb"):
        low, high = values.get(least), values.get(most)
        if isinstance(low, int) and isinstance(high, int) and low > high:
            key = PREFIX + least
            found.append(Problem(key, specs[key], f"at most {PREFIX}{most}, which is {high}"))
    return found


def _value(key: Key, text: str) -> object | None:
    """Return the value, or None if it is not allowed."""
    if not isinstance(text, str):
        return None
    if key.choices is not None:
        return next((choice for choice in key.choices if choice.value == text), None)
    if key.kind is Kind.BOOLEAN:
        word = text.strip().lower()
        return word in _TRUE if word in _TRUE | _FALSE else None
    pattern = _INTEGER if key.kind is Kind.INTEGER else _NUMBER
    if pattern.fullmatch(text) is None:
        return None
    number = int(text) if key.kind is Kind.INTEGER else float(text)
    return number if key.minimum <= number <= key.maximum else None


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Never in scientific notation, which the parser rejects.
        digits = 0 if value.is_integer() else 9
        text = f"{value:.{digits}f}"
        return text.rstrip("0") if "." in text and math.isfinite(value) else text
    return str(value)


def _shown(text: object) -> str:
    text = str(text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
