# SPDX-License-Identifier: Apache-2.0
"""The file that records pools, attached devices and elastic SSDs, ``/etc/vcache/setup.conf``.

Each line is one of these; ``#`` begins a comment. An edit changes only its own line::

    pool NAME DEVICE [lanes=N | lane=BYTES...] [reads-percent=N] [hot-percent=N] [timeout=SECONDS]
    attach DEVICE POOL|- filesystem|tag=N [mode=MODE] [above] [mount=PATH...] [timeout=SECONDS]
    vssd NAME POOL max=BYTES size=BYTES volume=N [persist]

``-`` is a device without a pool, in mode flush-only. This module imports the standard library
only, because a systemd generator uses it early in each boot.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PATH = Path("/etc/vcache/setup.conf")
#: Seconds to wait for a device at boot, unless its line has another value.
TIMEOUT = 90
TIMEOUT_MAX = 86400
MODES = ("writeback", "writethrough", "flush-only")
NO_POOL = "-"

HEAD = """\
# Pools, attached devices and elastic SSDs of this host. 'vcache pool create', 'vcache attach',
# 'vcache vssd create' and their opposites change this file. They are set up again at boot, before
# the file systems on them are mounted.
# Check it with 'vcache setup check' after a change, and run 'systemctl daemon-reload'.
#
#   pool NAME DEVICE [lanes=N | lane=BYTES...] [reads-percent=N] [hot-percent=N] [timeout=SECONDS]
#   attach DEVICE POOL|- filesystem|tag=N [mode=MODE] [above] [mount=PATH...] [timeout=SECONDS]
#   vssd NAME POOL max=BYTES size=BYTES volume=N [persist]

"""

_NAME = re.compile(r"[A-Za-z0-9#+.:=@_-]{1,127}")


class SetupError(Exception):
    """The file is wrong or cannot be used; the text names the file and the line."""


@dataclasses.dataclass(frozen=True)
class PoolLine:
    """A pool.

    :param device: path of the cache device
    :param lanes: number of equal lanes, or sizes in bytes, as for ``pool create``
    :param percents: ``reads_percent`` and ``hot_percent``, if given
    :param timeout: seconds to wait for the cache device at boot
    """

    name: str
    device: str
    lanes: int | tuple[int, ...] = ()
    percents: tuple[tuple[str, int], ...] = ()
    timeout: int = TIMEOUT

    def __str__(self) -> str:
        words = ["pool", self.name, self.device]
        if isinstance(self.lanes, int):
            words.append(f"lanes={self.lanes}")
        else:
            words += [f"lane={size}" for size in self.lanes]
        words += [f"{name.replace('_', '-')}={value}" for name, value in self.percents]
        return " ".join(words + _timeout(self.timeout))


@dataclasses.dataclass(frozen=True)
class AttachLine:
    """A device with a cache, or in mode flush-only.

    :param device: path of the device that is the origin
    :param pool: name of the pool; :data:`NO_POOL`: none
    :param scope: ``filesystem`` or ``volume <tag>``
    :param above: a new device above `device` has the cache
    :param mounts: paths at which it is mounted; these mounts fail if it cannot be set up
    :param timeout: seconds to wait for the device at boot
    """

    device: str
    pool: str
    scope: str
    mode: str = "writeback"
    above: bool = False
    mounts: tuple[str, ...] = ()
    timeout: int = TIMEOUT

    def __str__(self) -> str:
        words = ["attach", self.device, self.pool,
                 self.scope.replace("volume ", "tag="), f"mode={self.mode}"]
        words += ["above"] if self.above else []
        words += [f"mount={path}" for path in self.mounts]
        return " ".join(words + _timeout(self.timeout))


@dataclasses.dataclass(frozen=True)
class VssdLine:
    """An elastic SSD; sizes in bytes.

    :param pool: name of the pool
    :param most: size of the disk
    :param size: how much of it the guest may use
    :param volume: its volume in the pool
    :param persist: its content outlives the device
    """

    name: str
    pool: str
    most: int
    size: int
    volume: int
    persist: bool = False

    def __str__(self) -> str:
        return (f"vssd {self.name} {self.pool} max={self.most} size={self.size} "
                f"volume={self.volume}{' persist' if self.persist else ''}")


Line = PoolLine | AttachLine | VssdLine


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the file.

    :param number: its number, from 1
    :param value: what it sets up
    """

    number: int
    value: Line


def _timeout(seconds: int) -> list[str]:
    return [f"timeout={seconds}"] if seconds != TIMEOUT else []


