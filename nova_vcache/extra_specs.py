# SPDX-License-Identifier: Apache-2.0
"""The schema of the flavor extra specs ``vcache:*``, and their parser.

This is the only place that knows the names, types, ranges and defaults of the
keys. Nova's validators, the scheduler filter, the agent, the Cinder driver and
the documentation are made from it. It imports nothing but the standard library.

The agent parses again what Nova has validated: Nova checks extra specs only
from microversion 2.86 on.
"""

import dataclasses
import enum
import math
import re
from collections.abc import Mapping

#: What all keys begin with.
PREFIX = "vcache:"

#: Largest amount of a Placement inventory, and so of ``vcache:min_mb``.
_PLACEMENT_MAX = 2**31 - 1

# The words oslo.utils takes for booleans, and so nova-api does.
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)

# Values come from tenants' reach; an error message shows no more of them.
_SHOWN = 60


class Mode(enum.StrEnum):
    """What an instance gets."""

    #: reads and writes are cached, a flush persists to the cache
    WRITEBACK = "writeback"
    #: reads are cached, writes go to the origin
    WRITETHROUGH = "writethrough"
    #: an isolated flush, with no cache device
    FLUSH_ONLY = "flush-only"
    #: nothing: the disk is not tagged
    NONE = "none"


class Isolation(enum.StrEnum):
    """Whose lanes of the cache device an instance uses."""

    #: as the placement algorithm decides
    AUTO = "auto"
    #: lanes of its own
    DEDICATED = "dedicated"
    #: lanes shared with others
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

    :param name: the key without :data:`PREFIX`, also its field in
        :class:`ExtraSpecs`
    :param kind: type of the value
    :param default: value when the key is absent
    :param doc: what it means, one sentence
    :param unit: unit of the value, for people
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
        """Return the key as it stands in a flavor."""
        return PREFIX + self.name

    @property
    def allowed(self) -> str:
        """Return the allowed values, for people."""
        if self.choices is not None:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        noun = "an integer" if self.kind is Kind.INTEGER else "a number"
        unit = f" {self.unit}" if self.unit else ""
        return f"{noun} from {self.minimum} to {self.maximum}{unit}"


KEYS: tuple[Key, ...] = (
    Key("mode", Kind.CHOICE, Mode.NONE, choices=Mode,
        doc="What the instance gets; flush-only is an isolated flush with no cache device."),
    Key("weight", Kind.INTEGER, 100, minimum=1, maximum=1000,
        doc="Share of the cache and the write buffer, relative to other instances of the host."),
    Key("min_mb", Kind.INTEGER, 0, unit="MiB", minimum=0, maximum=_PLACEMENT_MAX,
        doc="Guaranteed cache of the instance, its disks have equal parts."),
    Key("max_mb", Kind.INTEGER, None, unit="MiB", minimum=1, maximum=_PLACEMENT_MAX,
        doc="Largest cache of the instance; unlimited when absent."),
    Key("isolation", Kind.CHOICE, Isolation.AUTO, choices=Isolation,
        doc="Own lanes of the cache device, shared ones, or as the algorithm decides."),
    Key("slo_flush_ms", Kind.NUMBER, None, unit="ms", minimum=0.001, maximum=60000,
        doc="Objective: 99 % of the flushes take no longer; none when absent."),
    Key("slo_read_us", Kind.NUMBER, None, unit="us", minimum=0.001, maximum=60000000,
        doc="Objective: 99 % of the reads take no longer; none when absent."),
    Key("slo_iops", Kind.NUMBER, None, unit="IOPS", minimum=1, maximum=100000000,
        doc="Objective: at least so many requests a second; none when absent."),
    Key("persist", Kind.BOOLEAN, False,
        doc="What the instance has in the cache when it is stopped is there again soon after it "
            "was started."),
    Key("required", Kind.BOOLEAN, False,
        doc="Without what vcache:mode asks for, the instance does not start; "
            "otherwise it starts uncached, and the host says so."),
)

_BY_KEY = {key.key: key for key in KEYS}

#: Keys that may be set of one instance, instead of its flavor's, while it runs.
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
    required: bool = False

    def to_extra_specs(self) -> dict[str, str]:
        """Return the extra specs that differ from their default, as a flavor has them."""
        specs = {}
        for key in KEYS:
            value = getattr(self, key.name)
            if value != key.default:
                specs[key.key] = _format(value)
        return specs


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong with one extra spec.

    :param key: the key, with its prefix
    :param value: its value
    :param allowed: what is allowed instead
    """

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{_shown(self.key)}: {_shown(self.value)!r} is not allowed, must be {self.allowed}"


class InvalidExtraSpecs(ValueError):
    """Extra specs that cannot be used; names every wrong key.

    :param problems: at least one
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def parse(specs: Mapping[str, str]) -> ExtraSpecs:
    """Parse and check the ``vcache:*`` keys of a flavor's extra specs.

    :param specs: all extra specs of a flavor; keys of others are not looked at
    :raises InvalidExtraSpecs: naming each wrong key, its value and what is
        allowed
    """
    values: dict[str, object] = {}
    problems = []
    for name, text in sorted(specs.items()):
        if not name.startswith(PREFIX):
            continue
        key = _BY_KEY.get(name)
        if key is None:
            known = ", ".join(_BY_KEY)
            problems.append(Problem(name, text, f"absent (unknown key, there are {known})"))
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
    """Check what is to be set of one instance, by name of the key without prefix.

    None is always allowed: what the flavor says.

    :param values: typed, as JSON has them
    :raises InvalidExtraSpecs: naming each wrong one, its value and what is allowed
    """
    problems = []
    for name, value in values.items():
        key = _BY_KEY.get(PREFIX + name)
        if key is None or name not in OVERRIDABLE:
            problems.append(Problem(name, str(value),
                                    f"absent (there are {', '.join(OVERRIDABLE)})"))
        elif value is not None and not _in_range(key, value):
            problems.append(Problem(name, str(value), f"{key.allowed}, or null for the flavor's"))
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
    """Tell whether specs that do not parse as a whole ask for ``vcache:required``."""
    return specs.get(PREFIX + "required", "").strip().lower() in _TRUE


def _contradictions(values: Mapping[str, object], specs: Mapping[str, str]) -> list[Problem]:
    low, high = values.get("min_mb"), values.get("max_mb")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        key = PREFIX + "min_mb"
        return [Problem(key, specs[key], f"at most {PREFIX}max_mb, which is {high}")]
    return []


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
        # Never in scientific notation, which the parser does not take.
        digits = 0 if value.is_integer() else 9
        text = f"{value:.{digits}f}"
        return text.rstrip("0") if "." in text and math.isfinite(value) else text
    return str(value)


def _shown(text: object) -> str:
    text = str(text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
