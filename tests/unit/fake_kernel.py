# SPDX-License-Identifier: Apache-2.0
"""A kernel with the family "vcache": the other end of netlink sockets, with a state.

It answers in the format of the kernel, through the messages that are generated from the
specification. ``python -m tests.unit.fake_kernel STATE agent|cli ARGUMENTS`` runs the agent
or the command vcache on it, with the devices and tags of the last sample of the recording
STATE. Each dump adds the activity of a busy tag.
"""

import dataclasses
import errno
import socket
import struct
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.test_netlink_client import FAMILY, HEADER, FakeKernel, acknowledged, body, framed
from vcache_agent import pools
from vcache_agent.dm import Info
from vcache_agent.metrics.pool_watch import PoolWatch
from vcache_agent.model import Curve, Device, DeviceNumber, Lane, Stats, Tag
from vcache_agent.netlink import client, messages, spec
from vcache_agent.netlink.pyroute2_base import nla_base
from vcache_agent.observe.recording import read_samples
from vcache_agent.pools import CacheState, Mapping, Member, Pool

Answer = list[bytes]
AT = DeviceNumber(254, 3)
UUID = "11111111-2222-4333-8444-555555555555"


def attributes(kind: type[nla_base], item: Any) -> list[Any]:
    """Return the attributes of a device, tag or counters, as the kernel sends them."""
    found: list[Any] = []
    for name, form in kind.nla_map:
        value = getattr(item, name.removeprefix(kind.prefix).lower(), None)
        if name.endswith("_MAJOR") or name.endswith("_MINOR"):
            number = item.number if isinstance(item, Device) else \
                item.pool if isinstance(item, Lane) else item.device
            found.append((name, number.major if name.endswith("_MAJOR") else number.minor))
        elif name.endswith("_TAG_CGROUP"):
            found += [(name, cgroup) for cgroup in sorted(item.cgroups)]
        elif form == "Stats":
            found.append((name, {"attrs": attributes(messages.Stats, value)}))
        elif form == "flag":
            found += [(name, None)] if value else []
        elif form == "cdata" and value is not None:
            found.append((name, struct.pack(f"={len(value)}Q", *value)))
        elif form in ("uint32", "uint64", "asciiz") and value is not None:
            found.append((name, value if isinstance(value, str) else int(value)))
    return found


class Kernel:
    """The state behind all sockets.

    :param before_dump: called before each dump of tags

    With `silent` it answers nothing, and with `error` it refuses each request. With `old` it has
    no lanes, and no dump of curves. `asked` has the numbers of the tags whose curves were
    requested; -1: all.
    """

    def __init__(self, devices: tuple[Device, ...] = (), tags: tuple[Tag, ...] = (),
                 before_dump: Callable[["Kernel"], None] = lambda _: None) -> None:
        self.devices = devices
        self.tags = {(tag.device, tag.id): tag for tag in tags}
        self.silent = False
        self.error = 0
        self.old = False
        self.loaded = True
        self.dumps = 0
        self.lanes: tuple[Lane, ...] = ()
        self.curves: dict[int, Curve] = {}
        self.asked: list[int] = []
        self.before_dump = before_dump

    def socket(self, *_: object) -> "Socket":
        """Return a new socket."""
        return Socket(self)

    def answer(self, sequence: int, data: bytes) -> Answer:
        """Return the answer to a request."""
        command = spec.Command(data[HEADER.size])
        if self.silent:
            return []
        if self.error:
            return [acknowledged(sequence, self.error)]
        if command is spec.Command.DEVICE_GET:
            return self._dump(sequence, messages.DeviceMessage, list(self.devices))
        if command is spec.Command.TAG_GET:
            self.before_dump(self)
            self.dumps += 1
            return self._dump(sequence, messages.TagMessage, list(self.tags.values()))
        if command is spec.Command.LANE_GET and not self.old:
            return self._dump(sequence, messages.LaneMessage, list(self.lanes))
        message = messages.MESSAGES[command](data=data)
        message.decode()
        if command is spec.Command.CURVE_GET:
            number = message.get_attr("VCACHE_A_CURVE_ID")
            return self._curves(sequence) if number is None else self._curve(sequence, number)
        if command is spec.Command.LANE_GET:
            return [acknowledged(sequence, errno.EOPNOTSUPP)]
        key = (DeviceNumber(message.get_attr("VCACHE_A_TAG_MAJOR"),
                            message.get_attr("VCACHE_A_TAG_MINOR")),
               message.get_attr("VCACHE_A_TAG_ID"))
        if command is spec.Command.TAG_DEL:
            return [acknowledged(sequence, 0 if self.tags.pop(key, None) else errno.ENOENT)]
        return [acknowledged(sequence, errno.EOPNOTSUPP)]

    def _curve(self, sequence: int, number: int) -> Answer:
        self.asked.append(number)
        found = self.curves.get(number)
        if found is None:
            return [acknowledged(sequence, errno.ENODATA)]
        return [framed(FAMILY, 0, sequence, _curve_body(number, found)), acknowledged(sequence, 0)]

    def _curves(self, sequence: int) -> Answer:
        self.asked.append(-1)
        if self.old:
            return [acknowledged(sequence, errno.EOPNOTSUPP)]
        return [*(framed(FAMILY, 2, sequence, _curve_body(number, found))
                  for number, found in self.curves.items()),
                framed(3, 2, sequence, b"\0\0\0\0")]

    @staticmethod
    def _dump(sequence: int, kind: type[nla_base], items: list[Any]) -> Answer:
        command = next(one for one, of in messages.MESSAGES.items() if of is kind)
        return [*(framed(FAMILY, 2, sequence, body(kind(), command, attributes(kind, item)))
                  for item in items), framed(3, 2, sequence, b"\0\0\0\0")]

    def change(self, tag: int, **values: Any) -> None:
        """Change fields of a tag."""
        self.tags[AT, tag] = dataclasses.replace(self.tags[AT, tag], **values)


