# SPDX-License-Identifier: Apache-2.0
"""A cache above a device of multipath, dm-crypt or krbd, on a model of device mapper.

tests/kernel/test_above.py has real devices.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dm_model import Dm, Kernel, Killed, as_dm, host
from vcache_agent import above, attach, sysfs
from vcache_agent.cmd import pool_cli
from vcache_agent.dm import Line
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

CRYPT = (Line(0, 150, "crypt", "aes-xts-plain64 :64:logon:k 0 8:16 32768"),)
RBD = DeviceNumber(252, 48)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr("vcache_agent.attach.flush", lambda info: None)
    monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.attach._LOOK", 0.0)
    monkeypatch.setattr("vcache_agent.above._claimed", lambda origin: False)
    monkeypatch.setattr("vcache_agent.above._opened", lambda number: False)
    made = host()
    made.add("luks", *CRYPT, uuid="CRYPT-LUKS2-abc-luks")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "s.sqlite")
    yield made
    made.close()


def do_attach(kernel: Kernel, store: Store, device: str = "luks", dm: Dm | None = None,
              scope: str | None = "volume 7", mode: str = "writeback") -> str:
    return above.attach_above(as_dm(dm or Dm(kernel)), store, device, "fast", scope=scope,
                              mode=mode)


def do_detach(kernel: Kernel, store: Store, dm: Dm | None = None, keep: bool = False) -> str:
    return attach.detach(as_dm(dm or Dm(kernel)), store, "luks-vcache", lambda text: None,
                         keep=keep)


def check_attached(kernel: Kernel, mode: str = "writeback") -> None:
    luks, made = kernel.devices["luks"], kernel.devices["luks-vcache"]
    assert luks.live == CRYPT
    assert made.live == (Line(0, 150, "vcache", f"{mode} {luks.number} volume 7 3 pool "
                              f"{kernel.devices['fast'].number} 1"),)
    assert (made.suspended, made.loaded) == (False, None)


def check_plain(kernel: Kernel) -> None:
    assert list(kernel.devices) == ["fast", "lv", "luks"]
    assert kernel.devices["luks"].live == CRYPT


def test_there_and_back(kernel: Kernel, store: Store) -> None:
    assert do_attach(kernel, store) == (
        "luks-vcache is volume 1 of pool fast, mode writeback; use /dev/mapper/luks-vcache instead "
        "of luks")
    check_attached(kernel)
    assert store.volumes("fast") == {"VCACHE-ABOVE-CRYPT-LUKS2-abc-luks": 1}
    assert "already volume 1" in do_attach(kernel, store)
    attach.change_mode(as_dm(Dm(kernel)), "luks-vcache", "writethrough", lambda text: None)
    check_attached(kernel, "writethrough")
    assert do_detach(kernel, store) == "luks-vcache is removed; its origin has all data"
    check_plain(kernel)
    assert not store.volumes("fast")


def test_a_device_in_use_loses_its_cache_but_stays(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    kernel.devices["luks-vcache"].users = 1
    kernel.volumes[1] = 2048
    assert "is in use and stays" in do_detach(kernel, store)
    (line,) = kernel.devices["luks-vcache"].live
    assert line.arguments == f"flush-only {kernel.devices['luks'].number} volume 7"
    assert not kernel.volumes
    assert "volume 1" in do_attach(kernel, store, scope=None)
    check_attached(kernel)
    do_detach(kernel, store, keep=True)
    kernel.devices["luks-vcache"].users = 0
    assert "luks-vcache" in kernel.devices
    do_detach(kernel, store)
    check_plain(kernel)


def test_killed_at_every_step(store: Store, monkeypatch: pytest.MonkeyPatch,
                              kernel: Kernel) -> None:
    for work, least in ((do_attach, 8), (do_detach, 12)):
        for step in range(1, 200):
            kernel.devices = {name: kernel.devices[name] for name in ("fast", "lv", "luks")}
            kernel.volumes.clear()
            if work is do_detach:
                do_attach(kernel, store)
            try:
                work(kernel, store, dm=Dm(kernel, step))
            except Killed:
                pass
            else:
                assert step > least
                break
            assert kernel.devices["luks"].live == CRYPT
            do_attach(kernel, store)
            check_attached(kernel)
            do_detach(kernel, store)
            check_plain(kernel)
        else:
            raise AssertionError("it did not end")


def test_an_rbd_image(kernel: Kernel, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    image = sysfs.RbdImage("vol umes", "volume-7", "c1-4--10ab--")
    monkeypatch.setattr("vcache_agent.above.block_number",
                        lambda path: RBD if path == "/dev/rbd3" else None)
    monkeypatch.setattr("vcache_agent.above.sysfs.rbd", lambda number: image)
    monkeypatch.setattr("vcache_agent.above.sysfs.sectors", lambda number: 4096)
    do_attach(kernel, store, "/dev/rbd3")
    (line,) = kernel.devices["rbd-vol_umes-volume-7-vcache"].live
    assert (line.length, line.arguments.split()[:4]) == (
        4096, ["writeback", "252:48", "volume", "7"])
    assert store.volumes("fast") == {"VCACHE-ABOVE-RBD-c1-4--10ab--": 1}


@pytest.mark.parametrize(("device", "options", "words"), [
    ("lv", {}, "linear, so its path can stay: omit --above"),
    ("fast", {}, "is a device of the target vcache itself"),
    ("/dev/null", {}, "neither a mapped device nor an RBD image"),
    ("missing", {}, "neither a mapped device nor an RBD image"),
    ("luks", {"scope": None}, "needs --tag N"),
    ("luks", {"scope": "volume 9"}, "is the tag of other")])
def test_what_is_refused_leaves_all_as_it_was(
        kernel: Kernel, store: Store, device: str, options: dict[str, str], words: str) -> None:
    kernel.add("other", Line(0, 9, "vcache", "flush-only 8:64 volume 9"))
    before = list(kernel.devices)
    with pytest.raises(PoolError, match=words):
        do_attach(kernel, store, device, **options)  # type: ignore[arg-type]
    assert list(kernel.devices) == before
    assert not store.volumes("fast")


def test_a_device_in_use_is_refused(kernel: Kernel, store: Store,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.devices["luks"].users = 1
    with pytest.raises(PoolError, match="luks is in use"):
        do_attach(kernel, store)
    kernel.devices["luks"].users = 0
    for check in ("_claimed", "_opened"):
        with monkeypatch.context() as patch:
            patch.setattr(f"vcache_agent.above.{check}", lambda _: True)
            with pytest.raises(PoolError, match="is in use"):
                do_attach(kernel, store)
    kernel.add("luks-vcache", *CRYPT, uuid="another")
    with pytest.raises(PoolError, match="already exists and is not above"):
        do_attach(kernel, store)


def test_a_refusal_of_the_kernel_leaves_no_device(kernel: Kernel, store: Store) -> None:
    kernel.refuse_load = "vcache"
    with pytest.raises(PoolError, match="no cache above luks"):
        do_attach(kernel, store)
    check_plain(kernel)


def test_the_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                    capsys: pytest.CaptureFixture[str]) -> None:
    from vcache_agent.cmd import cli
    called = []

    def record(*arguments: object, **options: object) -> str:
        called.append((arguments[2:], options["scope"]))
        return "done"

    monkeypatch.setattr(pool_cli, "mapper", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.above.attach_above", record)
    assert cli.main(["attach", "/dev/mapper/luks", "--pool", "fast", "--above", "--tag", "7",
                     "--state", str(tmp_path / "s"), "--no-setup"]) == 0
    assert called == [(("/dev/mapper/luks", "fast"), "volume 7")]
    assert capsys.readouterr().out == "done\n"
