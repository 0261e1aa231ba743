# SPDX-License-Identifier: Apache-2.0
"""What User Mode Linux is started with, and where its memory lies."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.box import uml
from tests.box.__main__ import machine, parser
from tests.box.box import Box
from tests.box.machine import BoxError, Disk
from tests.box.uml import NoSpace, Uml

GIB = 1 << 30


@pytest.fixture(autouse=True)
def tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "tree", lambda *_: Path("/cache/uml/0123"))


def test_release_is_that_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include" / "config").mkdir(parents=True)
    (tmp_path / "include" / "config" / "kernel.release").write_text("6.1.9-vcache-uml-0123\n")
    monkeypatch.setattr(uml, "tree", lambda *_: tmp_path)
    assert Uml().select() == "6.1.9-vcache-uml-0123"


def test_streams_and_kernel_parameters(tmp_path: Path) -> None:
    line = Uml(memory="512M", kernel_args=["trace_event=x"])._command_line(tmp_path, 7, 8)
    assert line[:2] == ["/cache/uml/0123/linux", "mem=512M"]
    assert {"ssl0=null,fd:7", "ssl1=null,fd:8"} < set(line)
    end = line.index("--")
    # what is behind it goes to the first process, which is a shell
    assert line.index("trace_event=x") < end
    assert line[end - 1:] == ["init=/bin/sh", "--", f"{tmp_path}/io/init.sh", f"{tmp_path}/io"]


def test_disks_have_names(tmp_path: Path) -> None:
    image = tmp_path / "a,b"
    image.touch()
    state = tmp_path / "state"
    state.mkdir()
    machine = Uml(disks=[Disk(image, "log0"), Disk(image, "venv", readonly=True)])
    machine._write_state(state, ["true"])
    assert (state / "io" / "disks").read_text() == "ubda log0\nubdb venv\n"
    line = machine._command_line(state, 7, 8)
    # relative to the folder of the run: the driver splits at a comma
    assert {"ubd0d=disk0", "ubd1rd=disk1"} < set(line)
    assert (state / "disk0").resolve() == image


def test_more_disks_than_there_can_be(tmp_path: Path) -> None:
    disks = [Disk(tmp_path / str(number), str(number)) for number in range(17)]
    with pytest.raises(ValueError, match="17 disks, there can be 16"):
        Uml(disks=disks)._write_state(tmp_path, ["true"])


def test_what_the_first_process_reads(tmp_path: Path) -> None:
    Uml(rw=[Path("/data")], cwd=Path("/elsewhere"))._write_state(tmp_path, ["true"])
    io = tmp_path / "io"
    overlays = (io / "overlays").read_text().split()
    assert "/usr" in overlays
    assert overlays[-1] == "/elsewhere"
    assert (io / "modules").read_text() == "/cache/uml/0123/modules/lib/modules\n"
    assert (io / "binds").read_text() == "/run/box/rw0 /data\n"
    environment = (io / "environment").read_text()
    assert "VCACHE_BOX=1" in environment
    assert "DM_DISABLE_UDEV=1" in environment


@pytest.mark.parametrize(("text", "size"), [
    ("2G", 2 * GIB), ("512M", 512 << 20), ("1024k", 1 << 20), ("256", 256 << 20)])
def test_sizes_are_as_qemu_takes_them(text: str, size: int) -> None:
    assert uml.bytes_of(text) == size


def _systems(monkeypatch: pytest.MonkeyPatch, **free: tuple[int, int]) -> list[Path]:
    """Have file systems /NAME with so many bytes free, and flags."""
    def statvfs(path: Path) -> SimpleNamespace:
        if path.name not in free:
            raise FileNotFoundError(2, "No such file or directory")
        size, flags = free[path.name]
        return SimpleNamespace(f_bavail=size >> 12, f_frsize=4096, f_flag=flags)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "locked")
    return [Path("/missing"), *(Path(f"/{name}") for name in free)]


def test_memory_lies_where_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = _systems(monkeypatch, small=(GIB - 4096, 0), noexec=(8 * GIB, os.ST_NOEXEC),
                       locked=(8 * GIB, 0), right=(GIB, 0), later=(8 * GIB, 0))
    assert uml.memory_folder(GIB, folders) == Path("/right")


def test_no_room_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = _systems(monkeypatch, small=(64 << 20, 0), noexec=(8 * GIB, os.ST_NOEXEC))
    with pytest.raises(NoSpace, match=(
            "no folder for 1024 MiB of memory .*/missing: No such file or directory, "
            "/small: 64 MiB free, /noexec: mounted noexec")) as caught:
        uml.memory_folder(GIB, folders)
    assert isinstance(caught.value, BoxError)


def test_command_line_chooses() -> None:
    arguments = parser().parse_args(["--uml", "--memory", "1G", "--", "true"])
    chosen = machine(arguments)
    assert isinstance(chosen, Uml)
    assert chosen.memory == "1G"
    assert isinstance(machine(parser().parse_args(["--", "true"])), Box)
