# SPDX-License-Identifier: Apache-2.0
"""Add a cache to a mapped device that may be in use, and remove the cache again.

Attach moves the table of the device to a second device, ``<name>-vcorigin``, and
gives the device a table of the target vcache with the second device as its
origin. So no path changes. A device that already has a table of the target needs
no second device.

Each step leaves a working device, so the command may be killed between any two
steps. The next call reads the tables to find out how far the previous one came,
and continues, or reports the problem. One ioctl suspends the device, activates
the new table and resumes. Only the last step of a detach holds the device
suspended for longer: data that the origin has refused is still in memory then,
and must not be discarded.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator

from vcache_agent import owners, pools, sysfs
from vcache_agent.dm import HIDDEN, NAME_MAX, Dm, DmError, Info, KernelWords, Line, Lines
from vcache_agent.pools import Mapping, PoolError
from vcache_agent.store import Store

#: Targets whose table can be active twice, on the device and on its origin device. Those of
#: snapshot-origin find the snapshots by the device below, so each copies what it overwrites.
TWICE = ("linear", "striped", "snapshot-origin")
SUFFIX = "-vcorigin"
_UUID = "VCACHE-ORIGIN-"
#: Begin of the UUID of a device that was created above another one; see above.py.
ABOVE_UUID = "VCACHE-ABOVE-"

CACHED = ("writeback", "writethrough")

# Seconds between two checks of a drain, and without progress until a drain fails.
_LOOK = 0.2
_STALL = 30.0
# Seconds to wait until an origin device that is no longer used is closed.
_REMOVE = 5.0

_LOCK_ALL = 3  # MCL_CURRENT | MCL_FUTURE of mlockall(2)

Say = Callable[[str], None]


def attach(dm: Dm, store: Store, device: str, pool: str, *, mode: str = "writeback",
           volume: int | None = None, scope: str | None = None, recover: bool = False,
           force: bool = False) -> str:
    """Add a cache to a device: make it a volume of a pool. Return a message.

    :param volume: volume number in the pool; None: the previous or the lowest free number
    :param scope: ``volume <tag>`` or ``filesystem``; None: keep the current scope
    :param recover: accept the pool's data of the volume as data of this device
    :param force: accept it although the device has changed without its cache
    :raises PoolError: if that is not possible; the device is then unchanged
    """
    found = pools.pool(dm, pool)
    info = tidy(dm, pools.find(dm, device))
    mapping = pools.mapping_of(dm, info)
    if mapping is not None and mapping.pool is not None:
        return _attached_already(info, mapping, found, mode, volume, scope)
    if found.state != "ok":
        raise PoolError(f"pool {found.info.name} is in state {found.state}, must be in state ok")
    _check_place(dm, info, found)
    scope = scope_of(dm, mapping, info.name, scope)
    lines = dm.table(info.name)
    if mapping is None:
        _check_table(info, lines)
    chosen = owners.allocate(dm, store, found, info, volume, origin=info.path, recover=recover,
                              force=force)
    with _Steps(dm, info, lines) as steps:
        if mapping is None:
            hidden = steps.hide()
            mapping = Mapping(length_of(lines), "flush-only", hidden.number, scope)
        steps.swap([dataclasses.replace(mapping, mode=mode, scope=scope, pool=found.info.number,
                                        volume=chosen).line()])
    owners.attached(dm, found.info.name, chosen, pools.identity(info))
    return f"{info.name} is volume {chosen} of pool {found.info.name}, mode {mode}"


def isolate(dm: Dm, device: str, scope: str) -> str:
    """Give a device that has no target one in mode flush-only. Return a message.

    :param scope: ``volume <tag>``
    :raises PoolError: if that is not possible; the device is then unchanged
    """
    info = pools.find(dm, device)
    if pools.mapping_of(dm, tidy(dm, info)) is not None:
        raise PoolError(f"{info.name} is a vcache device already")
    return attach_plain(dm, device, scope)


def attach_plain(dm: Dm, device: str, scope: str | None = None) -> str:
    """Give a device isolated flushes without a cache: mode flush-only. Return a message.

    :param scope: ``volume <tag>`` or ``filesystem``
    :raises PoolError: if that is not possible; the device is then unchanged
    """
    info = tidy(dm, pools.find(dm, device))
    mapping = pools.mapping_of(dm, info)
    if mapping is not None and (mapping.pool is not None or mapping.mode != "flush-only"):
        raise PoolError(f"{info.name} is a vcache device in mode {mapping.mode}; detach it first")
    scope = scope_of(dm, mapping, info.name, scope)
    if mapping is not None:
        return f"{info.name} is in mode flush-only already"
    lines = dm.table(info.name)
    _check_table(info, lines)
    with _Steps(dm, info, lines) as steps:
        hidden = steps.hide()
        steps.swap([Mapping(length_of(lines), "flush-only", hidden.number, scope).line()])
    return f"{info.name} is in mode flush-only, without a cache"


def detach(dm: Dm, store: Store, device: str, say: Say, *, force: bool = False,
           keep: bool = False) -> str:
    """Write back and remove the cache of a device. Return a message.

    :param say: called with progress messages
    :param force: discard dirty data of a cache that has failed
    :param keep: keep a device that was created above another one; it then has no cache
    :raises PoolError: if that is not possible; the device then works as before
    """
    found = pools.find(dm, device)
    before = _hidden(dm, found)
    info = tidy(dm, found)
    mapping = pools.mapping_of(dm, info)
    hidden = origin_of(dm, mapping) if mapping else None
    above = info.uuid.startswith(ABOVE_UUID)
    if mapping is None or (mapping.pool is None and hidden is None and not above):
        if before is not None and _hidden(dm, info) is None:
            return (f"{info.name} has its original table; the remains of an interrupted command "
                    "are removed")
        raise PoolError(f"{info.name} has no cache, it must be an attached device")
    whole = True
    if mapping.pool is not None:
        whole = _leave_pool(dm, store, info, mapping, say, force=force)
    lines = dm.table(hidden.name) if hidden else (mapping.plain().line(),)
    with _Steps(dm, info, dm.table(info.name)) as steps:
        if not whole and hidden is None:
            # The target releases a volume that it cannot clear only when its table goes.
            steps.swap([mapping.bypass()])
            steps.swap(lines)
        elif hidden is not None:
            steps.put_back(lines, force=force)
    if hidden is not None:
        _remove(dm, hidden)
    if above and not keep:
        return _remove_above(dm, info)
    return f"{info.name} no longer has a cache and is as before the attach"


def _remove_above(dm: Dm, info: Info) -> str:
    """Remove a device that was created above another one, if it is not in use."""
    try:
        dm.remove(info.name)
    except DmError as error:
        if error.errno != errno.EBUSY:
            raise
        return (f"{info.name} no longer has a cache. It is in use and stays, above its origin; run "
                "the command again when it is closed to remove it")
    return f"{info.name} is removed; its origin has all data"


def change_mode(dm: Dm, device: str, mode: str, say: Say) -> str:
    """Change the mode of an attached device. Return a message.

    :param mode: one of :data:`CACHED`
    :param say: called with progress messages
    :raises PoolError: if that is not possible
    """
    info = tidy(dm, pools.find(dm, device))
    mapping = pools.mapping_of(dm, info)
    if mapping is None or mapping.pool is None:
        raise PoolError(f"{info.name} has no cache; attach it to a pool first")
    if mapping.mode == mode:
        return f"{info.name} is in mode {mode} already"
    cache = pools.cache_state(dm, info)
    if cache is None or cache.state in pools.FAILED:
        raise PoolError(f"the cache of {info.name} has failed; only 'vcache detach' is possible")
    if mapping.mode == "writeback":
        drain(dm, info, say)
    with _Steps(dm, info, dm.table(info.name)) as steps:
        steps.swap([dataclasses.replace(mapping, mode=mode).line()])
    return f"{info.name} is in mode {mode}"


def drain(dm: Dm, info: Info, say: Say) -> None:
    """Write all dirty data of a device's cache to the origin, and wait until it is done.

    The kernel delays writers during a drain, so the drain ends. If this process
    ends earlier, the kernel continues.

    :param say: called with progress messages
    :raises PoolError: if the cache fails, or the origin accepts no data for 30 s
    """
    dm.message(info.name, "drain")
    said, least, moved = 0.0, None, time.monotonic()
    while True:
        cache = pools.cache_state(dm, info)
        if cache is None or not cache.dirty:
            return
        left = f"{cache.dirty / (1 << 20):.1f} MiB"
        now = time.monotonic()
        if least is None or cache.dirty < least or cache.state != "failing":
            least, moved = cache.dirty, now
        if cache.state in pools.FAILED:
            raise PoolError(f"the cache of {info.name} has failed with {left} of dirty data")
        if now - moved > _STALL:
            raise PoolError(f"the origin of {info.name} refuses writes, {left} are only in the "
                            "cache; the drain continues when the origin works again, run the "
                            "command again then")
        if now - said >= 1:
            say(f"{info.name}: {left} left")
            said = now
        time.sleep(_LOOK)


def set_table(dm: Dm, device: str, line: Line) -> None:
    """Replace the table of a device without a pool by one line.

    :raises PoolError: if that is not possible; the device then works as before
    """
    info = tidy(dm, pools.find(dm, device))
    with _Steps(dm, info, dm.table(info.name)) as steps:
        if pools.mapping_of(dm, info) is not None and line.target != pools.TARGET:
            steps.put_back((line,), force=False)
        else:
            steps.swap([line])


def _leave_pool(dm: Dm, store: Store, info: Info, mapping: Mapping, say: Say, *,
                force: bool) -> bool:
    """Remove a device from its pool.

    :return: False if the volume cannot be cleared and the device still uses the pool
    """
    found = pools.pool(dm, _name(dm, mapping))
    cache = pools.cache_state(dm, info)
    state = cache.state if cache else "lost"
    if state in pools.LOST and not force:
        left = f"{cache.dirty / (1 << 20):.1f} MiB of dirty data" if cache else "dirty data"
        raise PoolError(f"the cache of {info.name} has failed with {left}; --force discards it, "
                        "and the origin then has older data")
    if state in pools.FAILED:
        # From now on the data in the cache is older than the origin.
        owners.outdate(store, found.info.name, pools.identity(info), mapping.volume)
        return False
    if mapping.mode == "writeback":
        drain(dm, info, say)
    # Writes may have come since the drain; only the target can check this atomically.
    with _Steps(dm, info, dm.table(info.name)) as steps:
        steps.swap([mapping.plain().line()])
    # A store that cannot be written keeps the number, of which the pool has no data then.
    with contextlib.suppress(PoolError, sqlite3.OperationalError):
        pools.drop(dm, store, found.info.name, mapping.volume, force=False)
    return True


def _name(dm: Dm, mapping: Mapping) -> str:
    info = dm.info(mapping.pool) if mapping.pool else None
    if info is None:
        raise PoolError(f"the pool {mapping.pool} no longer exists")
    return info.name


def _attached_already(info: Info, mapping: Mapping, found: pools.Pool, mode: str,
                      volume: int | None, scope: str | None) -> str:
    same = mapping.pool == found.info.number and volume in (None, mapping.volume) \
        and scope in (None, mapping.scope)
    if not same:
        raise PoolError(f"{info.name} is already volume {mapping.volume} of pool {mapping.pool} "
                        f"({mapping.scope}): detach it first")
    if mode != mapping.mode:
        raise PoolError(f"{info.name} is attached in mode {mapping.mode}: change it with "
                        f"'vcache mode {info.name} {mode}'")
    return f"{info.name} is already volume {mapping.volume} of pool {found.info.name}"


def scope_of(dm: Dm, mapping: Mapping | None, name: str, asked: str | None) -> str:
    """Return the scope of a device.

    :param mapping: its present table; None: it is not a vcache device
    :param asked: the wanted scope; None: the present one
    :raises PoolError: if that is not possible
    """
    if mapping is None and asked is None:
        raise PoolError(f"{name} needs --tag N (the device is one virtual disk) or "
                        "--filesystem (the device has a file system with disk images)")
    if mapping is not None:
        if asked not in (None, mapping.scope):
            raise PoolError(f"{name} is a vcache device of scope '{mapping.scope}', which "
                            "cannot change: omit --tag and --filesystem")
        return mapping.scope
    assert asked is not None  # noqa: S101 - see above
    for other in pools.devices(dm):
        theirs = pools.mapping_of(dm, other)
        if asked != "filesystem" and theirs is not None and theirs.scope == asked:
            raise PoolError(f"tag {asked.split()[1]} is the tag of {other.name}: choose a tag "
                            "that no other device of the host has")
    return asked


def _check_table(info: Info, lines: Lines) -> None:
    if not lines:
        raise PoolError(f"{info.name} has no table")
    if info.readonly:
        raise PoolError(f"{info.name} is read-only, must be writable")
    other = sorted({line.target for line in lines} - set(TWICE))
    if other:
        raise PoolError(f"{info.name} has dm target {', '.join(other)}, must be one of "
                        f"{', '.join(TWICE)} (logical volumes), or vcache in mode flush-only; "
                        f"with --above, a new device {info.name}-vcache has the cache")
    if len(info.name) + len(SUFFIX) > NAME_MAX:
        raise PoolError(f"the name {info.name} is too long, must have at most "
                        f"{NAME_MAX - len(SUFFIX)} characters")


def _check_place(dm: Dm, info: Info, found: pools.Pool) -> None:
    """Refuse a device that is below the pool, or that is in mode none."""
    if info.number in sysfs.below([found.info.number, found.cache]):
        raise PoolError(f"pool {found.info.name} is itself on {info.name}")
    mapping = pools.mapping_of(dm, info)
    if mapping is not None and mapping.mode == "none":
        raise PoolError(f"{info.name} is in mode none, must be in mode flush-only")


def _hidden_uuid(info: Info) -> str:
    return (_UUID + pools.identity(info))[:128]


def _hidden(dm: Dm, info: Info) -> Info | None:
    """Return the origin device of a device, by its name, if there is one."""
    return dm.info(info.name + SUFFIX) if len(info.name) + len(SUFFIX) <= NAME_MAX else None


def origin_of(dm: Dm, mapping: Mapping) -> Info | None:
    """Return the origin device below a device, if attach created it."""
    info = dm.info(mapping.origin)
    return info if info is not None and info.uuid.startswith(_UUID) else None


def tidy(dm: Dm, info: Info) -> Info:
    """Clean up after a call that was killed; return the device as it is then."""
    hidden = _hidden(dm, info)
    if hidden is not None and hidden.uuid != _hidden_uuid(info):
        raise PoolError(f"a device {hidden.name} exists that this command did not create: rename "
                        "or remove it")
    if info.inactive:
        _drop_loaded(dm, info, hidden)
    if info.suspended:
        _wake(dm, info, hidden)
    mapping = pools.mapping_of(dm, info)
    if hidden is not None and (mapping is None or mapping.origin != hidden.number):
        _remove(dm, hidden)
    again = dm.info(info.number)
    if again is None:
        raise PoolError(f"{info.name} was removed meanwhile")
    return again


def _drop_loaded(dm: Dm, info: Info, hidden: Info | None) -> None:
    """Drop the inactive table of a device, if attach or detach loaded it."""
    loaded = dm.table(info.name, inactive=True)
    mapping = pools.mapping_of(dm, info)
    ours = any(line.target == pools.TARGET for line in loaded) or (
        hidden is not None and hidden.active and loaded == dm.table(hidden.name)) or (
        mapping is not None and loaded == (mapping.bypass(),))
    if not ours:
        raise PoolError(f"another program is changing the table of {info.name}: try again later")
    dm.clear(info.name)


def _wake(dm: Dm, info: Info, hidden: Info | None) -> None:
    """Resume a device that a killed call left suspended."""
    if hidden is None and pools.mapping_of(dm, info) is None:
        raise PoolError(f"another program has suspended {info.name}: run 'dmsetup resume "
                        f"{info.name}' if that program no longer runs")
    words = KernelWords()
    try:
        dm.resume(info.name)
    except DmError as error:
        problem = (f"{info.name} is suspended and cannot be resumed: "
                   f"{words.last() or error.strerror}")
        # A table that was never active has no data in the cache.
        if hidden is None or not hidden.active or pools.cache_state(dm, info) is not None:
            raise PoolError(problem) from None
        try:
            dm.load(info.name, dm.table(hidden.name))
            dm.resume(info.name)
        except DmError as second:
            raise PoolError(f"{problem}; resuming it with the table of {hidden.name} also "
                            f"failed: {second.strerror}") from None
    finally:
        words.close()


def _remove(dm: Dm, hidden: Info) -> None:
    """Remove an origin device; wait up to 5 s, because udev may still have it open."""
    limit = time.monotonic() + _REMOVE
    while True:
        try:
            dm.remove(hidden.name, HIDDEN)
        except DmError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() > limit:
                raise PoolError(f"{hidden.name} is no longer needed, but still open: close it and "
                                "run the command again") from None
            time.sleep(_LOOK)
        else:
            return


def length_of(lines: Lines) -> int:
    """Return the size of a device in sectors."""
    return sum(line.length for line in lines)


class _Steps:
    """The steps of a change; if one fails, the previous ones are undone.

    Signals that would end the process are blocked until the change is complete.

    :param lines: the table to restore
    """

    def __init__(self, dm: Dm, info: Info, lines: Lines) -> None:
        self._dm = dm
        self._info = info
        self._lines = lines
        self._made: Info | None = None
        self._words = KernelWords()

    def __enter__(self) -> "_Steps":
        # Delay signals: a change that is half done is worse than a short wait.
        self._mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: object) -> None:
        reason, trouble = self._words.last(), ""
        try:
            if error is not None:
                trouble = self._undo()
        finally:
            self._words.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if isinstance(error, DmError):
            text = reason or error.strerror
            raise PoolError(f"{self._info.name}: {text}; {trouble}" if trouble
                            else f"{self._info.name} is unchanged: {text}") from None
        if trouble and isinstance(error, PoolError):
            raise PoolError(f"{error}; {trouble}") from None
        if trouble and error is not None:
            error.add_note(trouble)

    def hide(self) -> Info:
        """Create the origin device with the table of the device; return it."""
        name = self._info.name + SUFFIX
        self._dm.create(name, _hidden_uuid(self._info))
        self._made = self._dm.info(name)
        assert self._made is not None  # noqa: S101 - it was made just now
        self._dm.load(name, self._lines)
        self._dm.resume(name, HIDDEN)
        return self._made

    def swap(self, lines: list[Line] | Lines) -> None:
        """Replace the table by one ioctl."""
        self._dm.load(self._info.name, lines)
        with _memory_locked():
            try:
                self._dm.resume(self._info.name)
            except DmError:
                # The device may be suspended now, even with this program on it. If this
                # fails, __exit__() tries again and reports it.
                with contextlib.suppress(DmError):
                    self._restore()
                raise
        self._lines = tuple(lines)

    def put_back(self, lines: Lines, *, force: bool) -> None:
        """Replace the table by one without the target, if the target buffers no data.

        :raises PoolError: if the origin refuses data that the target buffers, without `force`
        """
        name = self._info.name
        if not force:
            flush(self._info)
        self._dm.load(name, lines)
        with _memory_locked():
            self._dm.suspend(name)
            left = pools.buffered(self._dm, self._info)
            if left and not force:
                self._dm.clear(name)
                self._dm.resume(name)
            else:
                self._dm.resume(name)
        if left and not force:
            raise PoolError(f"the origin of {name} refuses writes, {left >> 10} KiB are only in "
                            "memory; run the command again when the origin works")

    def _restore(self) -> None:
        info = self._dm.info(self._info.name)
        if info is None:
            return
        if info.inactive:
            self._dm.clear(info.name)
        if info.suspended:
            self._dm.load(info.name, self._lines)
            self._dm.resume(info.name)

    def _undo(self) -> str:
        """Restore the table and remove the origin device; return the error text, or nothing."""
        name = self._info.name
        try:
            self._restore()
        except DmError as error:
            return (f"restoring its table also failed: {error.strerror}; {name} may be "
                    "suspended, run the command again")
        if self._made is not None:
            try:
                self._dm.remove(self._made.name, HIDDEN)
            except DmError as error:
                return (f"{name} is unchanged, but removing {self._made.name} also failed: "
                        f"{error.strerror}; the next command for {name} removes it")
        return ""


def flush(info: Info) -> None:
    """Write all buffered data of a device to the origin.

    :raises PoolError: if the origin refuses it
    """
    try:
        fd = os.open(info.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PoolError(f"{info.path}: {error.strerror}") from None
    try:
        os.fsync(fd)
    except OSError as error:
        raise PoolError(f"the origin of {info.name} refuses writes ({error.strerror}), data is "
                        "only in memory; run the command again when the origin works") from None
    finally:
        os.close(fd)


@contextlib.contextmanager
def _memory_locked() -> Iterator[None]:
    """Lock the program in memory: its file may be on the device that is suspended."""
    libc = ctypes.CDLL(None)
    locked = libc.mlockall(_LOCK_ALL) == 0
    try:
        yield
    finally:
        if locked:
            libc.munlockall()
