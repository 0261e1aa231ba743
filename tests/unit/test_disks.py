# SPDX-License-Identifier: Apache-2.0
"""From a disk's path to sectors of a vcache device, and from a domain to its cgroup."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import cgroups, disks
from vcache_agent import sysfs as host_sysfs
from vcache_agent.blockstack import (
    BlockStack,
    IsVssd,
    NotCacheable,
    NotOnVcache,
    Segment,
    dm_table,
    follow,
)
from vcache_agent.dm import Line, Lines
from vcache_agent.model import Device, DeviceNumber, Extent, Location
from vcache_agent.netlink import spec

VCACHE, OTHER = DeviceNumber(254, 0), DeviceNumber(254, 9)


def device(number: DeviceNumber = VCACHE, scope: spec.Scope = spec.Scope.FILESYSTEM) -> Device:
    return Device(number, f"dm{number.minor}", spec.Mode.FLUSH_ONLY, scope, spec.Isolation.FUA,
                  10_000, "8:0")


class Sysfs:
    """A /sys/dev/block with partitions and mapped devices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables: dict[DeviceNumber, Lines] = {}

    def partition(self, number: DeviceNumber, parent: DeviceNumber, start: int,
                  size: int) -> None:
        disk = self.folder / f"disk-{parent}"
        part = disk / "part"
        part.mkdir(parents=True)
        (disk / "dev").write_text(f"{parent}\n")
        for name, value in (("partition", 1), ("start", start), ("size", size)):
            (part / name).write_text(f"{value}\n")
        (self.folder / str(number)).symlink_to(part)

    def mapped(self, number: DeviceNumber, *lines: str,
               slaves: tuple[DeviceNumber, ...] = ()) -> None:
        folder = self.folder / str(number)
        (folder / "dm").mkdir(parents=True)
        for slave in slaves:
            (folder / "slaves" / str(slave)).mkdir(parents=True)
            (folder / "slaves" / str(slave) / "dev").write_text(f"{slave}\n")
        self.tables[number] = tuple(
            Line(int(start), int(length), target, " ".join(arguments))
            for start, length, target, *arguments in map(str.split, lines))

    def stack(self, *devices: Device) -> BlockStack:
        return BlockStack(devices or (device(),), self.folder, self.tables.__getitem__)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


def moved(segments: list[Segment], *extents: tuple[int, int]) -> list[tuple[int, int]]:
    return [tuple(extent) for extent in  # type: ignore[misc]
            follow(segments, [Extent(*extent) for extent in extents])[1]]


def test_the_device_itself(sysfs: Sysfs) -> None:
    assert moved(sysfs.stack().segments(VCACHE), (5, 7)) == [(5, 7)]


def test_a_partition_adds_its_start(sysfs: Sysfs) -> None:
    sysfs.partition(DeviceNumber(259, 1), VCACHE, 2048, 1000)
    assert moved(sysfs.stack().segments(DeviceNumber(259, 1)), (0, 8), (992, 8)) == [
        (2048, 8), (3040, 8)]


def test_a_volume_of_several_segments_splits_an_extent(sysfs: Sysfs) -> None:
    volume = DeviceNumber(254, 5)
    sysfs.mapped(volume, "0 100 linear 254:0 5000", "100 50 linear 254:0 200")
    assert moved(sysfs.stack().segments(volume), (90, 30)) == [(5090, 10), (200, 20)]


def test_an_encrypted_device_does_not_move_sectors(sysfs: Sysfs) -> None:
    volume = DeviceNumber(254, 5)
    sysfs.mapped(volume, "0 100 crypt aes-xts-plain64 :64:logon:k 0 254:0 4096 1 sector_size:4096")
    assert moved(sysfs.stack().segments(volume), (16, 8)) == [(4112, 8)]


def test_a_volume_in_a_partition(sysfs: Sysfs) -> None:
    volume, partition = DeviceNumber(254, 5), DeviceNumber(259, 1)
    sysfs.partition(partition, VCACHE, 1000, 500)
    sysfs.mapped(volume, "0 100 linear 259:1 50")
    assert moved(sysfs.stack().segments(volume), (0, 10)) == [(1050, 10)]


@pytest.mark.parametrize(("lines", "words"), [
    (["0 100 striped 1 16 254:0 0"], "through dm target 'striped'"),
    (["0 100 crypt aes 0 254:0 0"], "invalid table"),
    (["0 50 linear 254:0 0", "50 50 linear 254:9 0"], "several vcache devices"),
    (["0 100 linear 8:0 0"], "no vcache device is below device 8:0"),
    (["0 100 linear 254:5 0"], "stacked"), ([], "no table"), (["0 100 linear"], "invalid table"),
    (["0 100 linear 254:0 x"], "invalid table"),
    (["0 100 linear here 0"], "'here' is not a device number")])
