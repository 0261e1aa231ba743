# SPDX-License-Identifier: Apache-2.0
"""The file that records pools and devices, and the units made from it."""

import os
from pathlib import Path

import pytest

from vcache_agent.boot import generator, stable
from vcache_agent.boot.setup_file import AttachLine, PoolLine, SetupError, SetupFile, parse_line
from vcache_agent.cmd import cli, setup_cli

POOL = "pool fast /dev/disk/by-id/nvme-x lanes=8 reads-percent=70 timeout=5"
VSSD = "vssd vm1 fast max=107374182400 size=21474836480 volume=5"
DEVICE = "attach /dev/disk/by-id/dm-uuid-LVM-a fast filesystem mode=writeback mount=/srv/a"


@pytest.mark.parametrize("text", [
    POOL, DEVICE,
    "pool a /dev/b lane=1048576 lane=2097152 hot-percent=0",
    "attach /dev/mapper/luks fast tag=7 mode=writethrough above",
    "attach /dev/vg/lv - tag=65535 mode=flush-only",
    "vssd vm1 fast max=1073741824 size=0 volume=4294967295",
    "vssd vm1 fast max=1073741824 size=1073741824 volume=1 persist",
])
def test_a_line_survives(text: str) -> None:
    assert str(parse_line(text)) == text