def _curve_body(number: int, found: Curve) -> bytes:
    return body(
        messages.CurveMessage(), spec.Command.CURVE_GET,
        [("VCACHE_A_CURVE_MAJOR", AT.major), ("VCACHE_A_CURVE_MINOR", AT.minor),
         ("VCACHE_A_CURVE_ID", number), ("VCACHE_A_CURVE_GRAIN_BYTES", found.grain),
         ("VCACHE_A_CURVE_FOOTPRINT_BYTES", found.footprint),
         ("VCACHE_A_CURVE_READS", found.reads), ("VCACHE_A_CURVE_WRITES", found.writes),
         *((f"VCACHE_A_CURVE_{name}", struct.pack(f"={len(points)}Q", *points))
           for name, points in (("READ_MISSES", found.read_misses),
                                ("WRITE_MISSES", found.write_misses)))])


class Socket(FakeKernel):
    """One socket; without an answer it waits as long as its time limit."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.answer = kernel.answer
        self.loaded = kernel.loaded
        self._seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if not self.pending:
            time.sleep(self._seconds)
        return super().recvfrom(size)


def install(kernel: Kernel) -> types.SimpleNamespace:
    """Return a replacement of the module socket, for netlink/client.py."""
    return types.SimpleNamespace(**{**vars(socket), "socket": kernel.socket})


def counts(**buckets: int) -> tuple[int, ...]:
    """Return a histogram; the names are b and the number of the bucket."""
    found = [0] * spec.HISTOGRAM_BUCKETS
    for name, count in buckets.items():
        found[int(name[1:])] = count
    return tuple(found)


def device(**values: Any) -> Device:
    return dataclasses.replace(
        Device(AT, "images", spec.Mode.WRITEBACK, spec.Scope.FILESYSTEM, spec.Isolation.FUA,
               1 << 21, "8:0", tags=3, pool="254:2", volume=1, dirty_bytes=8192), **values)


def tag(number: int = 9, **values: Any) -> Tag:
    """Return the tag of disk vda of a domain, with some activity."""
    return dataclasses.replace(
        Tag(AT, number, f"{UUID}:vda" if number else "", 250, frozenset({11, 12}) if number
            else frozenset(), 3, 2048, limit_bytes=1 << 20, dirty_bytes=4096,
            mode=spec.Mode.WRITEBACK, cached_bytes=5 << 20, cache_share_bytes=10 << 20,
            cache_lanes=0b110, stats=Stats(
                reads=100, read_bytes=409600, read_hit_bytes=4096, writes=50, write_bytes=204800,
                flushes=3, flush_ns=9_000_000, flush_hist=counts(b80=2, b127=1),
                wait_ns=1_500_000_000, cache_hit_bytes=204800, read_ns=5_000_000,
                read_hist=counts(b60=100))), **values)


def lane(number: int = 0, **values: Any) -> Lane:
    """Return a lane of the pool POOL, with some activity."""
    return dataclasses.replace(
        Lane(DeviceNumber(254, 2), number, free_bytes=3 << 20, reads=10, read_ns=20_000_000,
             writes=5, write_ns=5_000_000, busy_ns=12_000_000), **values)


def info(name: str, minor: int) -> Info:
    return Info(name, "", DeviceNumber(254, minor), 1, False, True, False, False)


def member(errors: int) -> Member:
    return Member(info("images", 3), Mapping(8, "writeback", DeviceNumber(8, 0), "filesystem"),
                  CacheState(1, "dirty", 1, 1, errors))


#: A pool of 1000 MiB with two devices.
POOL = pools.row(
    Pool(info("lab", 2), DeviceNumber(7, 0), "ok", 1 << 20, 1000, 400, 600, 50, 2, 1, reads=300,
         lanes=(5, 6)), [member(3), member(4)])


def grow(kernel: Kernel) -> None:
    """Add the activity of one second to the last tag: 100 reads, 10 flushes of 2.4 ms."""
    key, last = list(kernel.tags.items())[-1]
    old = last.stats
    flushes = list(old.flush_hist)
    flushes[80] += 10
    kernel.tags[key] = dataclasses.replace(last, stats=dataclasses.replace(
        old, reads=old.reads + 100, read_bytes=old.read_bytes + 409600,
        cache_hit_bytes=old.cache_hit_bytes + 204800, flushes=old.flushes + 10,
        flush_ns=old.flush_ns + 24_000_000, flush_hist=tuple(flushes)))


def main() -> int:
    """Run a command with a kernel that has the state of a recording."""
    from vcache_agent.cmd import agent, cli

    *_, sample = read_samples(Path(sys.argv[1]))
    kernel = Kernel(sample.devices, sample.tags, grow)
    kernel.lanes = sample.lanes or (lane(),)
    # The pools are device mapper's, which need not have any here.
    PoolWatch.rows = property(lambda _: (POOL,))  # type: ignore[assignment,method-assign]
    vars(client)["socket"] = install(kernel)
    return {"agent": agent, "cli": cli}[sys.argv[2]].main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
