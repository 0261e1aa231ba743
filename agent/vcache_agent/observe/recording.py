# SPDX-License-Identifier: Apache-2.0
"""Recordings: files of samples as JSON lines.

The first line is a header, ``{"format": "vcache-samples", "version": 1}``. Each further
line is one sample; see codec.py.
"""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from oslo_log import log as logging

from vcache_agent.observe import codec
from vcache_agent.observe.sample import Sample

LOG = logging.getLogger(__name__)

FORMAT = "vcache-samples"
VERSION = 1
_HEADER = {"format": FORMAT, "version": VERSION}
#: Number of full files that :class:`Writer` keeps beside the current one.
KEPT = 4


class RecordingError(Exception):
    """A file is not a recording, or is damaged; the text names file, line and field."""


def read_samples(path: Path, warn: Callable[[str], None] = LOG.warning) -> Iterator[Sample]:
    """Yield the samples of a recording.

    An incomplete last line, which a crash of the writer leaves, is skipped with a warning.

    :param warn: called with the text of the warning
    :raises RecordingError: if a line is not valid
    :raises OSError: if the file cannot be read
    """
    with open(path, "rb") as file:
        _check_header(path, file.readline())
        for number, line in enumerate(file, 2):
            where = f"{path}: line {number}"
            try:
                value = json.loads(line, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    warn(f"{where}: incomplete, skipped")
                    return
                raise RecordingError(f"{where}: not JSON: {error}") from None
            try:
                yield codec.decode(value)
            except codec.FieldError as error:
                raise RecordingError(f"{where}: {error}") from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _check_header(path: Path, line: bytes) -> None:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RecordingError(f"{path}: line 1: not the header of a recording, which is "
                             f'{{"format": "{FORMAT}", "version": {VERSION}}}')
    version = header.get("version")
    if version != VERSION or type(version) is not int:
        raise RecordingError(f"{path}: line 1: version {str(version)[:40]} is not supported, must "
                             f"be {VERSION}")


class Writer:
    """Writes a recording.

    A file that exists already, and a file that is full, are renamed: FILE to FILE.1, FILE.1
    to FILE.2, and so on. So recordings never use more than `KEPT` + 1 times the limit.

    :param path: the file
    :param limit: size in bytes after which a new file is begun; 0: no limit, and an existing
        file is an error
    :raises OSError: if the file cannot be created
    """

    def __init__(self, path: Path, limit: int = 0) -> None:
        self._path = path
        self._limit = limit
        self._file = self._begin()

    def write(self, sample: Sample) -> None:
        """Append a sample.

        :raises OSError: if it cannot be written
        """
        if self._limit and self._file.tell() >= self._limit:
            full, self._file = self._file, self._begin()
            full.close()
        self._line(self._file, codec.encode(sample))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> IO[bytes]:
        """Create the file with its header, after older files have been renamed."""
        if self._limit:
            self._rotate()
        file = open(self._path, "wb" if self._limit else "xb", buffering=0)  # noqa: SIM115
        try:
            self._line(file, _HEADER)
        except BaseException:
            file.close()
            raise
        return file

    def _rotate(self) -> None:
        """Rename the files, unless the current one has no sample: a full disk costs no history."""
        try:
            if self._path.stat().st_size <= len(_encoded(_HEADER)):
                return
        except FileNotFoundError:
            return
        for number in range(KEPT, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._numbered(number - 1).replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    @staticmethod
    def _line(file: IO[bytes], value: dict[str, Any]) -> None:
        data = _encoded(value)
        begin = file.tell()
        if file.write(data) != len(data):
            # The disk is full. Half a line must not be followed by another line.
            file.truncate(begin)
            file.seek(begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _encoded(value: dict[str, Any]) -> bytes:
    """Return one line of a recording."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