@pytest.mark.parametrize(("text", "problem"), [
    ("pol a /dev/b", "must be pool, attach or vssd"),
    ("pool a", "must be: pool NAME DEVICE"),
    ("pool a/b /dev/b", "name must have"),
    ("vssd a", "must be: vssd NAME POOL"),
    ("vssd a/b fast max=1 size=1 volume=1", "name must have"),
    ("vssd a fast size=1 volume=1", "are needed"),
    ("vssd a fast max=1 size=1", "are needed"),
    ("vssd a fast max=1 volume=1", "are needed"),
    ("vssd a fast max=1 size=2 volume=1", "at most the maximum"),
    ("vssd a fast max=1 size=1 volume=0", "from 1 to 4294967295"),
    ("vssd a fast max=1 size=1 volume=1 keep", "must be max=BYTES"),
    ("pool a b", "absolute path"),
    ("pool a /dev/b lanes=65", "from 1 to 64"),
    ("pool a /dev/b lanes=2 lane=4096", "must be lanes=N or lane"),
    ("attach /dev/b a", "must be: attach"),
    ("attach /dev/b a tag=0", "from 1 to 65535"),
    ("attach /dev/b a whole", "must be filesystem or tag"),
    ("attach /dev/b a filesystem mode=fast", "must be one of"),
    ("attach /dev/b a filesystem mode=flush-only", "has mode writeback or"),
    ("attach /dev/b - filesystem mode=writeback", "has mode flush-only"),
    ("attach /dev/b a filesystem mount=srv", "absolute path"),
    ("attach /dev/b a filesystem timeout=0", "from 1 to 86400"),
    ("attach /dev/b a filesystem fast", "must be mode="),
])
def test_wrong_lines(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "setup.conf"
    path.write_text(f"# a comment\n{POOL}\n{text}\n")
    setup = SetupFile(path)
    (found,) = setup.problems
    assert found.startswith(f"{path}:3: ")
    assert problem in found
    assert len(setup.entries) == 1, "the other lines count"


def test_lines_that_contradict_each_other(tmp_path: Path) -> None:
    path = tmp_path / "setup.conf"
    path.write_text(f"{POOL}\n{POOL}\n{DEVICE}\n{DEVICE}\n{VSSD}\n{VSSD}\n"
                    "vssd vm2 fast max=9 size=9 volume=5\nattach /dev/x slow tag=1\n"
                    "vssd vm3 slow max=9 size=9 volume=5\n")
    found = SetupFile(path).problems
    assert [text.split(": ")[0] for text in found] == [
        f"{path}:{n}" for n in (2, 4, 6, 7, 8, 9)]
    assert "same name or volume" in found[3]
    assert "no line of pool slow" in found[4]
    assert "no line of pool slow" in found[5]


def test_a_change_keeps_comments_and_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "setup.conf"
    text = f"# mine\n\n{POOL}  # the SSD\n   {DEVICE}\n# end\n"
    path.write_text(text)
    path.chmod(0o640)
    setup = SetupFile(path)
    changed = PoolLine("fast", "/dev/disk/by-id/nvme-y")
    assert setup.put(changed, lambda line: isinstance(line, PoolLine))
    assert path.read_text() == text.replace(POOL, str(changed))
    assert path.stat().st_mode & 0o777 == 0o640
    assert not setup.put(changed, lambda line: isinstance(line, PoolLine)), "nothing has changed"
    assert setup.remove(lambda line: isinstance(line, AttachLine))
    assert path.read_text() == f"# mine\n\n{changed}  # the SSD\n# end\n"
    assert not setup.remove(lambda line: isinstance(line, AttachLine))


def test_a_new_file_explains_itself(tmp_path: Path) -> None:
    path = tmp_path / "vcache" / "setup.conf"
    setup = SetupFile(path)
    assert setup.entries == []
    setup.put(PoolLine("fast", "/dev/x"), lambda line: False)
    assert path.read_text().startswith("# Pools, attached devices and elastic SSDs")
    assert not SetupFile(path).problems
    with pytest.raises(SetupError, match="directory"):
        SetupFile(tmp_path)


def test_units(tmp_path: Path) -> None:
    path, to, units = tmp_path / "setup.conf", tmp_path / "to", tmp_path / "units"
    path.write_text(f"{POOL}\n{DEVICE}\nattach /dev/vg/a-b - tag=7\n{VSSD}\n")
    generator.generate(SetupFile(path), to, (units,))
    device = "vcache-attach@dev-disk-by\\x2did-dm\\x2duuid\\x2dLVM\\x2da.service"
    other = "vcache-attach@dev-vg-a\\x2db.service"
    wants = to / "local-fs.target.wants"
    assert {link.name for link in wants.iterdir()} == {"vcache-pool@fast.service", device, other,
                                                     "vcache-vssd@vm1.service"}
    assert (to / "vcache-vssd@vm1.service.d/50-vcache.conf").read_text() == (
        "[Unit]\nRequires=vcache-pool@fast.service\nAfter=vcache-pool@fast.service\n")
    assert os.readlink(wants / device) == str(units / "vcache-attach@.service")
    assert (to / f"{device}.d/50-vcache.conf").read_text() == (
        "[Unit]\nWants=vcache-pool@fast.service\nAfter=vcache-pool@fast.service\n"
        "Wants=srv-a.mount\n")
    assert (to / "vcache-pool@fast.service.d/50-vcache.conf").read_text() == (
        f"[Unit]\nWants={device} vcache-vssd@vm1.service\n")
    (mount,) = (to / "srv-a.mount.d").iterdir()
    assert mount.read_text() == f"[Unit]\nRequires={device}\nAfter={device}\n"
    assert not (to / f"{other}.d").exists()


@pytest.mark.parametrize(("path", "unit"), [
    ("/", "-"), ("/srv//a/", "srv-a"), ("/a b", "a\\x20b"), ("/.x", "\\x2ex"),
    ("/a.b_c:d", "a.b_c:d"),
    ("/gr\u00fcn", "gr\\xc3\\xbcn"),
])
def test_escaped_paths(path: str, unit: str) -> None:
    assert generator.escape_path(path) == unit


def test_mounts_of_a_device(tmp_path: Path) -> None:
    device = tmp_path / "dev"
    device.touch()
    fstab = tmp_path / "fstab"
    fstab.write_text("/dev/null /srv/null ext4 defaults 0 0\n# /dev/null /srv/b ext4\n"
                     "tmpfs /tmp tmpfs\n/dev/null none swap\nUUID=1-2 /boot ext4\n"
                     "/dev/null /srv/hand ext4 noauto 0 0\n/dev/null /srv/two xfs ro,nofail 0 0\n")
    assert stable.fstab_mounts("/dev/null", fstab) == [("/srv/null", False), ("/srv/two", True)]
    assert stable.fstab_mounts("/dev/zero", fstab) == []
    assert stable.fstab_mounts("/dev/zero", tmp_path / "none") == []


def test_a_check_warns_of_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "setup.conf"
    path.write_text("attach /dev/vg/a - tag=7 mount=/srv/a\n")
    monkeypatch.setattr(setup_cli, "fstab_mounts", lambda device: [
        stable.Mount("/srv/a", nofail=False), stable.Mount("/srv/b", nofail=True)])
    assert cli.main(["setup", "check", "--setup", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "nofail" in line] == [
        f"{path}:1: warning: the mount at /srv/a has no option nofail in /etc/fstab: if it fails, "
        "this host starts in emergency mode"]
    assert [line for line in lines if "add mount=" in line] == [
        f"{path}:1: warning: /etc/fstab mounts this device at /srv/b: add mount=/srv/b, so that "
        "this mount waits for it and fails with it"]


def test_stable_names() -> None:
    assert not stable.is_stable("/dev/sda1")
    assert not stable.is_stable("/dev/rbd0")
    assert stable.is_stable("/dev/rbd/pool/image")
    assert stable.is_stable("/dev/vg0/instances")
