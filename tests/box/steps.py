# SPDX-License-Identifier: Apache-2.0
"""Errors that say what was running, and clean-ups that do not hide them.

``step()`` names what is running; an error that leaves it carries the name.
``at_end()`` cleans up, ``on_error()`` does so only after an error. If an error is
already on its way, an error of the clean-up becomes a note of the first one; it
never replaces it.
``describe()`` puts both into one text, the original error first.
"""

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Beginnings of the notes of an exception (PEP 678), so that plain tracebacks and pytest
# show the same as describe().
_STEP = "during: "
_CLEANUP = "clean-up also failed: "

# Lines and characters a line that describe() prints of an error of a clean-up.
_LINES = 4
_WIDTH = 300

# Characters of a failed command's output, and as many of its errors.
_OUTPUT = 2000

# The folder that the box shares with the host, see box.py. What is running is in a file
# there, for the case that the box has to be ended from outside.
_SHARED = Path("/run/box/io")
STEP_FILE = "step"

_running: list[str] = []


class step(contextlib.AbstractContextManager[None]):  # noqa: N801 - used like a function
    """Name what the block does; an error that leaves the block carries the name.

    :param what: for a message of the form "what: error", such as "starting instance quiet"
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        _running.append(self._what)
        _publish()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _running.remove(self._what)
        if error is None:
            _publish()
        elif not isinstance(error, GeneratorExit):
            # The file keeps the step that failed until the next one begins.
            error.add_note(_STEP + self._what)


def _publish() -> None:
    """Let the host know which step is running."""
    if "VCACHE_BOX" in os.environ:
        with contextlib.suppress(OSError):
            (_SHARED / STEP_FILE).write_text(": ".join(_running))


class _AtEnd(contextlib.AbstractContextManager[None]):
    def __init__(self, action: Callable[[], object], always: bool) -> None:
        self._action = action
        self._always = always

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            if self._always:
                self._action()
            return
        if isinstance(error, GeneratorExit):
            # A generator that is closed early has no error to be kept.
            self._action()
            return
        try:
            self._action()
        except Exception as second:
            also(error, second)


def at_end(action: Callable[_P, object], /, *args: _P.args,
           **kwargs: _P.kwargs) -> contextlib.AbstractContextManager[None]:
    """Do `action` at the end of the block, whether the block fails or not.

    If the block has failed, an error of the action becomes a note of the block's
    error, and the clean-ups of the blocks around this one still run. Otherwise the
    action's error is raised.
    """
    return _AtEnd(lambda: action(*args, **kwargs), always=True)


def on_error(action: Callable[_P, object], /, *args: _P.args,
             **kwargs: _P.kwargs) -> contextlib.AbstractContextManager[None]:
    """Do `action` as at_end() does, but only if the block fails."""
    return _AtEnd(lambda: action(*args, **kwargs), always=False)


class Stack(contextlib.ExitStack):
    """An ExitStack whose callbacks follow the rule of at_end()."""

    def callback(self, callback: Callable[_P, _T], /, *args: _P.args,
                 **kwds: _P.kwargs) -> Callable[_P, _T]:
        """Do `callback` when the stack is closed, as at_end() does."""
        self.enter_context(at_end(callback, *args, **kwds))
        return callback


def also(first: BaseException, second: BaseException) -> None:
    """Note on an error that a clean-up after it failed as well."""
    notes = [_CLEANUP + _shorten(_with_steps(error)) for error in _chain(second, first)]
    for error in _chain(second, first):
        notes += [note for note in _notes(error) if note.startswith(_CLEANUP)]
    for note in notes:
        first.add_note(note)


def each(action: Callable[[_T], object], items: list[_T]) -> None:
    """Do `action` for every item, even if it fails for some; raise the first error."""
    first: Exception | None = None
    for item in items:
        try:
            action(item)
        except Exception as error:
            if first is None:
                first = error
            else:
                also(first, error)
    if first is not None:
        raise first


def describe(error: BaseException) -> str:
    """Return what went wrong: the original error with its step, then the clean-ups' errors."""
    first, *later = _chain(error)
    lines = [_with_steps(first)]
    lines += [f"then: {_with_steps(follower)}" for follower in later]
    for one in (first, *later):
        lines += [note for note in _notes(one) if note.startswith(_CLEANUP)]
    return "\n".join(lines)


@contextlib.contextmanager
def explained(program: str, *foreseen: type[Exception]) -> Iterator[None]:
    """Let an error of the block end this process with status 1, and describe() be its last words.

    An error that nobody foresaw is printed with its traceback before that.

    :param program: the name in front of the text
    :param foreseen: kinds of errors that need no traceback; those of this project, of the
        system and of commands need none either
    """
    try:
        yield
    except Exception as error:
        if not (_own(error) or isinstance(
                error, (OSError, subprocess.SubprocessError, *foreseen))):
            traceback.print_exception(error)
        print(f"{program}: {describe(error)}", file=sys.stderr, flush=True)
        sys.exit(1)


def _own(error: BaseException) -> bool:
    """Tell whether this project has written the text of an error."""
    return type(error).__module__.partition(".")[0] in (
        "__main__", "bench", "nova_vcache", "tests", "vcache_agent")


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _chain(error: BaseException, until: BaseException | None = None) -> list[BaseException]:
    """Return an error after those that it has replaced, back to `until`, which is left out."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current is not until and current not in found:
        found.insert(0, current)
        current = None if current.__suppress_context__ else current.__context__
    return found


def _with_steps(error: BaseException) -> str:
    """Return an error's text behind the steps that it has left, the outermost first."""
    notes = _notes(error)
    steps = [note.removeprefix(_STEP) for note in reversed(notes) if note.startswith(_STEP)]
    other = [note for note in notes if not note.startswith((_STEP, _CLEANUP))]
    text = (str(error) + _output(error)).strip()
    speaks = isinstance(error, OSError | AssertionError | subprocess.SubprocessError)
    if not _own(error) and not (speaks and text):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    cause = error.__cause__
    if cause is not None and str(cause).strip() not in text:
        other.append(f"because of: {_with_steps(cause)}")
    return _collapse("\n".join([": ".join([*steps, text or type(error).__name__]), *other]))


def _output(error: BaseException) -> str:
    """Return the end of the output that a failed command's error has, but does not print."""
    if not isinstance(error, subprocess.CalledProcessError | subprocess.TimeoutExpired):
        return ""
    said = [part.decode(errors="replace") if isinstance(part, bytes) else part
            for part in (error.stdout, error.stderr) if part]
    return "\n" + "\n".join(part[-_OUTPUT:].strip() for part in said) if said else ""


def _collapse(text: str) -> str:
    """Write lines that follow each other and are the same once."""
    lines = []
    for line, group in groupby(line.rstrip() for line in text.splitlines()):
        count = len(list(group))
        lines.append(f"{line} ({count} times)" if count > 1 and line else line)
    return "\n".join(lines)


def _shorten(text: str) -> str:
    """Return the beginning and the end of a text."""
    lines = [line if len(line) <= _WIDTH else line[:_WIDTH - 4] + " ..."
             for line in text.splitlines()]
    if len(lines) > _LINES:
        half = _LINES // 2
        lines[half:-half] = [f"... ({len(lines) - 2 * half} lines left out)"]
    return "\n".join(lines)
