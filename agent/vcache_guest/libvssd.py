# SPDX-License-Identifier: Apache-2.0
"""The binding of libvssd for Python; ``native/libvssd/vssd.h`` describes the library.

It uses ctypes: then it needs no compiler, and nothing but Python and the library in a guest.

Callbacks run in :meth:`Vssd.dispatch`. An exception of a callback is raised there when all
callbacks of the call have run: a message that was handled in part cannot be repeated.
"""

import ctypes
import errno
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from vcache_guest.protocol import Range

#: Name of the library; a path in tests.
LIBRARY = "libvssd.so.0"


class _Range(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint32), ("blocks", ctypes.c_uint32))


class _Info(ctypes.Structure):
    _fields_ = (("block_bytes", ctypes.c_uint32), ("most", ctypes.c_uint32),
                ("path", ctypes.c_char * 64))


_READY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Info))
_RANGES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Range), ctypes.c_size_t)
_RECLAIM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64)
_FORCED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Range), ctypes.c_size_t)


class _Ops(ctypes.Structure):
    _fields_ = (("ready", _READY), ("grant", _RANGES), ("reclaim", _RECLAIM), ("forced", _FORCED))


class VssdError(OSError):
    """A call of the library has failed; the error number is as in ``vssd.h``."""


class Info(NamedTuple):
    """The disk.

    :param block_bytes: size of a block in bytes
    :param most: size of the disk in blocks
    :param path: path of the disk
    """

    block_bytes: int
    most: int
    path: str


class Application(Protocol):
    """What an application does; see ``struct vssd_ops``."""

    def ready(self, info: Info) -> None:
        """The disk is known."""

    def grant(self, ranges: tuple[Range, ...]) -> None:
        """These blocks belong to the application now, and read as zeroes."""

    def reclaim(self, blocks: int, seconds: float | None) -> None:
        """Give up so many blocks by :meth:`Vssd.give`, now or later.

        :param blocks: 0: nothing is asked for any more
        :param seconds: after that they are taken; None: they are not
        """

    def forced(self, ranges: tuple[Range, ...]) -> None:
        """These blocks were taken. Nothing may use them when this returns.

        If it raises an exception, nobody gets the blocks until :meth:`Vssd.give` gives them up,
        or until :meth:`Vssd.close` or the end of the process.
        """


def _load(path: str) -> Any:
    library = ctypes.CDLL(path, use_errno=True)
    handle, number = ctypes.c_void_p, ctypes.c_uint32
    for name, result, arguments in (
            ("connect", handle, (ctypes.c_char_p, ctypes.POINTER(_Ops), ctypes.c_void_p)),
            ("register", ctypes.c_int, (handle, ctypes.c_char_p, ctypes.c_uint, number)),
            ("fd", ctypes.c_int, (handle,)),
            ("dispatch", ctypes.c_int, (handle,)),
            ("give", ctypes.c_int, (handle, ctypes.POINTER(_Range), ctypes.c_size_t)),
            ("held", ctypes.c_size_t, (handle, ctypes.POINTER(_Range), ctypes.c_size_t)),
            ("error", ctypes.c_char_p, (handle,)),
            ("close", None, (handle,))):
        function = getattr(library, f"vssd_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Vssd:
    """A connection to vcache-guest, for one thread at a time.

    :param application: whose callbacks are called
    :param path: path of the socket; None: the default
    :param library: path of the library
    :raises OSError: if there is no library, or no connection
    """

    def __init__(self, application: Application, path: str | None = None,
                 library: str = LIBRARY) -> None:
        self._library, self._failed = _load(library), list[BaseException]()
        self._dispatching = False
        # Kept, because the library calls them.
        self._ops = _Ops(
            _READY(lambda _, info: self._call(application.ready, Info(
                info[0].block_bytes, info[0].most, os.fsdecode(info[0].path)))),
            _RANGES(lambda _, ranges, n: self._call(application.grant, _tuple(ranges, n))),
            _RECLAIM(lambda _, blocks, ms: self._call(
                application.reclaim, blocks, None if ms < 0 else ms / 1000)),
            _FORCED(lambda _, ranges, n: self._call(application.forced, _tuple(ranges, n))))
        self._handle = self._library.vssd_connect(
            None if path is None else os.fsencode(path), ctypes.byref(self._ops), None)
        if not self._handle:
            number = ctypes.get_errno()
            raise VssdError(number, f"{path or 'vcache-guest'}: {os.strerror(number)}")

    def _call(self, function: Any, *arguments: object) -> int:
        """Call the application; return whether that failed."""
        try:
            function(*arguments)
        except BaseException as error:
            self._failed.append(error)
            return 1
        return 0

    def register(self, name: str, weight: int = 100, least: int = 0) -> None:
        """Take part in the division, or change weight and minimum in blocks."""
        if not 0 <= least <= 0xFFFFFFFF or not 0 <= weight <= 0xFFFFFFFF or "\0" in name:
            raise VssdError(errno.EINVAL, f"{name!r}, {weight}, {least}: not allowed")
        self._check(self._library.vssd_register(self._open(), name.encode(), weight, least))

    def fileno(self) -> int:
        """Return a file descriptor for poll()."""
        return int(self._library.vssd_fd(self._open()))

    def dispatch(self) -> int:
        """Handle what vcache-guest has sent, without waiting; return how many messages.

        :raises VssdError: if the connection has ended, and no block is left
        :raises BaseException: what a callback has raised first
        """
        if self._dispatching:
            raise VssdError(errno.EBUSY, "dispatch() inside a callback")
        self._dispatching = True
        try:
            result = self._library.vssd_dispatch(self._open())
        finally:
            self._dispatching = False
        if self._failed:
            failed, self._failed = self._failed, []
            raise failed[0]
        return self._check(result)

    def give(self, ranges: Iterable[Range]) -> None:
        """Give up blocks, which nothing uses any more."""
        array = [_Range(*one) for one in ranges]
        self._check(self._library.vssd_give(self._open(), (_Range * len(array))(*array),
                                            len(array)))

    @property
    def held(self) -> tuple[Range, ...]:
        """The blocks that the application has."""
        number = self._library.vssd_held(self._open(), None, 0)
        array = (_Range * number)()
        self._library.vssd_held(self._open(), array, number)
        return _tuple(array, number)

    def close(self) -> None:
        """End the connection. Nothing may use the application's blocks any more."""
        if self._dispatching:
            raise VssdError(errno.EBUSY, "close() inside a callback")
        handle, self._handle = self._handle, None
        self._library.vssd_close(handle)

    def _open(self) -> Any:
        if not self._handle:
            raise VssdError(errno.EBADF, "the connection is closed")
        return self._handle

    def _check(self, result: int) -> int:
        if result < 0:
            text = self._library.vssd_error(self._handle).decode(errors="replace")
            raise VssdError(-result, text or os.strerror(-result))
        return result


def _tuple(ranges: Any, number: int) -> tuple[Range, ...]:
    return tuple(Range(ranges[at].first, ranges[at].blocks) for at in range(number))
