# SPDX-License-Identifier: Apache-2.0
"""The generic-netlink family: tags, extents, dumps, refusals."""

import ctypes
import dataclasses
import errno
import os
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import dm, stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.stack import Mapped, mapped, null_blk, vcache
from vcache_agent.model import DeviceNumber, Extent, Stats, Tag
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import (
    CGROUPS_MAX,
    EXTENT_LAYOUT,
    NAME_MAX,
    Command,
    Isolation,
    Mode,
    Scope,
)

PREFIX = "VCACHE_A_TAG_"


@pytest.fixture
def filesystem(origin: str) -> Iterator[Mapped]:
    """Give a device in filesystem scope."""
    with vcache(origin, "filesystem") as device:
        yield device


def send(client: Client, command: Command, *attributes: tuple[str, Any]) -> None:
    """Send a request as given, valid or not."""
    client._socket.request(command, [(PREFIX + name, value) for name, value in attributes])


def number_of(device: Mapped) -> list[tuple[str, Any]]:
    return [("MAJOR", device.number.major), ("MINOR", device.number.minor)]


def test_device_is_described(origin: str, client: Client) -> None:
    assert client.devices() == []
    with vcache(origin) as device:
        [found] = client.devices()
        assert found.number == device.number
        assert found.name == device.name
        assert (found.mode, found.scope) == (Mode.FLUSH_ONLY, Scope.VOLUME)
        assert found.isolation == Isolation.FUA
        assert found.sectors == stack.sectors(origin)
        below = os.stat(origin).st_rdev
        assert found.origin == f"{os.major(below)}:{os.minor(below)}"
        assert (found.dirty_bytes, found.tags) == (0, 2)
        assert not found.suspended
        assert not found.broken
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 3))
        assert client.devices()[0].dirty_bytes == 3 * SECTOR
        device.suspend()
        assert client.devices()[0].suspended
        device.resume()
        assert not client.devices()[0].suspended
    assert client.devices() == []


def test_inactive_table_is_no_device(origin: str, client: Client) -> None:
    with stack.mapped(stack.linear(origin)) as device:
        device.load(stack.vcache_table(origin))
        assert client.devices() == []
        with pytest.raises(NetlinkError, match="no active vcache device"):
            client.tag(device.number, 7)
        dm.clear(device.name)
        assert client.devices() == []


@pytest.mark.quick
def test_tag_is_made_changed_and_removed(filesystem: Mapped, client: Client) -> None:
    assert [tag.id for tag in client.tags(filesystem.number)] == [0]
    client.tag_set(filesystem.number, 5, name="disk-5 ü", weight=300, cgroups=[12, 34])
    tag = client.tag(filesystem.number, 5)
    assert (tag.name, tag.weight, tag.cgroups) == ("disk-5 ü", 300, {12, 34})
    assert (tag.extents_count, tag.dirty_bytes, tag.inflight_bytes) == (0, 0, 0)
    assert tag.device == filesystem.number
    assert not tag.broken
    # Attributes that are not given do not change.
    client.tag_set(filesystem.number, 5, weight=1)
    tag = client.tag(filesystem.number, 5)
    assert (tag.name, tag.weight, tag.cgroups) == ("disk-5 ü", 1, {12, 34})
    client.tag_set(filesystem.number, 5, cgroups=[56])
    assert client.tag(filesystem.number, 5).cgroups == {56}
    client.tag_set(filesystem.number, 5, cgroups=[])
    assert client.tag(filesystem.number, 5).cgroups == set()
    client.tag_del(filesystem.number, 5)
    assert [tag.id for tag in client.tags(filesystem.number)] == [0]
    # The number can be reused, and nothing of the old tag remains.
    client.tag_set(filesystem.number, 5)
    tag = client.tag(filesystem.number, 5)
    assert (tag.name, tag.weight, tag.stats.writes) == ("", 100, 0)


def test_limits_of_values(filesystem: Mapped, client: Client) -> None:
    client.tag_set(filesystem.number, 65535, name="x" * NAME_MAX, weight=1000,
                   cgroups=range(1, CGROUPS_MAX + 1))
    tag = client.tag(filesystem.number, 65535)
    assert (len(tag.name), tag.weight, len(tag.cgroups)) == (NAME_MAX, 1000, CGROUPS_MAX)


