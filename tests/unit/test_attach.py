# SPDX-License-Identifier: Apache-2.0
"""Attach, detach and mode against a model of device mapper, killed at every step."""

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dm_model import MIB, TABLE, Dm, Kernel, Killed, as_dm, host
from vcache_agent import attach, owners, pools
from vcache_agent.cmd import cli, pool_cli
from vcache_agent.dm import DmError, Line, Lines
from vcache_agent.pools import PoolError
from vcache_agent.store import Store


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr("vcache_agent.attach.flush", lambda info: None)
    monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.attach._LOOK", 0.0)
    monkeypatch.setattr("vcache_agent.attach._STALL", 0.05)
    monkeypatch.setattr("vcache_agent.attach._REMOVE", 0.05)
    return host()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "s.sqlite")
    yield made
    made.close()


def do_attach(kernel: Kernel, store: Store, dm: Dm | None = None, device: str = "lv",
              scope: str | None = "volume 7", **options: object) -> str:
    return attach.attach(as_dm(dm or Dm(kernel)), store, device, "fast", scope=scope,
                         **options)  # type: ignore[arg-type]


def do_detach(kernel: Kernel, store: Store, dm: Dm | None = None, *, force: bool = False,
              said: list[str] | None = None) -> str:
    say = [] if said is None else said
    return attach.detach(as_dm(dm or Dm(kernel)), store, "lv", say.append, force=force)


def check_plain(kernel: Kernel) -> None:
    lv = kernel.devices["lv"]
    assert (lv.live, lv.loaded, lv.suspended) == (TABLE, None, False)
    assert list(kernel.devices) == ["fast", "lv"]


def check_attached(kernel: Kernel, mode: str = "writeback") -> None:
    lv, hidden = kernel.devices["lv"], kernel.devices["lv-vcorigin"]
    assert (lv.loaded, lv.suspended) == (None, False)
    assert lv.live == (Line(0, 150, "vcache", f"{mode} {hidden.number} volume 7 3 pool "
                            f"{kernel.devices['fast'].number} 1"),)
    assert hidden.live == TABLE
    assert not hidden.suspended


def test_there_and_back(kernel: Kernel, store: Store) -> None:
    assert "volume 1" in do_attach(kernel, store)
    check_attached(kernel)
    assert store.volumes("fast") == {"LVM-abc": 1}
    assert "already" in do_attach(kernel, store)
    kernel.volumes[1] = 4 * 2048
    said: list[str] = []
    do_detach(kernel, store, said=said)
    assert said == ["lv: 4.0 MiB left"]
    check_plain(kernel)
    assert not kernel.volumes
    assert not store.volumes("fast")
    with pytest.raises(PoolError, match="must be an attached device"):
        do_detach(kernel, store)


def test_a_store_that_refuses_changes(kernel: Kernel, store: Store) -> None:
    """As on a full disk. Nothing is attached without a record; a detach completes."""
    store._db.execute("PRAGMA query_only = 1")
    with pytest.raises(sqlite3.OperationalError):
        do_attach(kernel, store)
    check_plain(kernel)
    store._db.execute("PRAGMA query_only = 0")
    do_attach(kernel, store)
    store._db.execute("PRAGMA query_only = 1")
    do_detach(kernel, store)
    check_plain(kernel)
    assert not kernel.volumes
    store._db.execute("PRAGMA query_only = 0")
    assert "volume 1" in do_attach(kernel, store)


def test_a_command_reports_a_store_that_refuses(tmp_path: Path) -> None:
    def command() -> None:
        with pool_cli.locked_store(tmp_path / "s.sqlite") as store:
            store._db.execute("PRAGMA query_only = 1")
            store.remember_volume("8:16", "LVM-a", 1)

    with pytest.raises(PoolError, match=r"s.sqlite cannot be written: .*readonly"):
        command()