def _integer(key: str, text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:18]) <= high:
        raise SetupError(f"{key}={text}: must be an integer from {low} to {high}")
    return int(text)


def _device(text: str) -> str:
    if not text.startswith("/"):
        raise SetupError(f"{text}: must be the absolute path of a device")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise SetupError(f"{text}: a name must have 1 to 127 characters: letters, digits and "
                         "#+-.:=@_")
    return text


def _pool(words: list[str]) -> PoolLine:
    if len(words) < 2:
        raise SetupError("must be: pool NAME DEVICE [OPTION...]")
    lanes: int | tuple[int, ...] = ()
    percents: dict[str, int] = {}
    timeout = TIMEOUT
    for word in words[2:]:
        key, _, value = word.partition("=")
        if key == "lanes" and not lanes:
            lanes = _integer(key, value, 1, 64)
        elif key == "lane" and not isinstance(lanes, int):
            lanes = (*lanes, _integer(key, value, 1, 2**62))
        elif key in ("reads-percent", "hot-percent"):
            percents[key.replace("-", "_")] = _integer(key, value, 0, 100)
        elif key == "timeout":
            timeout = _integer(key, value, 1, TIMEOUT_MAX)
        else:
            raise SetupError(f"{word}: must be lanes=N or lane=BYTES, reads-percent=N, "
                             "hot-percent=N or timeout=SECONDS")
    return PoolLine(_name(words[0]), _device(words[1]), lanes, tuple(percents.items()), timeout)


def _scope(word: str) -> str:
    if word == "filesystem":
        return word
    key, _, value = word.partition("=")
    if key != "tag":
        raise SetupError(f"{word}: must be filesystem or tag=N")
    return f"volume {_integer(key, value, 1, 65535)}"


def _attach(words: list[str]) -> AttachLine:
    if len(words) < 3:
        raise SetupError("must be: attach DEVICE POOL|- filesystem|tag=N [OPTION...]")
    pool = words[1] if words[1] == NO_POOL else _name(words[1])
    line = AttachLine(_device(words[0]), pool, _scope(words[2]),
                      "flush-only" if pool == NO_POOL else "writeback")
    for word in words[3:]:
        key, _, value = word.partition("=")
        if key == "mode":
            if value not in MODES:
                raise SetupError(f"{word}: must be one of {', '.join(MODES)}")
            line = dataclasses.replace(line, mode=value)
        elif word == "above":
            line = dataclasses.replace(line, above=True)
        elif key == "mount":
            if not value.startswith("/"):
                raise SetupError(f"{word}: must be an absolute path")
            line = dataclasses.replace(line, mounts=(*line.mounts, value))
        elif key == "timeout":
            line = dataclasses.replace(line, timeout=_integer(key, value, 1, TIMEOUT_MAX))
        else:
            raise SetupError(f"{word}: must be mode=MODE, above, mount=PATH or timeout=SECONDS")
    if (line.mode == "flush-only") != (pool == NO_POOL):
        raise SetupError(f"mode={line.mode}: a device with a pool has mode writeback or "
                         "writethrough, one without ('-') has mode flush-only")
    return line


def _vssd(words: list[str]) -> VssdLine:
    if len(words) < 2:
        raise SetupError("must be: vssd NAME POOL max=BYTES size=BYTES volume=N [persist]")
    found = {"max": 0, "size": -1, "volume": 0}
    persist = False
    for word in words[2:]:
        key, _, value = word.partition("=")
        if word == "persist":
            persist = True
        elif key in found:
            found[key] = _integer(key, value, 0 if key == "size" else 1,
                                  2**32 - 1 if key == "volume" else 2**62)
        else:
            raise SetupError(f"{word}: must be max=BYTES, size=BYTES, volume=N or persist")
    if not found["max"] or not 0 <= found["size"] <= found["max"] or not found["volume"]:
        raise SetupError("max=BYTES, size=BYTES and volume=N are needed, and the size must be at "
                         "most the maximum")
    return VssdLine(_name(words[0]), _name(words[1]), found["max"], found["size"],
                    found["volume"], persist)


_KINDS: dict[str, Callable[[list[str]], Line]] = {
    "pool": _pool, "attach": _attach, "vssd": _vssd}