#: Attributes in addition to the device's, the error and its text.
REFUSED: list[tuple[Command, list[tuple[str, Any]], int, str]] = [
    (Command.TAG_GET, [], errno.EINVAL, "id of the tag is required"),
    (Command.TAG_GET, [("ID", 9)], errno.ENOENT, "the device has no tag with this id"),
    (Command.TAG_GET, [("ID", 65536)], errno.ERANGE, "out of range"),
    (Command.TAG_SET, [], errno.EINVAL, "id of the tag is required"),
    (Command.TAG_SET, [("ID", 65536)], errno.ERANGE, "out of range"),
    (Command.TAG_SET, [("ID", 9), ("WEIGHT", 0)], errno.ERANGE, "out of range"),
    (Command.TAG_SET, [("ID", 9), ("WEIGHT", 1001)], errno.ERANGE, "out of range"),
    (Command.TAG_SET, [("ID", 9), ("NAME", "x" * (NAME_MAX + 1))], errno.EINVAL,
     "policy validation"),
    (Command.TAG_SET, [("ID", 9), *[("CGROUP", c + 1) for c in range(CGROUPS_MAX + 1)]],
     errno.EINVAL, "a tag can have at most 16 cgroups"),
    (Command.TAG_SET, [("ID", 9), ("CGROUP", 0), ("CGROUP", 1)], errno.EINVAL,
     "cgroup 0 empties the list"),
    (Command.TAG_SET, [("ID", 9), ("LIMIT_BYTES", 1)], errno.EINVAL,
     "Un(known|supported) attribute"),
    (Command.TAG_SET, [("ID", 0), ("CGROUP", 1)], errno.EINVAL,
     "tag 0 is the host tag and has no cgroups"),
    (Command.TAG_DEL, [], errno.EINVAL, "id of the tag is required"),
    (Command.TAG_DEL, [("ID", 9)], errno.ENOENT, "the device has no tag with this id"),
    (Command.TAG_DEL, [("ID", 0)], errno.EBUSY, "cannot be removed"),
    (Command.TAG_EXTENTS, [], errno.EINVAL, "id of the tag is required"),
    (Command.TAG_EXTENTS, [("ID", 9)], errno.ENOENT, "the device has no tag with this id"),
    (Command.TAG_EXTENTS, [("ID", 0)], errno.EINVAL,
     "hTag and tags in volume scope have no extents"),
    (Command.TAG_EXTENTS, [("ID", 3), ("EXTENTS_REMOVE", b"")], errno.EINVAL,
     "Un(known|supported) attribute"),
    (Command.TAG_EXTENTS_CHANGE, [], errno.EINVAL, "id of the tag is required"),
    (Command.TAG_EXTENTS_CHANGE, [("ID", 9), ("EXTENTS_COMMIT", None)], errno.ENOENT,
     "the device has no tag with this id"),
    (Command.TAG_EXTENTS_CHANGE, [("ID", 0), ("EXTENTS_COMMIT", None)], errno.EINVAL,
     "hTag and tags in volume scope have no extents"),
]


def settings_of(client: Client, device: Mapped) -> list[Tag]:
    """Return the tags without their statistics: udev may be reading the device."""
    return [dataclasses.replace(tag, stats=Stats()) for tag in client.tags(device.number)]


def test_bad_requests_are_refused(filesystem: Mapped, client: Client) -> None:
    client.tag_set(filesystem.number, 3, name="three", weight=3, cgroups=[3])
    before = settings_of(client, filesystem)
    for command, attributes, code, text in REFUSED:
        with pytest.raises(NetlinkError, match=text) as refused:
            send(client, command, *number_of(filesystem), *attributes)
        assert refused.value.errno == code, attributes
    assert settings_of(client, filesystem) == before, "a refused request has changed something"


def test_requests_without_a_device_are_refused(filesystem: Mapped, client: Client) -> None:
    for command in (Command.TAG_GET, Command.TAG_SET, Command.TAG_DEL, Command.TAG_EXTENTS,
                    Command.TAG_EXTENTS_CHANGE):
        for attributes in ([], [("MAJOR", 7)], [("MINOR", 7)]):
            with pytest.raises(NetlinkError, match="major and minor of the device are required"):
                send(client, command, *attributes, ("ID", 1))
        with pytest.raises(NetlinkError, match="no active vcache device") as refused:
            send(client, command, ("MAJOR", 1), ("MINOR", 1), ("ID", 1))
        assert refused.value.errno == errno.ENODEV
    with pytest.raises(NetlinkError, match="no active vcache device"):
        client.tags(DeviceNumber(1, 1))


