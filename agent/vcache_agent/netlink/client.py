# SPDX-License-Identifier: Apache-2.0
"""Client of the generic-netlink family "vcache".

The messages are pyroute2's, generated from the family's specification. The
socket is not pyroute2's, because every call needs a time limit and must work in
any thread.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from vcache_agent.model import (
    HISTOGRAMS,
    Curve,
    Device,
    DeviceNumber,
    Extent,
    Lane,
    Stats,
    Tag,
)
from vcache_agent.netlink import bulk, encode, messages, spec
from vcache_agent.netlink.errors import ModuleNotLoaded, NetlinkError, NetlinkTimeout
from vcache_agent.netlink.pyroute2_base import ctrlmsg, genlmsg
from vcache_agent.packed_extents import pack

# From linux/netlink.h and linux/genetlink.h; Python's socket module lacks them.
_NETLINK_GENERIC = 16
_SOL_NETLINK = 270
_NETLINK_ADD_MEMBERSHIP = 1
_NETLINK_NO_ENOBUFS = 5
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11
_NLM_F_REQUEST = 0x1
_NLM_F_ACK = 0x4
_NLM_F_DUMP_INTR = 0x10
_NLM_F_DUMP = 0x300
_NLM_F_ACK_TLVS = 0x200
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLMSGERR_ATTR_MSG = 1
_GENL_ID_CTRL = 16
_CTRL_CMD_GETFAMILY = 3

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 17

# The length of an attribute has 16 bits; this many extents are 32 KiB.
EXTENTS_PER_MESSAGE = 2048

# Attempts to read a dump, which a concurrent change can interrupt.
_DUMP_TRIES = 10

T = TypeVar("T")
U = TypeVar("U")


class _Socket:
    """A generic-netlink socket for the family."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._sequence = 0
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC,
                                     _NETLINK_GENERIC)
        try:
            self._socket.bind((0, 0))
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
            self.family, self.groups = self._resolve()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _resolve(self) -> tuple[int, dict[str, int]]:
        body = encode.request(ctrlmsg, _CTRL_CMD_GETFAMILY, 1,
                              [("CTRL_ATTR_FAMILY_NAME", spec.FAMILY_NAME)])
        try:
            answer = next(iter(self._exchange(body, _GENL_ID_CTRL, 0)), None)
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            answer = None
        if answer is None:
            raise ModuleNotLoaded(
                errno.ENOENT, "the kernel has no netlink family 'vcache': "
                "load the module dm-vcache (modprobe dm-vcache)")
        decoded = _decode(ctrlmsg, answer)
        groups = {
            group.get_attr("CTRL_ATTR_MCAST_GRP_NAME"): group.get_attr("CTRL_ATTR_MCAST_GRP_ID")
            for group in decoded.get_attr("CTRL_ATTR_MCAST_GROUPS") or ()}
        return decoded.get_attr("CTRL_ATTR_FAMILY_ID"), groups

    def request(self, command: spec.Command, attributes: Sequence[tuple[str, Any]],
                flags: int = 0) -> list[genlmsg]:
        """Send a request and return the decoded answers.

        :raises NetlinkError: if the kernel refuses it, or a change interrupts a dump (EINTR)
        :raises NetlinkTimeout: if the time limit passes
        """
        kind = messages.MESSAGES[command]
        return [_decode(kind, data) for data in self.raw(command, attributes, flags)]

    def raw(self, command: spec.Command, attributes: Sequence[tuple[str, Any]],
            flags: int = 0) -> list[bytes]:
        """Send a request and return the answers as they came; see :meth:`request`."""
        return self._exchange(
            encode.request(messages.MESSAGES[command], command, spec.FAMILY_VERSION, attributes),
            self.family, flags)

    def _exchange(self, body: bytes, kind: int, flags: int) -> list[bytes]:
        """Send a message; return the raw answers up to the acknowledgement."""
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | _NLM_F_ACK | flags,
                              self._sequence, 0)
        deadline = time.monotonic() + self._timeout
        self._wait_at_most(self._timeout)
        try:
            self._socket.sendto(header + body, (0, 0))
        except TimeoutError:
            raise NetlinkTimeout(errno.ETIMEDOUT, "the kernel did not accept the request") from None
        answers: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, sequence, data in self._receive():
                if sequence != self._sequence:
                    continue  # the late answer to a request that has timed out
                interrupted |= bool(flags & _NLM_F_DUMP_INTR)
                if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                    _raise_error(kind, flags, data)
                    if interrupted:
                        raise NetlinkError(errno.EINTR, "the dump was interrupted by a change")
                    return answers
                answers.append(data)
            left = deadline - time.monotonic()
            if left <= 0:
                raise NetlinkTimeout(errno.ETIMEDOUT, f"no answer within {self._timeout:g} s")
            self._wait_at_most(left)

    def join(self, group: str) -> None:
        """Join a multicast group."""
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, self.groups[group])
        # A lost event is not an error: listeners read the complete state anyway.
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)

    def listen(self, seconds: float) -> list[tuple[int, bytes]]:
        """Return (type, message) of one datagram, or nothing after the time limit."""
        self._wait_at_most(seconds)
        try:
            return [(kind, data) for kind, _, _, data in self._receive()]
        except NetlinkTimeout:
            return []

    def _wait_at_most(self, seconds: float) -> None:
        """Limit each wait for a datagram; a system call is only needed for another limit."""
        if self._socket.gettimeout() != seconds:
            self._socket.settimeout(seconds)

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield (type, flags, sequence, whole message) of one datagram."""
        try:
            data, (sender, _) = self._socket.recvfrom(_RECEIVE_BYTES)
        except TimeoutError:
            raise NetlinkTimeout(errno.ETIMEDOUT, f"no answer within {self._timeout:g} s") from None
        if sender != 0:
            return  # any process may send to this socket; only the kernel has port 0
        offset = 0
        while offset + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
            if length < _HEADER.size or offset + length > len(data):
                raise NetlinkError(errno.EBADMSG, "the kernel sent a truncated message")
            yield kind, flags, sequence, data[offset:offset + length]
            offset += (length + 3) & ~3


def _decode(kind: type[genlmsg], data: bytes) -> genlmsg:
    message = kind(data=data)
    message.decode()
    return message


def _raise_error(kind: int, flags: int, data: bytes) -> None:
    """Raise the error of an acknowledgement, if it has one."""
    if len(data) < _HEADER.size + 4:
        return  # NLMSG_DONE without a status
    code = -int.from_bytes(data[_HEADER.size:_HEADER.size + 4], "little", signed=True)
    if code <= 0:
        return
    # The header of the request follows an error, even with NETLINK_CAP_ACK.
    offset = _HEADER.size + 4 + (_HEADER.size if kind == _NLMSG_ERROR else 0)
    text = _error_text(data, offset) if flags & _NLM_F_ACK_TLVS else ""
    text = text or os.strerror(code)
    if code in (errno.EPERM, errno.EACCES) and "CAP_SYS_ADMIN" not in text:
        text += " (CAP_SYS_ADMIN is required, run as root)"
    raise NetlinkError(code, text)


def _error_text(data: bytes, offset: int) -> str:
    """Return the text of an extended acknowledgement."""
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        if kind == _NLMSGERR_ATTR_MSG:
            value = data[offset + _ATTRIBUTE.size:offset + length]
            return value.rstrip(b"\0").decode("utf-8", "replace")
        offset += (length + 3) & ~3
    return ""


class Client:
    """Client of the family, for one thread at a time.

    All methods raise :class:`NetlinkError` if the kernel refuses a request, and
    :class:`NetlinkTimeout` if it does not answer in time.

    :param timeout: time limit of a request in seconds
    :param decoder: decodes dumps of tags; that of another client saves the time for tags
        that have not changed since
    :raises ModuleNotLoaded: if the kernel does not have the family
    """

    def __init__(self, timeout: float = 5.0, decoder: bulk.TagDecoder | None = None) -> None:
        self._decoder = decoder or bulk.TagDecoder()
        self._socket = _Socket(timeout)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def devices(self) -> list[Device]:
        """Return all mapped devices of the target."""
        return [_decoded(bulk.device, data)
                for data in self._raw_dump(spec.Command.DEVICE_GET, ())]

    def device_set(self, device: DeviceNumber, *, nsid: int, tag_max: int = 0,
                   instance: int = 0) -> None:
        """Enable the tags of a device's origin; see :mod:`vcache_agent.nvme`.

        :param nsid: namespace identifier of the origin; 0: disable its tags
        :param tag_max: largest supported tag
        :param instance: power-on instance of the drive
        """
        attributes = [("VCACHE_A_DEVICE_MAJOR", device.major),
                      ("VCACHE_A_DEVICE_MINOR", device.minor),
                      ("VCACHE_A_DEVICE_ORIGIN_NSID", nsid)]
        if nsid:
            attributes += [("VCACHE_A_DEVICE_ORIGIN_TAG_MAX", tag_max),
                           ("VCACHE_A_DEVICE_ORIGIN_INSTANCE", instance)]
        self._socket.request(spec.Command.DEVICE_SET, attributes)

    def tags(self, device: DeviceNumber | None = None) -> list[Tag]:
        """Return the tags of a device; None: of all devices."""
        attributes = _device_attributes(device) if device else []
        return list(_decoded(self._decoder.tags, self._raw_dump(spec.Command.TAG_GET, attributes)))

    def snapshot(self, decoder: bulk.TagDecoder) -> tuple[tuple[Device, ...], tuple[Tag, ...]]:
        """Return all devices and all tags, by a fast decoder.

        :param decoder: the decoder of the previous call, which remembers its tags
        :raises ValueError: if the kernel sends a malformed message
        """
        devices = self._raw_dump(spec.Command.DEVICE_GET, ())
        return (tuple(map(bulk.device, devices)),
                decoder.tags(self._raw_dump(spec.Command.TAG_GET, ())))

    def tag(self, device: DeviceNumber, number: int) -> Tag:
        """Return one tag."""
        return _tag(self._answer(spec.Command.TAG_GET, _tag_attributes(device, number)))

    def curve(self, device: DeviceNumber, number: int) -> Curve:
        """Return the miss-ratio curve of a tag.

        :raises NetlinkError: with ENODATA if the tag has no cache, or no sample
        """
        return _curve(self._answer(spec.Command.CURVE_GET, [
            ("VCACHE_A_CURVE_MAJOR", device.major), ("VCACHE_A_CURVE_MINOR", device.minor),
            ("VCACHE_A_CURVE_ID", number)]))

    def curves(self) -> dict[tuple[DeviceNumber, int], Curve]:
        """Return the miss-ratio curves of all tags that have one, by device and number.

        :raises NetlinkError: with EOPNOTSUPP if the loaded module is too old
        """
        return {
            (DeviceNumber(message.get_attr("VCACHE_A_CURVE_MAJOR"),
                          message.get_attr("VCACHE_A_CURVE_MINOR")),
             message.get_attr("VCACHE_A_CURVE_ID")): _curve(message)
            for message in self._dump(spec.Command.CURVE_GET, ())}

    def lanes(self) -> tuple[Lane, ...]:
        """Return the lanes of all pools; empty if the loaded module is too old."""
        try:
            dump = self._raw_dump(spec.Command.LANE_GET, ())
        except NetlinkError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return ()
        return tuple(_decoded(bulk.lane, data) for data in dump)

    def tag_set(self, device: DeviceNumber, number: int, *, name: str | None = None,
                weight: int | None = None, cgroups: Sequence[int] | None = None,
                mode: spec.Mode | None = None, cache_min: int | None = None,
                cache_max: int | None = None, cache_lanes: int | None = None) -> None:
        """Create or change a tag; parameters that are None stay unchanged.

        :param weight: 1 to 1000
        :param cgroups: cgroup ids, which replace those of the tag; empty: none
        :param mode: mode of the tag, on a device in mode writeback
        :param cache_min: lower bound of its share of the cache in bytes
        :param cache_max: upper bound of its cached data in bytes; 0: no limit
        :param cache_lanes: bit mask of its dedicated lanes; 0: none
        """
        attributes = _tag_attributes(device, number)
        if name is not None:
            attributes.append(("VCACHE_A_TAG_NAME", name))
        if weight is not None:
            attributes.append(("VCACHE_A_TAG_WEIGHT", weight))
        if mode is not None:
            attributes.append(("VCACHE_A_TAG_MODE", int(mode)))
        if cache_min is not None:
            attributes.append(("VCACHE_A_TAG_CACHE_MIN_BYTES", cache_min))
        if cache_max is not None:
            attributes.append(("VCACHE_A_TAG_CACHE_MAX_BYTES", cache_max))
        if cache_lanes is not None:
            attributes.append(("VCACHE_A_TAG_CACHE_LANES", cache_lanes))
        if cgroups is not None:
            attributes += [("VCACHE_A_TAG_CGROUP", cgroup) for cgroup in list(cgroups) or [0]]
        self._socket.request(spec.Command.TAG_SET, attributes)

    def tag_del(self, device: DeviceNumber, number: int) -> None:
        """Remove a tag; its buffered data gets the host tag."""
        self._socket.request(spec.Command.TAG_DEL, _tag_attributes(device, number))

    def set_extents(self, device: DeviceNumber, number: int, extents: Sequence[Extent]) -> None:
        """Replace the extents of a tag, with several messages if necessary.

        :raises NetlinkError: with EEXIST if a sector belongs to another tag, with E2BIG if there
            are more than the kernel's limit
        """
        self._send_extents(spec.Command.TAG_EXTENTS, _tag_attributes(device, number),
                           {"EXTENTS": extents})

    def change_extents(self, device: DeviceNumber, number: int, remove: Sequence[Extent],
                       add: Sequence[Extent]) -> tuple[int, int]:
        """Remove extents from a tag and add others, as a whole.

        :param remove: sorted; sectors that the tag does not have are ignored
        :param add: sorted; sectors that the tag has are ignored
        :return: number of extents of the tag after the change, and their sectors
        :raises NetlinkError: with EOPNOTSUPP if the kernel does not know the command, else as
            :meth:`set_extents`; then nothing has changed
        """
        answer = self._send_extents(
            spec.Command.TAG_EXTENTS_CHANGE, _tag_attributes(device, number),
            {"EXTENTS_REMOVE": remove, "EXTENTS": add})
        if not answer:
            raise NetlinkError(errno.EBADMSG, "the kernel sent no answer")
        return (answer[0].get_attr("VCACHE_A_TAG_EXTENTS_COUNT"),
                answer[0].get_attr("VCACHE_A_TAG_EXTENTS_SECTORS"))

    def _send_extents(self, command: spec.Command, tag: Sequence[tuple[str, Any]],
                      lists: Mapping[str, Sequence[Extent]]) -> list[genlmsg]:
        """Send lists of extents in as few messages as possible; return the last answer."""
        most = max(map(len, lists.values()))
        starts = range(0, most, EXTENTS_PER_MESSAGE) or range(1)
        for start in starts:
            attributes = list(tag)
            for name, extents in lists.items():
                chunk = extents[start:start + EXTENTS_PER_MESSAGE]
                if chunk:
                    attributes.append((f"VCACHE_A_TAG_{name}", pack(chunk).data))
            if start == starts[0]:
                attributes.append(("VCACHE_A_TAG_EXTENTS_BEGIN", None))
            if start == starts[-1]:
                attributes.append(("VCACHE_A_TAG_EXTENTS_COMMIT", None))
            answer = self._socket.request(command, attributes)
        return answer

    def cached(self, device: DeviceNumber, number: int) -> list[spec.CachedRun]:
        """Return the cached blocks of a tag, unsorted.

        :param number: the tag, which may have been removed
        """
        found: list[spec.CachedRun] = []
        for message in self._dump(spec.Command.CACHE_MAP_GET, _cached_attributes(device, number)):
            found += map(spec.CachedRun._make, spec.CACHED_RUN_LAYOUT.iter_unpack(
                _binary(message.get_attr("VCACHE_A_CACHED_RUNS"))))
        return found

    def prefetch(self, device: DeviceNumber, number: int, runs: Sequence[spec.CachedRun]) -> None:
        """Request blocks to be loaded into the cache, after those of earlier calls.

        :param runs: sorted runs, at most :data:`spec.PREFETCH_RUNS_MAX`
        :raises NetlinkError: with EBUSY if too many runs already wait
        """
        self._socket.request(spec.Command.CACHE_PREFETCH, [
            *_cached_attributes(device, number),
            ("VCACHE_A_CACHED_RUNS",
             b"".join(spec.CACHED_RUN_LAYOUT.pack(*run) for run in runs))])

    def saved(self, device: DeviceNumber, number: int, runs: Sequence[spec.CachedRun] = (), *,
              begin: bool = False) -> int:
        """Add blocks to the saved blocks of a tag; return the token of their session.

        :param runs: sorted runs, at most :data:`spec.PREFETCH_RUNS_MAX`
        :param begin: begin a new session; without runs, there is none then
        :return: 0: there is no session
        """
        attributes = _cached_attributes(device, number)
        if runs:
            attributes.append(("VCACHE_A_CACHED_RUNS",
                               b"".join(spec.CACHED_RUN_LAYOUT.pack(*run) for run in runs)))
        if begin:
            attributes.append(("VCACHE_A_CACHED_SAVED_BEGIN", True))
        answer = self._answer(spec.Command.CACHE_SAVED, attributes)
        return int(answer.get_attr("VCACHE_A_CACHED_TOKEN") or 0)

    def fill(self, device: DeviceNumber, number: int, token: int, start: int, heat: int,
             data: bytes) -> None:
        """Put saved data into the cache, except for blocks written since they were saved.

        :param token: of the session of the blocks
        :param start: first sector of the blocks
        :param data: their data, at most :data:`spec.FILL_BLOCKS_MAX` blocks
        :raises NetlinkError: with ESTALE if the session has ended, with EBUSY or ENOSPC if this
            is not possible now
        """
        self._socket.request(spec.Command.CACHE_FILL, [
            *_cached_attributes(device, number), ("VCACHE_A_CACHED_TOKEN", token),
            ("VCACHE_A_CACHED_START", start), ("VCACHE_A_CACHED_HEAT", heat),
            ("VCACHE_A_CACHED_DATA", data)])

    def cache_drop(self, device: DeviceNumber, number: int) -> tuple[int, int]:
        """Release some clean chunks of a tag.

        :return: bytes of the chunks that are left, and of those that are dirty
        """
        answer = self._answer(spec.Command.CACHE_DROP, _cached_attributes(device, number))
        return (answer.get_attr("VCACHE_A_CACHED_CACHED_BYTES") or 0,
                answer.get_attr("VCACHE_A_CACHED_CACHE_DIRTY_BYTES") or 0)

    def _answer(self, command: spec.Command, attributes: Sequence[tuple[str, Any]]) -> genlmsg:
        answers = self._socket.request(command, attributes)
        if not answers:
            raise NetlinkError(errno.EBADMSG, "the kernel sent no answer")
        return answers[0]

    def _dump(self, command: spec.Command,
              attributes: Sequence[tuple[str, Any]]) -> list[genlmsg]:
        kind = messages.MESSAGES[command]
        return [_decode(kind, data) for data in self._raw_dump(command, attributes)]

    def _raw_dump(self, command: spec.Command,
                  attributes: Sequence[tuple[str, Any]]) -> list[bytes]:
        for _ in range(_DUMP_TRIES - 1):
            try:
                return self._socket.raw(command, attributes, _NLM_F_DUMP)
            except NetlinkError as error:
                if error.errno != errno.EINTR:
                    raise
        return self._socket.raw(command, attributes, _NLM_F_DUMP)


class EventListener:
    """Receives the family's events.

    :raises ModuleNotLoaded: if the kernel does not have the family
    """

    def __init__(self) -> None:
        self._socket = _Socket(5.0)
        self._socket.join(spec.MCGRP_EVENTS)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def receive(self, timeout: float) -> list[tuple[spec.EventKind, DeviceNumber, int]]:
        """Wait for events; return (kind, device, tag) of each.

        :param timeout: in seconds; after it the result is empty
        """
        events = []
        for kind, data in self._socket.listen(timeout):
            if kind != self._socket.family:
                continue
            message = _decode(messages.EventMessage, data)
            try:
                what = spec.EventKind(message.get_attr("VCACHE_A_EVENT_KIND"))
            except ValueError:
                continue  # an event of a newer module
            number = DeviceNumber(message.get_attr("VCACHE_A_EVENT_MAJOR"),
                                  message.get_attr("VCACHE_A_EVENT_MINOR"))
            events.append((what, number, message.get_attr("VCACHE_A_EVENT_TAG")))
        return events


def _device_attributes(device: DeviceNumber) -> list[tuple[str, Any]]:
    return [("VCACHE_A_TAG_MAJOR", device.major), ("VCACHE_A_TAG_MINOR", device.minor)]


def _tag_attributes(device: DeviceNumber, number: int) -> list[tuple[str, Any]]:
    return [*_device_attributes(device), ("VCACHE_A_TAG_ID", number)]


def _cached_attributes(device: DeviceNumber, number: int) -> list[tuple[str, Any]]:
    return [("VCACHE_A_CACHED_MAJOR", device.major), ("VCACHE_A_CACHED_MINOR", device.minor),
            ("VCACHE_A_CACHED_ID", number)]


def _decoded(decode: Callable[[T], U], data: T) -> U:
    """Return decoded data.

    :raises NetlinkError: if it is malformed
    """
    try:
        return decode(data)
    except ValueError as error:
        raise NetlinkError(errno.EBADMSG, f"the kernel sent a malformed message: {error}") from None


def _tag(message: genlmsg) -> Tag:
    def value(name: str) -> Any:
        return message.get_attr(f"VCACHE_A_TAG_{name}")

    return Tag(
        device=DeviceNumber(value("MAJOR"), value("MINOR")),
        id=value("ID"),
        name=value("NAME") or "",
        weight=value("WEIGHT") or 0,
        cgroups=frozenset(message.get_attrs("VCACHE_A_TAG_CGROUP")),
        extents_count=value("EXTENTS_COUNT") or 0,
        extents_sectors=value("EXTENTS_SECTORS") or 0,
        limit_bytes=value("LIMIT_BYTES") or 0,
        dirty_bytes=value("DIRTY_BYTES") or 0,
        inflight_bytes=value("INFLIGHT_BYTES") or 0,
        broken=_has(message, "VCACHE_A_TAG_BROKEN"),
        stats=_stats(value("STATS")),
        mode=spec.Mode(value("MODE") or 0),
        cached_bytes=value("CACHED_BYTES") or 0,
        cache_dirty_bytes=value("CACHE_DIRTY_BYTES") or 0,
        cache_min_bytes=value("CACHE_MIN_BYTES") or 0,
        cache_max_bytes=value("CACHE_MAX_BYTES") or 0,
        cache_share_bytes=value("CACHE_SHARE_BYTES") or 0,
        prefetch_waiting_bytes=value("PREFETCH_WAITING_BYTES") or 0,
        prefetched_bytes=value("PREFETCHED_BYTES") or 0,
        cache_lanes=value("CACHE_LANES") or 0,
        cache_own_bytes=value("CACHE_OWN_BYTES") or 0,
        cache_hot_bytes=value("CACHE_HOT_BYTES") or 0,
        dirty_age_ms=value("DIRTY_AGE_MS") or 0,
        cache_dirty_age_ms=value("CACHE_DIRTY_AGE_MS") or 0)


def _curve(message: genlmsg) -> Curve:
    def value(name: str) -> Any:
        return message.get_attr(f"VCACHE_A_CURVE_{name}")

    return Curve(
        grain=value("GRAIN_BYTES"), footprint=value("FOOTPRINT_BYTES"), reads=value("READS"),
        writes=value("WRITES"), read_misses=_numbers(value("READ_MISSES")),
        write_misses=_numbers(value("WRITE_MISSES")))


def _binary(value: Any) -> bytes:
    """Return a binary attribute as bytes."""
    return bytes.fromhex(value.replace(":", "")) if isinstance(value, str) else bytes(value or b"")


def _numbers(value: Any) -> tuple[int, ...]:
    """Return a binary attribute as 64-bit integers."""
    data = _binary(value)
    return struct.unpack(f"={len(data) // 8}Q", data[:len(data) // 8 * 8])


def _stats(nest: Any) -> Stats:
    if nest is None:
        return Stats()
    values: dict[str, Any] = {}
    for name, value in nest["attrs"]:
        field = name.removeprefix(messages.Stats.prefix).lower()
        if field in HISTOGRAMS:
            values[field] = _numbers(value)
        elif field in Stats.__dataclass_fields__:
            values[field] = value
    return Stats(**values)


def _has(message: genlmsg, name: str) -> bool:
    return any(attribute[0] == name for attribute in message["attrs"])