def parse_line(text: str) -> Line | None:
    """Parse one line; None if it is empty or a comment.

    :raises SetupError: if it is wrong
    """
    # A name may contain a "#": a comment begins behind a space.
    words = list(itertools.takewhile(lambda word: not word.startswith("#"), text.split()))
    if not words:
        return None
    if words[0] not in _KINDS:
        raise SetupError(f"{words[0]}: must be pool, attach or vssd")
    return _KINDS[words[0]](words[1:])


class SetupFile:
    """The file, as it was read.

    :ivar problems: one text for each wrong line, ``FILE:LINE: problem``; such lines are ignored

    :raises SetupError: if it cannot be read; a missing file is empty
    """

    def __init__(self, path: Path = PATH) -> None:
        self.path = path
        self._read()

    def _read(self) -> None:
        path = self.path
        self.problems: list[str] = []
        try:
            self._lines = path.read_text().splitlines()
        except FileNotFoundError:
            self._lines = []
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"{path}: {error}") from None
        self.entries: list[Entry] = []
        for number, text in enumerate(self._lines, 1):
            try:
                value = parse_line(text)
                if value is not None:
                    self._check_new(value)
                    self.entries.append(Entry(number, value))
            except SetupError as error:
                self.problems.append(f"{path}:{number}: {error}")
        known = {NO_POOL, *(entry.value.name for entry in self.pools())}
        self.problems += [
            f"{path}:{entry.number}: there is no line of pool {entry.value.pool}"
            for entry in self.entries
            if not isinstance(entry.value, PoolLine) and entry.value.pool not in known]

    def _check_new(self, value: Line) -> None:
        for entry in self.entries:
            other = entry.value
            if isinstance(value, PoolLine) and isinstance(other, PoolLine) and (
                    value.name == other.name or value.device == other.device):
                raise SetupError(f"line {entry.number} has the same pool or cache device")
            if isinstance(value, AttachLine) and isinstance(other, AttachLine) and \
                    value.device == other.device:
                raise SetupError(f"line {entry.number} has the same device")
            if isinstance(value, VssdLine) and isinstance(other, VssdLine) and (
                    value.name == other.name
                    or (value.pool, value.volume) == (other.pool, other.volume)):
                raise SetupError(f"line {entry.number} has the same name or volume")

    def pools(self) -> list["PoolEntry"]:
        """Return the lines of pools."""
        return [PoolEntry(e.number, e.value) for e in self.entries
                if isinstance(e.value, PoolLine)]

    def attached(self) -> list["AttachEntry"]:
        """Return the lines of attached devices."""
        return [AttachEntry(e.number, e.value) for e in self.entries
                if isinstance(e.value, AttachLine)]

    def vssds(self) -> list["VssdEntry"]:
        """Return the lines of elastic SSDs."""
        return [VssdEntry(e.number, e.value) for e in self.entries
                if isinstance(e.value, VssdLine)]

    def put(self, value: Line, same: Callable[[Line], bool]) -> bool:
        """Replace the first line that is `same` by a value, or append it.

        The comment at the end of the replaced line stays.

        :return: whether the file has changed
        """
        text = str(value)
        for entry in self.entries:
            if same(entry.value):
                if entry.value == value:
                    return False
                old = self._lines[entry.number - 1]
                comment = re.search(r"\s+#.*$", old)
                self._lines[entry.number - 1] = text + (comment[0] if comment else "")
                return self._write()
        self._lines.append(text)
        return self._write()

    def remove(self, same: Callable[[Line], bool]) -> bool:
        """Remove all lines that are `same`.

        :return: whether there were any
        """
        gone = {entry.number for entry in self.entries if same(entry.value)}
        self._lines = [text for number, text in enumerate(self._lines, 1) if number not in gone]
        return self._write() if gone else False

    def _write(self) -> bool:
        text = "".join(f"{line}\n" for line in self._lines)
        if not self.path.exists():
            text = HEAD + text
        try:
            _replace(self.path, text)
        except OSError as error:
            raise SetupError(f"{self.path}: {error.strerror}") from None
        self._read()
        return True


@dataclasses.dataclass(frozen=True)
class PoolEntry:
    """The line of a pool and its number."""

    number: int
    value: PoolLine


@dataclasses.dataclass(frozen=True)
class AttachEntry:
    """The line of an attached device and its number."""

    number: int
    value: AttachLine


@dataclasses.dataclass(frozen=True)
class VssdEntry:
    """The line of an elastic SSD and its number."""

    number: int
    value: VssdLine


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fchmod(fd, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            os.fsync(fd)
        os.replace(name, path)
        with _folder(path.parent) as folder:
            os.fsync(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)