def test_volume_has_its_own_tag_only(origin: str, client: Client) -> None:
    with vcache(origin, "volume 7") as device:
        assert [tag.id for tag in client.tags(device.number)] == [0, 7]
        client.tag_set(device.number, 7, name="disk", weight=500, cgroups=[12])
        assert client.tag(device.number, 7).weight == 500
        with pytest.raises(NetlinkError, match="only the tag of the table"):
            client.tag_set(device.number, 8)
        with pytest.raises(NetlinkError, match="cannot be removed"):
            client.tag_del(device.number, 7)
        with pytest.raises(NetlinkError, match="tags in volume scope have no extents"):
            client.set_extents(device.number, 7, [Extent(0, 1)])


# From linux/capability.h.
CAPABILITY_VERSION_3 = 0x20080522
CAP_NET_ADMIN = 12
CAP_SYS_ADMIN = 21


def keep_only(capability: int) -> None:
    """Drop all other capabilities of this process."""
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    # Two times effective, permitted and inheritable; the second has the capabilities from 32 on.
    data = struct.pack("=6I", 1 << capability, 1 << capability, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def in_child(act: Callable[[], None]) -> None:
    """Act in a process of its own; fail if it fails."""
    child = os.fork()
    if not child:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.box
@pytest.mark.parametrize("user", ["nobody", "net-admin"])
def test_requests_need_the_capability(filesystem: Mapped, client: Client, user: str) -> None:
    """Every command and the events need CAP_SYS_ADMIN; CAP_NET_ADMIN is not enough."""
    number = filesystem.number
    client.tag_set(number, 2, name="somebody")

    def act() -> None:
        if user == "nobody":
            os.setuid(65534)
        else:
            keep_only(CAP_NET_ADMIN)
        with Client() as bare:
            for request in (lambda: bare.devices(),
                            lambda: bare.tags(),
                            lambda: bare.tags(number),
                            lambda: bare.tag(number, 2),
                            lambda: bare.curve(number, 2),
                            lambda: bare.tag_set(number, 1),
                            lambda: bare.tag_del(number, 2),
                            lambda: bare.set_extents(number, 2, []),
                            lambda: bare.change_extents(number, 2, [], []),
                            lambda: bare.cached(number, 2)):
                with pytest.raises(NetlinkError, match="CAP_SYS_ADMIN is required") as refused:
                    request()
                assert refused.value.errno == errno.EPERM
        with pytest.raises(OSError) as denied:
            EventListener()
        assert denied.value.errno == errno.EPERM

    in_child(act)
    assert [tag.id for tag in client.tags(number)] == [0, 2]


@pytest.mark.box
def test_the_capability_is_enough(filesystem: Mapped) -> None:
    number = filesystem.number

    def act() -> None:
        keep_only(CAP_SYS_ADMIN)
        with Client() as bare, EventListener():
            assert [device.number for device in bare.devices()] == [number]
            bare.tag_set(number, 1, name="somebody")
            assert bare.tag(number, 1).name == "somebody"
            bare.set_extents(number, 1, [Extent(0, 8)])
            bare.tag_del(number, 1)
            assert [tag.id for tag in bare.tags(number)] == [0]

    in_child(act)


def test_extents_are_replaced(filesystem: Mapped, client: Client) -> None:
    number = filesystem.number
    client.tag_set(number, 1)
    client.tag_set(number, 2)

    def shown(tag: int) -> tuple[int, int]:
        found = client.tag(number, tag)
        return found.extents_count, found.extents_sectors

    client.set_extents(number, 1, [Extent(0, 8), Extent(8, 8), Extent(100, 1)])
    client.set_extents(number, 2, [Extent(16, 84)])
    assert (shown(1), shown(2)) == ((3, 17), (1, 84))
    with pytest.raises(NetlinkError, match="sector 100 belongs to tag 1 already") as refused:
        client.set_extents(number, 2, [Extent(99, 2)])
    assert refused.value.errno == errno.EEXIST
    assert (shown(1), shown(2)) == ((3, 17), (1, 84))
    client.set_extents(number, 1, [])
    client.set_extents(number, 2, [Extent(99, 2)])
    assert (shown(1), shown(2)) == ((0, 0), (1, 2))
    # After the removal of a tag, its sectors are available to others.
    client.tag_del(number, 2)
    client.set_extents(number, 1, [Extent(0, stack.sectors(filesystem.path))])
    assert shown(1) == (1, stack.sectors(filesystem.path))


BAD_EXTENTS: list[tuple[str, bytes]] = [
    ("empty", EXTENT_LAYOUT.pack(8, 0)),
    ("overlapping", EXTENT_LAYOUT.pack(0, 8) + EXTENT_LAYOUT.pack(7, 8)),
    ("unsorted", EXTENT_LAYOUT.pack(8, 8) + EXTENT_LAYOUT.pack(0, 8)),
    ("behind the end", EXTENT_LAYOUT.pack(64 * 2048, 1)),
    ("across the end", EXTENT_LAYOUT.pack(64 * 2048 - 1, 2)),
    ("wrapping", EXTENT_LAYOUT.pack(8, 2**64 - 1)),
]


def test_bad_extents_are_refused(filesystem: Mapped, client: Client) -> None:
    number, device = filesystem.number, number_of(filesystem)
    client.tag_set(number, 1)
    client.set_extents(number, 1, [Extent(0, 8)])
    for name, data in BAD_EXTENTS:
        with pytest.raises(NetlinkError, match="sorted, disjoint and on the device"):
            send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS", data),
                 ("EXTENTS_BEGIN", None), ("EXTENTS_COMMIT", None))
        assert client.tag(number, 1).extents_sectors == 8, name
    with pytest.raises(NetlinkError, match="each extent must be {u64 start, u64 len}"):
        send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS", b"\0" * 17),
             ("EXTENTS_BEGIN", None), ("EXTENTS_COMMIT", None))
    assert client.tag(number, 1).extents_sectors == 8