def test_what_cannot_be_followed_is_refused_by_name(
        sysfs: Sysfs, lines: list[str], words: str) -> None:
    volume = DeviceNumber(254, 5)
    sysfs.mapped(volume, *lines, slaves=(VCACHE,))
    stack = sysfs.stack(device(), device(OTHER))
    with pytest.raises(NotOnVcache, match=words):
        follow(stack.segments(volume), [])


def test_without_a_vcache_device_below(sysfs: Sysfs) -> None:
    for number in (DeviceNumber(8, 0), DeviceNumber(0, 35)):
        with pytest.raises(NotOnVcache):
            sysfs.stack().segments(number)
    sysfs.mapped(DeviceNumber(254, 5), "0 100 crypt aes key 0 8:0 0")
    with pytest.raises(NotOnVcache, match="no vcache device is below"):
        sysfs.stack().segments(DeviceNumber(254, 5))


def test_an_elastic_ssd_is_named_as_such(sysfs: Sysfs) -> None:
    vssd = DeviceNumber(254, 5)
    sysfs.mapped(vssd, "0 100 vcache-vssd 254:9 7 50", slaves=(DeviceNumber(254, 9),))
    with pytest.raises(IsVssd, match="is an elastic SSD, which has no tag"):
        disks.of_block(vssd, sysfs.stack())


def test_what_cannot_get_a_cache_on_this_host(sysfs: Sysfs) -> None:
    for name in ("sda", "rbd3"):
        (sysfs.folder / name).mkdir()
    plain, rbd, crypt = DeviceNumber(8, 0), DeviceNumber(252, 48), DeviceNumber(254, 5)
    (sysfs.folder / str(plain)).symlink_to(sysfs.folder / "sda")
    (sysfs.folder / str(rbd)).symlink_to(sysfs.folder / "rbd3")
    sysfs.mapped(crypt, "0 100 crypt aes key 0 8:0 0")
    stack = sysfs.stack()
    with pytest.raises(NotCacheable, match="sda is a plain disk"):
        disks.of_block(plain, stack)
    for number in (rbd, crypt, DeviceNumber(254, 77)):
        with pytest.raises(NotOnVcache) as error:
            disks.of_block(number, stack)
        assert not isinstance(error.value, NotCacheable)
    with pytest.raises(NotCacheable, match="librbd.*krbd"):
        disks.check("network", None, readonly=False)
    with pytest.raises(NotCacheable, match="'nvme'"):
        disks.check("nvme", None, readonly=False)


def test_an_rbd_image_is_known_by_its_image(tmp_path: Path) -> None:
    """The kernel chooses the number of its device, by the order of the commands."""
    number = DeviceNumber(252, 48)
    (tmp_path / "rbd3").mkdir()
    (tmp_path / str(number)).symlink_to(tmp_path / "rbd3")
    bus = tmp_path / "bus"
    (bus / "3").mkdir(parents=True)
    found = {"pool": "volumes", "name": "volume-7", "cluster_fsid": "c1", "pool_id": "4",
             "pool_ns": "", "image_id": "10ab", "current_snap": "-"}
    for name, value in found.items():
        (bus / "3" / name).write_text(f"{value}\n")
    assert host_sysfs.rbd(number, tmp_path, bus) == ("volumes", "volume-7", "c1-4--10ab--")
    (bus / "3" / "image_id").write_text("10ac\n")
    assert host_sysfs.rbd(number, tmp_path, bus) == ("volumes", "volume-7", "c1-4--10ac--")
    (bus / "3" / "name").unlink()
    assert host_sysfs.rbd(number, tmp_path, bus) is None
    assert host_sysfs.rbd(DeviceNumber(8, 0), tmp_path, bus) is None


def test_a_device_that_disappears_concerns_only_its_disk(sysfs: Sysfs) -> None:
    gone = DeviceNumber(259, 1)
    sysfs.partition(gone, VCACHE, 2048, 1000)
    (sysfs.folder / str(gone) / "size").unlink()
    stack = sysfs.stack()
    with pytest.raises(NotOnVcache, match="device 259:1: No such file"):
        stack.segments(gone)
    assert moved(stack.segments(VCACHE), (5, 7)) == [(5, 7)]