def test_a_flush_only_device_needs_no_second_one(kernel: Kernel, store: Store) -> None:
    line = Line(0, 150, "vcache", "flush-only 8:16 filesystem 2 age_ms 100")
    kernel.devices["lv"].live = (line,)
    do_attach(kernel, store, scope=None, mode="writethrough")
    assert kernel.devices["lv"].live[0].arguments == (
        f"writethrough 8:16 filesystem 5 age_ms 100 pool {kernel.devices['fast'].number} 1")
    do_detach(kernel, store)
    assert kernel.devices["lv"].live == (line,)
    with pytest.raises(PoolError, match="cannot change: omit --tag"):
        do_attach(kernel, store, scope="volume 7")


def test_the_mode_changes_and_drains(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    for mode in ("writethrough", "writeback", "writeback"):
        attach.change_mode(as_dm(Dm(kernel)), "lv", mode, lambda text: None)
        check_attached(kernel, mode)
    do_detach(kernel, store)
    with pytest.raises(PoolError, match="attach it to a pool first"):
        attach.change_mode(as_dm(Dm(kernel)), "lv", "writeback", lambda text: None)


@pytest.mark.parametrize(("lines", "options", "words"), [
    ([Line(0, 9, "crypt", "x")], {}, "crypt, must be one of linear, striped"),
    ([Line(0, 9, "vcache-pool", "8:48")], {}, "vcache-pool, must be"),
    (TABLE, {"scope": None}, "--tag N"),
    ([Line(0, 9, "vcache", "none 8:16 volume 7")], {}, "mode none"),
    (TABLE, {"device": "/nonexistent"}, "not a mapped device"),
    (TABLE, {"scope": "volume 9"}, "is the tag of other"),
])
def test_what_is_refused_leaves_all_as_it_was(kernel: Kernel, store: Store, lines: list[Line],
                                              options: dict[str, str], words: str) -> None:
    kernel.add("other", Line(0, 9, "vcache", "flush-only 8:64 volume 9"))
    kernel.devices["lv"].live = tuple(lines)
    with pytest.raises(PoolError, match=words):
        do_attach(kernel, store, **options)  # type: ignore[arg-type]
    assert kernel.devices["lv"].live == tuple(lines)
    assert "lv-vcorigin" not in kernel.devices
    assert not store.volumes("fast")


@pytest.mark.parametrize("which", ["refuse_load", "refuse_resume"])
def test_a_table_that_the_kernel_refuses(kernel: Kernel, store: Store, which: str) -> None:
    setattr(kernel, which, "vcache")
    with pytest.raises(PoolError, match="lv is unchanged"):
        do_attach(kernel, store)
    check_plain(kernel)


class Stubborn(Dm):
    """A device mapper that fails at some calls after the kernel has refused a table."""

    def __init__(self, kernel: Kernel, *calls: str) -> None:
        super().__init__(kernel)
        self._calls = calls
        self._refused = False

    def resume(self, name: str, event: int = 0) -> None:
        if "resume" in self._calls and self._refused:
            raise DmError(errno.ENOMEM, "no memory")
        try:
            super().resume(name, event)
        except DmError:
            self._refused = True
            raise

    def remove(self, name: str, event: int = 0) -> None:
        if "remove" in self._calls:
            raise DmError(errno.EBUSY, "in use")
        super().remove(name, event)


def test_what_fails_as_a_change_is_undone_does_not_hide_the_reason(
        kernel: Kernel, store: Store) -> None:
    kernel.refuse_resume = "vcache"
    with pytest.raises(PoolError) as caught:
        do_attach(kernel, store, Stubborn(kernel, "resume"))
    assert str(caught.value) == (
        "lv: resume fails; restoring its table also failed: no memory; lv may be suspended, run "
        "the command again")
    kernel.refuse_resume = ""
    do_attach(kernel, store)
    check_attached(kernel)


def test_a_hidden_device_that_stays_is_named(kernel: Kernel, store: Store) -> None:
    kernel.refuse_resume = "vcache"
    with pytest.raises(PoolError) as caught:
        do_attach(kernel, store, Stubborn(kernel, "remove"))
    assert str(caught.value) == (
        "lv: resume fails; lv is unchanged, but removing lv-vcorigin also failed: in use; the "
        "next command for lv removes it")
    kernel.refuse_resume = ""
    do_attach(kernel, store)
    check_attached(kernel)


def test_a_suspended_device_that_has_no_way_back(kernel: Kernel, store: Store) -> None:
    """Both reasons are reported: that of its own table, and that of the former one."""
    do_attach(kernel, store)
    lv = kernel.devices["lv"]
    lv.suspended = lv.unloadable = True
    kernel.refuse_load = "linear"
    with pytest.raises(PoolError, match="cannot be resumed: resume fails; resuming it with the "
                                        "table of lv-vcorigin also failed: refused"):
        do_attach(kernel, store)


def test_a_hidden_device_of_others_is_left_alone(kernel: Kernel, store: Store) -> None:
    kernel.add("lv-vcorigin", Line(0, 1, "linear", "8:16 0"))
    with pytest.raises(PoolError, match="this command did not create"):
        do_attach(kernel, store)
    assert kernel.devices["lv"].live == TABLE


def test_what_another_program_does_is_left_alone(kernel: Kernel, store: Store) -> None:
    kernel.devices["lv"].loaded = (Line(0, 150, "linear", "8:80 0"),)
    with pytest.raises(PoolError, match="another program"):
        do_attach(kernel, store)
    kernel.devices["lv"].loaded = None
    kernel.devices["lv"].suspended = True
    with pytest.raises(PoolError, match="another program has suspended lv"):
        do_attach(kernel, store)
    assert kernel.devices["lv"].suspended


def test_a_number_with_data_of_another_device_is_not_given(kernel: Kernel, store: Store) -> None:
    kernel.volumes = {3: 0}  # clean
    store.remember_volume("fast", "LVM-other", 1)
    do_attach(kernel, store)
    assert store.volumes("fast") == {"LVM-other": 1, "LVM-abc": 2}
    do_detach(kernel, store)
    store.forget_volume("fast", 1)
    store.remember_volume("fast", "LVM-other", 2)
    kernel.volumes = {1: 8}  # dirty without a known owner
    with pytest.raises(PoolError, match="belongs to LVM-other"):
        do_attach(kernel, store, volume=2)
    with pytest.raises(PoolError, match="it is unknown .*--recover"):
        do_attach(kernel, store, volume=1)
    check_plain(kernel)
    do_attach(kernel, store, volume=1, recover=True)
    assert kernel.volumes[1] == 8


@pytest.mark.parametrize("dirty", [1, 2, 9])
def test_no_number_is_chosen_while_a_dirty_volume_has_no_owner(
        kernel: Kernel, store: Store, dirty: int) -> None:
    """The store was lost: the data may be that of the device, which is older without it."""
    kernel.volumes = {dirty: 8}
    with pytest.raises(PoolError, match=rf"dirty data of volume {dirty}, .*--volume {dirty} "
                                        r"--recover"):
        do_attach(kernel, store)
    check_plain(kernel)
    assert kernel.volumes == {dirty: 8}
    assert not store.volumes("fast")
    do_attach(kernel, store, volume=dirty, recover=True)
    assert kernel.volumes == {dirty: 8}


def test_a_lost_store_takes_over_the_volumes_of_attached_devices(
        kernel: Kernel, store: Store, tmp_path: Path) -> None:
    do_attach(kernel, store, volume=5)
    fresh = Store(tmp_path / "fresh.sqlite")
    try:
        owners.note_attached(as_dm(Dm(kernel)), fresh)
        assert fresh.volumes("fast") == {"LVM-abc": 5}
        kernel.devices["lv"].state = "bypassed"
        fresh.forget_volume("fast", 5)
        owners.note_attached(as_dm(Dm(kernel)), fresh)
        assert not fresh.volumes("fast"), "its data is outdated"
    finally:
        fresh.close()


def test_after_a_start_of_the_host_a_device_has_its_cache_again(kernel: Kernel,
                                                                store: Store) -> None:
    store.remember_volume("fast", "LVM-abc", 5)
    kernel.volumes = {5: 16}
    with pytest.raises(PoolError, match="close it first"):
        do_attach(kernel, store)
    kernel.devices["lv"].users = 0
    do_attach(kernel, store)
    assert kernel.volumes == {5: 16}
    kernel.devices["lv"].users = 1
    do_detach(kernel, store)
    check_plain(kernel)


def test_a_detach_at_an_origin_that_refuses(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    kernel.devices["lv"].state = "failing"
    with pytest.raises(PoolError, match=r"refuses writes, 1\.0 MiB"):
        do_detach(kernel, store)
    check_attached(kernel)
    kernel.devices["lv"].state = ""
    do_detach(kernel, store)
    check_plain(kernel)


@pytest.mark.parametrize("state", ["lost", "partly-lost"])
@pytest.mark.parametrize("flush_only", [False, True])
def test_a_detach_from_a_cache_that_has_failed(kernel: Kernel, store: Store,
                                               flush_only: bool, state: str) -> None:
    plain: Lines = TABLE
    if flush_only:
        plain = (Line(0, 150, "vcache", "flush-only 8:16 volume 7"),)
        kernel.devices["lv"].live = plain
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    kernel.devices["lv"].state = state
    with pytest.raises(PoolError, match=r"failed with 1\.0 MiB.*--force"):
        do_detach(kernel, store)
    do_detach(kernel, store, force=True)
    assert kernel.devices["lv"].live == plain
    assert list(kernel.devices) == ["fast", "lv"]
    # If the cache comes back, it no longer belongs to the device.
    assert store.volumes("fast") == {"outdated:LVM-abc": 1}


@pytest.mark.parametrize("state", ["bypassed", "partly-lost"])
def test_a_bypassed_volume_is_not_the_devices_any_more(kernel: Kernel, store: Store,
                                                       state: str) -> None:
    """The cache comes back after a restart of the host: its old data is not used."""
    do_attach(kernel, store)
    assert owners.disown_bypassed(as_dm(Dm(kernel)), store) == []
    kernel.devices["lv"].state = "lost"
    assert owners.disown_bypassed(as_dm(Dm(kernel)), store) == []
    kernel.devices["lv"].state = state
    assert owners.disown_bypassed(as_dm(Dm(kernel)), store) == [("lv", "fast", 1)]
    assert store.volumes("fast") == {"outdated:LVM-abc": 1}
    assert owners.disown_bypassed(as_dm(Dm(kernel)), store) == []
    # It may have data that somebody wants to look at.
    kernel.volumes[1] = 8
    kernel.devices["lv"].state = ""
    kernel.devices["lv"].live = TABLE
    do_attach(kernel, store)
    assert store.volumes("fast") == {"outdated:LVM-abc": 1, "LVM-abc": 2}
    assert kernel.volumes == {1: 8, 2: 0}


def test_a_pool_that_lies_on_the_device(kernel: Kernel, store: Store) -> None:
    kernel.devices["fast"].live = (Line(0, 9, "vcache-pool", str(kernel.devices["lv"].number)),)
    with pytest.raises(PoolError, match="is itself on lv"):
        do_attach(kernel, store)


@pytest.mark.parametrize("then", ["attach", "detach"])
def test_attach_is_killed_at_each_step(kernel: Kernel, store: Store, then: str) -> None:
    for step in range(1, 200):
        dm = Dm(kernel, step)
        try:
            do_attach(kernel, store, dm)
            done = True
        except Killed:
            done = False
        assert not kernel.devices["lv"].suspended
        if then == "attach":
            do_attach(kernel, store)
            check_attached(kernel)
        attached = kernel.mapping("lv") is not None
        if attached or then == "attach":
            do_detach(kernel, store)
        else:
            # Nothing is attached: the command reports that, and removes the remains.
            left = "lv-vcorigin" in kernel.devices
            if left:
                assert "removed" in do_detach(kernel, store)
            else:
                with pytest.raises(PoolError, match="no cache"):
                    do_detach(kernel, store)
        check_plain(kernel)
        if done:
            break
    assert 15 < step < 199


def test_a_table_that_does_not_resume_and_a_kill(kernel: Kernel, store: Store) -> None:
    """The only moment at which a kill leaves the device suspended: the next call resumes it."""
    suspended = 0
    for step in range(1, 200):
        kernel.refuse_resume = "vcache"
        try:
            do_attach(kernel, store, Dm(kernel, step))
        except PoolError:
            break
        except Killed:
            pass
        suspended += kernel.devices["lv"].suspended
        if kernel.mapping("lv"):
            # It still cannot be resumed: the former table is restored.
            with pytest.raises(PoolError):
                do_attach(kernel, store)
            check_plain(kernel)
        kernel.refuse_resume = ""
        do_attach(kernel, store)
        check_attached(kernel)
        do_detach(kernel, store)
    assert suspended
    check_plain(kernel)


@pytest.mark.parametrize("then", ["attach", "detach"])
def test_detach_is_killed_at_each_step(kernel: Kernel, store: Store, then: str) -> None:
    for step in range(1, 200):
        do_attach(kernel, store)
        kernel.volumes[1] = 2048
        try:
            do_detach(kernel, store, Dm(kernel, step))
            break
        except Killed:
            pass
        if then == "attach":
            do_attach(kernel, store)
            check_attached(kernel)
        elif kernel.mapping("lv") or "lv-vcorigin" in kernel.devices:
            do_detach(kernel, store)
            check_plain(kernel)
    assert 15 < step < 199
    check_plain(kernel)


def test_a_mode_change_is_killed_at_each_step(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    for step in range(1, 100):
        kernel.volumes[1] = 2048
        try:
            attach.change_mode(as_dm(Dm(kernel, step)), "lv", "writethrough", lambda text: None)
            break
        except Killed:
            pass
        for mode in ("writethrough", "writeback"):
            attach.change_mode(as_dm(Dm(kernel)), "lv", mode, lambda text: None)
            check_attached(kernel, mode)
    assert 5 < step < 99


def test_no_pool_and_its_users(kernel: Kernel, store: Store) -> None:
    with pytest.raises(PoolError, match="pools of this host: fast"):
        attach.attach(as_dm(Dm(kernel)), store, "lv", "lv", scope="volume 7")
    do_attach(kernel, store)
    with pytest.raises(PoolError, match="used by lv"):
        pools.remove(as_dm(Dm(kernel)), "fast")
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.state, found.chunk_bytes, found.chunks) == ("ok", MIB, 62)
    (member,) = pools.members(as_dm(Dm(kernel)), found)
    assert member.cache and member.cache.volume == 1
    do_detach(kernel, store)
    assert "is kept" in pools.remove(as_dm(Dm(kernel)), "fast")


@pytest.mark.parametrize("arguments", [
    "attach lv --mode writeback", "attach lv --pool fast --mode none",
    "attach lv --pool fast --tag 0",
    "attach lv --pool fast --tag 7 --filesystem", "attach lv --pool fast --volume 4294967296",
    "pool", "pool create fast", "pool create fast sdb --chunk-kib 100", "pool set fast",
    "pool set fast --reads-percent 101", "pool resize", "pool resize fast 0",
    "pool resize fast -1", "pool resize fast 5X", "pool resize fast G",
    "pool resize fast 10000000000000000000", "pool resize fast 9999999999T",
    "pool create fast sdb --reads-percent -1", "pool set fast --hot-percent 101",
    "pool create fast sdb --chunk-kib 32", "pool drop fast 0", "mode lv flush-only", "detach"])
def test_wrong_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 2
    assert "usage: vcache" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    "attach lv --pool fast --tag 7", "pool create fast sdb", "pool list", "detach lv",
    "mode lv writeback", "pool drop fast 1", "pool set fast --reads-percent 0"])
def test_without_the_module(arguments: str, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vcache_agent.cmd.pool_cli._MODULE", tmp_path / "none")
    assert cli.main(arguments.split()) == 3
    assert "modprobe dm-vcache" in capsys.readouterr().err


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with pool_cli.locked_store(tmp_path / "s.sqlite"), \
            pytest.raises(PoolError, match=r"'vcache.*' \(process \d+\) changes devices now"), \
            pool_cli.locked_store(tmp_path / "s.sqlite"):
        pass
