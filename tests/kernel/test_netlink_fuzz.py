# SPDX-License-Identifier: Apache-2.0
"""Random requests, generated from native/netlink/vcache.yaml: most of them invalid.

Each request gets exactly one answer. A refused one changes nothing, and none changes data. The
console of the run shows what the kernel thinks of it.
"""

import random
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped
from vcache_agent.model import Tag
from vcache_agent.netlink.client import Client

NATIVE = Path(__file__).resolve().parents[2] / "native" / "netlink"
sys.path.insert(0, str(NATIVE))
from specfile import Attribute, Spec  # noqa: E402

SPEC = Spec((NATIVE / "vcache.yaml").read_text())
GENERIC = 16  # NETLINK_GENERIC
REQUEST, ACK, DUMP = 1, 4, 0x300
ERROR, DONE = 2, 3
NESTED, HEADER = 1 << 15, struct.Struct("=IHHII")
# So many requests, and more until each change has succeeded and failed, but not more than that.
REQUESTS, MOST = 2000, 20000
CHANGES = {"tag-set", "tag-del", "tag-extents", "tag-extents-change", "cache-prefetch",
           "cache-drop", "cache-saved"}


class Fuzzer:
    """Makes requests.

    :param seed: of all choices
    :param devices: whose numbers most requests have
    """

    def __init__(self, seed: int, devices: list[Mapped]) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self._devices = devices

    def number(self, size: int) -> int:
        most = (1 << 8 * size) - 1
        return self.rng.choice([0, 1, 2, 7, 16, 255, 4096, 65535, most, most - 1, most // 2,
                                self.rng.randrange(most + 1)]) & most

    def garbage(self) -> bytes:
        return self.rng.randbytes(self.rng.choice([0, 1, 2, 3, 4, 8, 16, 17, 64, 300]))

    def runs(self, layout: str) -> bytes:
        """Return extents or runs of blocks: sorted ones, which are valid, or any."""
        packed, unit = (struct.Struct("=QQ"), 1) if layout == "extent" else (
            struct.Struct("=QII"), 8)
        at, parts, valid = 0, [], self.rng.random() < 0.7
        for _ in range(self.rng.randrange(1, 20)):
            at += self.rng.randrange(8) * unit
            size = self.rng.randrange(1, 8) * unit
            parts.append(packed.pack(at, size, *[0] * (unit > 1)) if valid else
                         self.rng.randbytes(packed.size))
            at += size
        return b"".join(parts) + (b"" if valid else self.garbage())

    def value(self, attribute: Attribute, device: Mapped) -> bytes:
        if self.rng.random() < 0.05:
            return self.garbage()
        if attribute.name in ("major", "minor"):
            known = {"major": device.number.major, "minor": device.number.minor}
            return struct.pack("=I", known[attribute.name])
        if attribute.name == "id" and self.rng.random() < 0.8:
            return struct.pack("=I", self.rng.randrange(4))
        if attribute.kind in ("u32", "u64"):
            size = int(attribute.kind[1:]) // 8
            few = self.rng.random() < 0.6
            return (self.rng.randrange(5) if few else self.number(size)).to_bytes(
                size, sys.byteorder)
        if attribute.kind == "string":
            return self.rng.choice([b"name\0", b"", b"no end", b"a" * 127 + b"\0",
                                    b"a" * 128 + b"\0", self.garbage()])
        if attribute.kind == "binary":
            return self.runs(attribute.raw.get("struct", ""))
        return b""

    def attribute(self, attribute: Attribute, device: Mapped) -> bytes:
        value = self.value(attribute, device)
        kind, size = attribute.number, 4 + len(value)
        if self.rng.random() < 0.02:
            kind |= NESTED
        if self.rng.random() < 0.02:
            size = self.number(2)
        return struct.pack("=HH", size & 0xFFFF, kind) + value + bytes(-len(value) % 4)

    def request(self) -> tuple[str, int, int, bytes]:
        """Return the name of an operation, a command, flags, and attributes."""
        operation = self.rng.choice([one for one in SPEC.operations if one.requests])
        known = {one.name: one for one in SPEC.sets[operation.raw["attribute-set"]]}
        device = self.rng.choice(self._devices)
        names = [name for name in operation.request_attributes()
                 if name in ("major", "minor", "id", "extents", "extents-remove",
                             "runs") or
                 self.rng.random() < 0.5]
        if self.rng.random() < 0.1:
            names += self.rng.choices(list(known), k=3)
        if self.rng.random() < 0.1:
            self.rng.shuffle(names)
        names = [name for name in names if self.rng.random() > 0.02]
        body = b"".join(self.attribute(known[name], device) for name in names)
        command = operation.number if self.rng.random() > 0.02 else self.number(1)
        dump = "do" not in operation.raw or self.rng.random() < 0.1
        return operation.name, command, DUMP if dump else 0, body


def answer(link: socket.socket, family: int, nr: int, command: int, flags: int,
           body: bytes) -> int:
    """Send a request, with the sequence number nr, and read its answer; return its error."""
    payload = struct.pack("=BBH", command, 1, 0) + body
    link.send(HEADER.pack(HEADER.size + len(payload), family, REQUEST | ACK | flags, nr, 0) +
              payload)
    while True:
        got, at = link.recv(1 << 20), 0
        while at < len(got):
            size, kind, _flags, of, _port = HEADER.unpack_from(got, at)
            assert of == nr, "an earlier request has two answers"
            if kind in (ERROR, DONE):
                return -int(struct.unpack_from("=i", got, at + HEADER.size)[0])
            at += size + -size % 4


def settings(tags: list[Tag]) -> list[Any]:
    """Return what requests can change."""
    return [(tag.device, tag.id, tag.name, tag.weight, tag.cgroups, tag.extents_count,
             tag.extents_sectors, tag.mode, tag.cache_min_bytes, tag.cache_max_bytes,
             tag.cache_lanes) for tag in tags]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests(origin: str, client: Client, seed: int) -> None:
    with (stack.null_blk() as ssd, stack.pool(ssd) as pool,
          stack.cached(origin, pool, scope="filesystem") as device,
          stack.null_blk() as other, stack.vcache(other, "filesystem") as second,
          Disk(device.path) as disk,
          socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as link):
        disk.write(0, pattern(1, 64))
        disk.flush()
        link.bind((0, 0))
        link.settimeout(30)
        fuzzer = Fuzzer(seed, [device, second])
        before = settings(client.tags())
        done: set[str] = set()
        refused: set[str] = set()
        for nr in range(1, MOST + 1):
            if nr > REQUESTS and done & refused >= CHANGES:
                break
            name, command, flags, body = fuzzer.request()
            error = answer(link, client._socket.family, nr, command, flags, body)
            now = settings(client.tags())
            (refused if error else done).add(name)
            assert not error or now == before, (name, command, flags, body.hex(), error)
            before = now
        assert (CHANGES - done, CHANGES - refused) == (set(), set())
        assert disk.read(0, 64) == pattern(1, 64)
        disk.write(0, pattern(2, 64))
        disk.flush()
        assert disk.read(0, 64) == pattern(2, 64)