def test_tables_are_read_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device mapper refuses, or the device does not exist; nothing is started to find out."""
    monkeypatch.setattr("subprocess.Popen.__init__", None)
    with pytest.raises(NotOnVcache, match="table of device 254:4095"):
        dm_table(DeviceNumber(254, 4095))


def test_an_extent_beyond_the_end_is_refused(sysfs: Sysfs) -> None:
    with pytest.raises(NotOnVcache, match="beyond the end"):
        moved(sysfs.stack().segments(VCACHE), (9_999, 2))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.data())
def test_following_moves_each_sector_by_its_segment(
        lengths: list[int], data: st.DataObject) -> None:
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    targets = data.draw(st.permutations([number * 100 for number in range(len(lengths))]))
    segments = [Segment(start, length, device(), target)
                for start, length, target in zip(starts, lengths, targets, strict=True)]
    begin = data.draw(st.integers(0, sum(lengths) - 1))
    length = data.draw(st.integers(1, sum(lengths) - begin))
    expected = [segment.target + sector - segment.start
                for sector in range(begin, begin + length)
                for segment in segments
                if segment.start <= sector < segment.start + segment.length]
    assert [sector for start, size in moved(segments, (begin, length))
            for sector in range(start, start + size)] == expected


def test_a_file_is_found_by_its_inode(sysfs: Sysfs) -> None:
    volume = DeviceNumber(254, 5)
    sysfs.mapped(volume, "0 100 linear 254:0 5000")
    stack = sysfs.stack()
    # The file system is on the device itself, or on a volume of it.
    direct = disks.of_file(VCACHE, 77, "g1", (Extent(8, 16), Extent(40, 8)), stack)
    assert direct == Location("file:dm0:77:g1", VCACHE, (Extent(8, 16), Extent(40, 8)))
    assert disks.of_file(volume, 77, "", (Extent(8, 16),), stack) == Location(
        "file:dm0:254:5:77", VCACHE, (Extent(5008, 16),))


def test_a_block_device_has_all_its_sectors(sysfs: Sysfs) -> None:
    volume = DeviceNumber(254, 5)
    sysfs.mapped(volume, "0 100 linear 254:0 5000", "100 50 linear 254:0 5100")
    assert disks.of_block(volume, sysfs.stack()) == Location(
        "block:dm0:5000", VCACHE, (Extent(5000, 150),))


def test_a_volume_is_found_without_sectors(sysfs: Sysfs) -> None:
    stack = sysfs.stack(device(scope=spec.Scope.VOLUME))
    assert disks.of_block(VCACHE, stack) == Location("volume:dm0", VCACHE)
    assert disks.of_file(VCACHE, 77, "g1", (), stack) == Location("volume:dm0", VCACHE)


@pytest.mark.parametrize(("kind", "path", "readonly", "words"), [
    ("file", "/x", True, "read-only"), ("network", None, False, "'network'"),
    ("file", None, False, "no source")])
def test_disks_that_cannot_be_tagged_say_why(
        kind: str, path: str | None, readonly: bool, words: str) -> None:
    with pytest.raises(NotOnVcache, match=words):
        disks.check(kind, path, readonly=readonly)


class Host:
    """A /proc, a cgroup hierarchy, and libvirt's PID files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.root, self.run = folder / "proc", folder / "cgroup", folder / "run"
        self.run.mkdir()

    def process(self, name: str, pid: int, path: str) -> None:
        (self.run / f"{name}.pid").write_text(f"{pid}\n")
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"1:name=systemd:/\n0::{path}\n")
        (self.root / path.lstrip("/")).mkdir(parents=True)

    def find(self, name: str) -> cgroups.Cgroup:
        return cgroups.of_domain(name, self.run, self.proc, self.root)


@pytest.mark.parametrize(("path", "machine"), [
    (r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator",
     r"/machine.slice/machine-qemu\x2d1\x2dvm.scope"),
    ("/machine/qemu-4-vm.libvirt-qemu/emulator", "/machine/qemu-4-vm.libvirt-qemu"),
    ("/machine/qemu-4-vm.libvirt-qemu", "/machine/qemu-4-vm.libvirt-qemu")])
def test_the_cgroup_of_a_domain(tmp_path: Path, path: str, machine: str) -> None:
    host = Host(tmp_path)
    host.process("vm", 4711, path)
    found = host.find("vm")
    assert found.path == machine
    assert found.id == (host.root / machine.lstrip("/")).stat().st_ino


def test_processes_that_are_not_a_domains(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process("sshd", 1, "/system.slice/ssh.service")
    host.process("odd", 2, "/../qemu-1-odd.libvirt-qemu")
    for name in ("sshd", "odd"):
        with pytest.raises(cgroups.CgroupError, match="not in a cgroup of a domain"):
            host.find(name)
    with pytest.raises(cgroups.CgroupError, match="gone.pid: No such file"):
        host.find("gone")
    (host.run / "bad.pid").write_text("x")
    with pytest.raises(cgroups.CgroupError, match="invalid PID"):
        host.find("bad")
    (host.run / "old.pid").write_text("99")
    with pytest.raises(cgroups.CgroupError, match="No such file"):
        host.find("old")


def test_where_cgroup_v2_is(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("tmpfs /run tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")
    assert cgroups.mount_point(mounts) == Path("/sys/fs/cgroup/unified")
    mounts.write_text("")
    with pytest.raises(cgroups.CgroupError, match="no cgroup v2"):
        cgroups.mount_point(mounts)