@pytest.mark.box
def test_long_extent_lists_take_several_messages(filesystem: Mapped, client: Client) -> None:
    number, device = filesystem.number, number_of(filesystem)
    client.tag_set(number, 1)
    client.set_extents(number, 1, [Extent(0, 8)])
    many = [Extent(16 * n, 8) for n in range(8000)]
    client.set_extents(number, 1, many)
    assert client.tag(number, 1).extents_count == 8000
    # The old list is active until the commit; a part out of order is refused.
    send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS_BEGIN", None),
         ("EXTENTS", EXTENT_LAYOUT.pack(100, 8)))
    assert client.tag(number, 1).extents_count == 8000
    with pytest.raises(NetlinkError, match="sorted"):
        send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS_COMMIT", None),
             ("EXTENTS", EXTENT_LAYOUT.pack(99, 1)))
    assert client.tag(number, 1).extents_count == 8000
    # A new beginning drops earlier parts.
    send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS_BEGIN", None),
         ("EXTENTS", EXTENT_LAYOUT.pack(100, 8)))
    send(client, Command.TAG_EXTENTS, *device, ("ID", 1), ("EXTENTS_BEGIN", None),
         ("EXTENTS", EXTENT_LAYOUT.pack(50, 2)), ("EXTENTS_COMMIT", None))
    tag = client.tag(number, 1)
    assert (tag.extents_count, tag.extents_sectors) == (1, 2)


def test_weights_share_the_buffer(client: Client) -> None:
    with (null_blk() as one, null_blk() as two, stack.buffer_mb(96),
          vcache(one, "filesystem") as a, vcache(two, "volume 3") as b):
        client.tag_set(a.number, 1, weight=200)
        client.tag_set(b.number, 3, weight=900)

        def limits() -> list[int]:
            return [client.tag(device.number, tag).limit_bytes >> 20
                    for device, tag in ((a, 0), (a, 1), (b, 3))]

        # The host tag of a volume has no data and gets no share.
        assert limits() == [8, 16, 72]
        client.tag_set(a.number, 0, weight=300)
        client.tag_set(b.number, 3, weight=100)
        assert limits() == [48, 32, 16]
        client.tag_del(a.number, 1)
        assert stack.wait_until(lambda: client.tag(a.number, 0).limit_bytes >> 20 == 72)
        with stack.buffer_mb(48):
            assert client.tag(a.number, 0).limit_bytes >> 20 == 36
        # However small the share, every tag has 64 pages.
        client.tag_set(a.number, 2, weight=1)
        with stack.buffer_mb(1):
            assert client.tag(a.number, 2).limit_bytes == 64 * 4096


