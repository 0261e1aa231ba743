# SPDX-License-Identifier: Apache-2.0
"""The owner of a volume, and what happens after a stop or a crash of the host."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dm_model import TABLE, Dm, Kernel, as_dm, host
from vcache_agent import attach, owners, pools
from vcache_agent.boot import restore, stopping
from vcache_agent.boot.clean_records import CleanRecords
from vcache_agent.boot.setup_file import AttachLine
from vcache_agent.dm import Line
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

OLD_BOOT = "v1:@00000000:LVM-abc"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr("vcache_agent.attach.flush", lambda info: None)
    monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.origin_stamp.stamp", lambda path: "0123456789abcdef")
    monkeypatch.setattr("vcache_agent.origin_stamp.changed", lambda path, old: "")
    monkeypatch.setattr("vcache_agent.boot.restore.block_number", lambda path: DeviceNumber(1, 1))
    made = host()
    made.devices["lv"].users = 0
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "s.sqlite"


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    made = Store(state)
    yield made
    made.close()


def do_attach(kernel: Kernel, store: Store, **options: object) -> str:
    return attach.attach(as_dm(Dm(kernel)), store, "lv", "fast", scope="volume 7",
                         **options)  # type: ignore[arg-type]


def reboot(kernel: Kernel, label: str = OLD_BOOT) -> None:
    """Start the host again: logical volumes and pools have their tables, nothing is attached."""
    kernel.devices.pop("lv-vcorigin", None)
    if "lv" not in kernel.devices:
        kernel.add("lv", uuid="LVM-abc")
    kernel.devices["lv"].live = TABLE
    if "fast" not in kernel.devices:
        kernel.add("fast", Line(0, 1000, "vcache-pool", "8:48"))
    for volume in kernel.labels:
        if kernel.labels[volume].startswith("v1:@"):
            kernel.labels[volume] = label


def test_a_label_has_the_owner(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    (label,) = owners.labels(as_dm(Dm(kernel)), "fast").values()
    assert label == owners.Label("LVM-abc", "", this_boot=True)
    kernel.labels[1] = "something else"
    assert owners.labels(as_dm(Dm(kernel)), "fast") == {}


@pytest.mark.parametrize("identity", ["LVM-abc", "name:" + "x" * 200, "with a space", "gr\u00fcn"])
def test_a_label_is_short_and_printable(identity: str) -> None:
    word = owners.owner_word(identity)
    assert len(f"v1:@12345678:{word}") <= 127
    assert word.isascii() and " " not in word
    assert word != owners.owner_word(identity + "x")


def test_the_pool_knows_the_owner_when_the_store_is_lost(kernel: Kernel, store: Store,
                                                         tmp_path: Path) -> None:
    do_attach(kernel, store, volume=5)
    kernel.volumes[5] = 16
    reboot(kernel)
    fresh = Store(tmp_path / "fresh.sqlite")
    try:
        do_attach(kernel, fresh)
        assert fresh.volumes("fast") == {"LVM-abc": 5}
        assert kernel.volumes == {5: 16}
    finally:
        fresh.close()


def test_a_number_that_the_pool_gives_to_another_device_is_not_taken(kernel: Kernel,
                                                                     store: Store) -> None:
    kernel.volumes = {1: 16}
    kernel.labels[1] = "v1:@00000000:LVM-other"
    with pytest.raises(PoolError, match="belongs to LVM-other"):
        do_attach(kernel, store, volume=1)
    do_attach(kernel, store)
    assert store.volumes("fast") == {"LVM-abc": 2}
    assert kernel.volumes == {1: 16, 2: 0}


def test_a_changed_origin_is_refused(kernel: Kernel, store: Store,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 16
    seen = []

    def changed(path: str, old: str) -> str:
        seen.append(old)
        return "its superblock differs"

    monkeypatch.setattr("vcache_agent.origin_stamp.changed", changed)
    reboot(kernel)
    with pytest.raises(owners.OriginChanged, match="without its cache: its superblock.*--force"):
        do_attach(kernel, store)
    kernel.labels[1] = "v1:fedcba9876543210:LVM-abc"
    with pytest.raises(owners.OriginChanged):
        do_attach(kernel, store)
    assert seen == ["", "fedcba9876543210"]
    assert kernel.devices["lv"].live == TABLE
    do_attach(kernel, store, force=True)
    assert kernel.volumes == {1: 16}


def test_within_a_boot_the_time_of_the_file_system_says_nothing(
        kernel: Kernel, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    do_attach(kernel, store)
    boot = kernel.labels[1].split(":")[1]
    monkeypatch.setattr("vcache_agent.origin_stamp.changed", lambda path, old: "written")
    reboot(kernel, f"v1:{boot}:LVM-abc")
    do_attach(kernel, store)


def test_a_stop_leaves_a_stamp_and_removes_everything(kernel: Kernel, store: Store,
                                                      state: Path) -> None:
    do_attach(kernel, store)
    said: list[str] = []
    stopping.stop(as_dm(Dm(kernel)), state, said.append, 0.2)
    assert kernel.devices == {}
    assert kernel.labels == {1: "v1:0123456789abcdef:LVM-abc"}
    assert CleanRecords(state).has("fast", "LVM-abc")
    assert said == ["lv is stopped, its cache is clean", "pool fast is stopped"]


def test_a_stop_destages_what_was_still_in_the_buffer(kernel: Kernel, store: Store, state: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    do_attach(kernel, store)
    buffered = [16]

    def flush(info: object) -> None:
        kernel.volumes[1] += buffered[0]
        buffered[0] = 0

    monkeypatch.setattr("vcache_agent.attach.flush", flush)
    stopping.stop(as_dm(Dm(kernel)), state, lambda text: None, 5.0)
    assert kernel.volumes == {1: 0}
    assert CleanRecords(state).has("fast", "LVM-abc")


def test_a_stop_leaves_what_is_in_use(kernel: Kernel, store: Store, state: Path) -> None:
    do_attach(kernel, store)
    kernel.devices["lv"].users = 1
    said: list[str] = []
    stopping.stop(as_dm(Dm(kernel)), state, said.append, 0.0)
    assert said == ["lv is in use and stays"]
    assert list(kernel.devices) == ["fast", "lv", "lv-vcorigin"]


def test_a_stop_waits_for_an_unmount(kernel: Kernel, store: Store, state: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    do_attach(kernel, store)
    kernel.devices["lv"].users = 2

    def sleep(seconds: float) -> None:
        kernel.devices["lv"].users -= 1

    monkeypatch.setattr("vcache_agent.boot.stopping.time.sleep", sleep)
    said: list[str] = []
    # No time limit ends this: each wait closes the device once.
    stopping.stop(as_dm(Dm(kernel)), state, said.append, 0.0, float("inf"))
    assert said == ["lv is stopped, its cache is clean", "pool fast is stopped"]


def test_a_stop_with_an_origin_that_does_not_take_the_data(kernel: Kernel, store: Store,
                                                           state: Path) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 16
    kernel.devices["lv"].state = "failing"
    stopping.stop(as_dm(Dm(kernel)), state, lambda text: None, 0.0)
    assert kernel.devices == {}
    assert kernel.volumes == {1: 16}
    assert not CleanRecords(state).has("fast", "LVM-abc")


def devices(kernel: Kernel, store: Store, state: Path, said: list[str]) -> restore.Devices:
    return restore.Devices(as_dm(Dm(kernel)), state, lambda: contextlib.nullcontext(store),
                           said.append)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> AttachLine:
    return AttachLine("lv", "fast", "volume 7")


def test_a_start_attaches_again(kernel: Kernel, store: Store, state: Path,
                                line: AttachLine) -> None:
    do_attach(kernel, store)
    stopping.stop(as_dm(Dm(kernel)), state, lambda text: None, 0.2)
    reboot(kernel)
    said: list[str] = []
    assert "volume 1" in devices(kernel, store, state, said).start(line)
    assert said == []
    assert not CleanRecords(state).has("fast", "LVM-abc"), "it may be dirty from now on"
    assert "already" in devices(kernel, store, state, said).start(line)


def without_pool(kernel: Kernel) -> None:
    reboot(kernel)
    del kernel.devices["fast"]


def test_clean_data_continues_without_its_cache(kernel: Kernel, store: Store, state: Path,
                                                line: AttachLine) -> None:
    do_attach(kernel, store)
    stopping.stop(as_dm(Dm(kernel)), state, lambda text: None, 0.2)
    without_pool(kernel)
    said: list[str] = []
    devices(kernel, store, state, said).start(line)
    assert "WITHOUT ITS CACHE: pool fast is not active. No data is lost" in said[0]
    mapping = kernel.mapping("lv")
    assert mapping is not None
    assert (mapping.mode, mapping.pool) == ("flush-only", None)
    # The cache comes back with old data.
    kernel.add("fast", Line(0, 1000, "vcache-pool", "8:48"))
    kernel.volumes[1] = 0
    devices(kernel, store, state, said).start(line)
    mapping = kernel.mapping("lv")
    assert mapping is not None
    assert mapping.pool is not None
    assert store.volumes("fast") == {"LVM-abc": 1}
    assert len(said) == 1


def test_dirty_data_does_not_continue_without_its_cache(kernel: Kernel, store: Store, state: Path,
                                                        line: AttachLine) -> None:
    do_attach(kernel, store)
    without_pool(kernel)
    said: list[str] = []
    with pytest.raises(PoolError, match=r"not made available: pool fast is not active.*"
                                        r"systemctl start vcache-attach@lv.service.*"
                                        r"vcache setup start lv --without-cache"):
        devices(kernel, store, state, said).start(line)
    assert kernel.devices["lv"].live == TABLE
    devices(kernel, store, state, said).start(line, without_cache=True)
    assert "Data that only the cache had is lost" in said[0]
    assert store.volumes("fast") == {"outdated:LVM-abc": 1}


def test_a_pool_that_was_created_anew_does_not_hide_lost_data(kernel: Kernel, store: Store,
                                                              state: Path,
                                                              line: AttachLine) -> None:
    do_attach(kernel, store)
    reboot(kernel)
    kernel.volumes = {}
    with pytest.raises(PoolError, match="has no volume 1, as if it were a new pool"):
        devices(kernel, store, state, []).start(line)
    assert kernel.devices["lv"].live == TABLE


def test_a_changed_origin_discards_a_clean_cache(kernel: Kernel, store: Store, state: Path,
                                                 line: AttachLine,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    do_attach(kernel, store)
    stopping.stop(as_dm(Dm(kernel)), state, lambda text: None, 0.2)
    reboot(kernel)
    monkeypatch.setattr("vcache_agent.origin_stamp.changed", lambda path, old: "it differs")
    said: list[str] = []
    devices(kernel, store, state, said).start(line)
    assert "discarded" in said[0]
    assert pools.members(as_dm(Dm(kernel)))


def test_a_missing_device_is_named(kernel: Kernel, store: Store, state: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcache_agent.boot.restore.block_number", lambda path: None)
    monkeypatch.setattr("vcache_agent.boot.restore._LOOK", 0.01)
    missing = AttachLine("/dev/x", "fast", "volume 7", timeout=0)
    with pytest.raises(PoolError, match="/dev/x did not appear within 0 s"):
        devices(kernel, store, state, []).start(missing)