def test_bad_buffer_sizes_are_refused() -> None:
    for text in ("0", "-1", "1048577", "much"):
        with pytest.raises(OSError, match=r"Invalid|range"), stack.buffer_mb(1):
            Path("/sys/module/dm_vcache/parameters/buffer_mb").write_text(text)


def test_many_tags(filesystem: Mapped, client: Client) -> None:
    """More than fit into one message or one status page."""
    number = filesystem.number
    with Disk(filesystem.path) as disk:
        for tag in range(1, 201):
            client.tag_set(number, tag, name=f"disk-{tag}")
        found = client.tags(number)
        assert [tag.id for tag in found] == list(range(201))
        assert found[200].name == "disk-200"
        assert client.tags() == found
        words = filesystem.status()
        assert words[4] == "201"
        assert len(words) == 5 + 201 * 6
        disk.write(0, pattern(1, 8))
        disk.flush()
        # Each removal waits for requests in flight; the remaining tags go with the device.
        for tag in range(1, 201, 5):
            client.tag_del(number, tag)
        assert stack.wait_until(lambda: filesystem.status()[4] == "161")


def test_removed_tag_leaves_its_data_to_every_flush(
        origin: str, client: Client, cgroup: Callable[[str], Cgroup]) -> None:
    one, two = cgroup("one"), cgroup("two")
    # Removed tags are freed at the age tick.
    with vcache(origin, "filesystem", age_ms=20000) as device, Disk(device.path) as disk:
        client.tag_set(device.number, 1, cgroups=[one.id])
        client.tag_set(device.number, 2, cgroups=[two.id])
        client.set_extents(device.number, 1, [Extent(0, 1024)])
        one.run(lambda: disk.write(0, pattern(1, 512)))
        assert client.tag(device.number, 1).dirty_bytes == 512 * SECTOR
        client.tag_del(device.number, 1)
        assert [tag.id for tag in client.tags(device.number)] == [0, 2]
        two.run(disk.flush)
        assert read(origin, 0, 512) == pattern(1, 512)
        assert stack.wait_until(lambda: device.status()[4] == "2"), "the tag does not go"
        # As untagged sectors, they now belong to the host tag.
        one.run(lambda: disk.write(0, pattern(2, 8)))
        assert client.tag(device.number, 0).dirty_bytes == 8 * SECTOR


@pytest.mark.box
def test_nobody_waits_for_a_replay(origin: str, client: Client) -> None:
    """While a volume is replayed from a slow cache, dumps return and devices are made."""
    chunks = 24
    with null_blk() as ssd, null_blk() as second, mapped(stack.linear(ssd)) as slow:
        with stack.pool(slow.path) as pool, stack.cached(origin, pool) as device:
            with Disk(device.path) as disk:
                for at in range(chunks):
                    disk.write(at * 2048, pattern(at, 2048))
                    disk.flush()
        with stack.pool(slow.path) as pool:
            size = stack.sectors(ssd)
            slow.swap(f"0 {size} delay {ssd} 0 500 {ssd} 0 0")
            name = stack.unique("vc")
            dm.create(name)
            dm.load(name, stack.cached_table(origin, pool))
            replay = threading.Thread(target=dm.resume, args=(name,), daemon=True)
            replay.start()
            time.sleep(1)
            dump = threading.Thread(target=lambda: (client.tags(), client.devices()), daemon=True)
            dump.start()
            time.sleep(0.5)
            begun = time.monotonic()
            with vcache(second) as other:
                took = time.monotonic() - begun
                assert replay.is_alive(), "it was made only after the replay"
                with Client() as another:
                    assert [found.number for found in another.devices()] == [other.number]
                    another.tag_set(other.number, 7, weight=50)
                assert replay.is_alive(), "the requests waited for the replay"
            assert took < 3
            slow.swap(stack.linear(ssd))
            replay.join(60)
            dump.join(60)
            assert not replay.is_alive()
            assert not dump.is_alive()
            with Disk(Mapped(name).path) as disk:
                for at in range(chunks):
                    assert disk.read(at * 2048, 2048) == pattern(at, 2048)
            dm.remove(name)
