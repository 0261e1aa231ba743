# SPDX-License-Identifier: Apache-2.0
"""Replace the module against a model of device mapper, killed at every step."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dm_model import TABLE, Dm, Kernel, Killed, as_dm, host
from vcache_agent import above, attach, pools, replace
from vcache_agent.dm import Line, Lines
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

WIDE = Line(0, 1000, "vcache", "writeback 8:64 filesystem 3 pool 999:0 4")
ALONE = Line(0, 500, "vcache", "flush-only 8:80 volume 9")


@dataclasses.dataclass
class Module:
    """A module that nobody may use when it is unloaded."""

    kernel: Kernel
    there: bool = True
    version: int = 1
    refuse_load: bool = False
    refuse_unload: bool = False

    def loaded(self) -> bool:
        return self.there

    def unload(self) -> None:
        users = [name for name, device in self.kernel.devices.items()
                 if any(line.target.startswith("vcache") for line in
                        (*device.live, *(device.loaded or ())))]
        assert users == []
        if self.refuse_unload:
            raise PoolError("rmmod dm_vcache: Module dm_vcache is in use")
        self.there = False

    def load(self) -> None:
        assert not self.there
        if self.refuse_load:
            raise PoolError("modprobe dm-vcache: Invalid module format")
        self.there = True
        self.version += 1


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr("vcache_agent.attach.flush", lambda info: None)
    monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.attach._LOOK", 0.0)
    monkeypatch.setattr("vcache_agent.attach._REMOVE", 0.05)
    return host()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "s.sqlite")
    yield made
    made.close()


@pytest.fixture
def saved_in(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def fill(kernel: Kernel, store: Store) -> dict[str, Lines]:
    """Attach one device, add one with a pool and one without; return all tables."""
    attach.attach(as_dm(Dm(kernel)), store, "lv", "fast", scope="volume 7", volume=3)
    kernel.add("wide", WIDE, uuid="W", users=1)
    kernel.add("alone", ALONE, uuid="A", users=1)
    kernel.volumes |= {3: 2048, 4: 4096}
    return tables(kernel)


def tables(kernel: Kernel) -> dict[str, Lines]:
    """Return the active tables by name, with names of devices instead of their numbers."""
    names = {str(device.number): name for name, device in kernel.devices.items()}
    return {name: tuple(line._replace(arguments=" ".join(
        names.get(word, word) for word in line.arguments.split())) for line in device.live)
        for name, device in kernel.devices.items()}


def do_replace(kernel: Kernel, store: Store, module: Module, saved_in: Path, *,
               die_at: int = 0, said: list[str] | None = None) -> str:
    return replace.replace(as_dm(Dm(kernel, die_at)), store, module, saved_in,
                           ([] if said is None else said).append)


def test_a_device_above_another_one_stays(
        kernel: Kernel, store: Store, saved_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not open, so a detach alone would remove it."""
    monkeypatch.setattr("vcache_agent.above._claimed", lambda origin: False)
    monkeypatch.setattr("vcache_agent.above._opened", lambda number: False)
    kernel.add("luks", Line(0, 100, "crypt", "aes key 0 8:16 0"), uuid="CRYPT-a")
    above.attach_above(as_dm(Dm(kernel)), store, "luks", "fast", scope="volume 8", volume=5)
    before, module = tables(kernel), Module(kernel)
    do_replace(kernel, store, module, saved_in)
    assert tables(kernel) == before
    assert module.version == 2
    assert store.volumes("fast") == {"VCACHE-ABOVE-CRYPT-a": 5}


def test_all_devices_are_as_before_and_use_the_new_module(
        kernel: Kernel, store: Store, saved_in: Path) -> None:
    before, module = fill(kernel, store), Module(kernel)
    said: list[str] = []
    pools.tune(as_dm(Dm(kernel)), "fast", {"reads_percent": 40})
    assert "1 pools and 3 devices" in do_replace(kernel, store, module, saved_in, said=said)
    assert tables(kernel) == before
    assert (module.version, module.there) == (2, True)
    assert kernel.volumes == {3: 0, 4: 0}
    assert pools.pool(as_dm(Dm(kernel)), "fast").reads_percent == 40
    assert store.volumes("fast") == {"LVM-abc": 3, "W": 4}
    assert not saved_in.exists()
    assert "lv continues without its cache" in said
    assert "lv has its cache again" in said


def test_it_is_killed_at_each_step(kernel: Kernel, store: Store, saved_in: Path) -> None:
    before, module = fill(kernel, store), Module(kernel)
    for step in range(1, 400):
        kernel.volumes |= {3: 2048, 4: 4096}
        version = module.version
        try:
            do_replace(kernel, store, module, saved_in, die_at=step)
            break
        except Killed:
            pass
        assert not any(device.suspended and not device.users
                       for device in kernel.devices.values())
        do_replace(kernel, store, module, saved_in)
        assert tables(kernel) == before, step
        assert module.version > version
        assert not saved_in.exists()
    assert 60 < step < 399
    assert tables(kernel) == before


def test_a_device_that_is_removed_meanwhile(kernel: Kernel, store: Store, saved_in: Path) -> None:
    fill(kernel, store)
    module = Module(kernel, refuse_load=True)
    said: list[str] = []
    with pytest.raises(PoolError, match=r"Invalid module format; devices that continue without "
                                        r"their cache: lv, wide, alone; install"):
        do_replace(kernel, store, module, saved_in)
    assert kernel.devices["lv"].live == TABLE
    assert kernel.devices["wide"].live == (Line(0, 1000, "linear", "8:64 0"),)
    del kernel.devices["wide"]
    module.refuse_load = False
    do_replace(kernel, store, module, saved_in, said=said)
    assert "wide no longer exists" in said
    assert kernel.mapping("lv")


def test_what_cannot_be_taken_down_stays_in_use(kernel: Kernel, store: Store,
                                                saved_in: Path) -> None:
    before, module = fill(kernel, store), Module(kernel)
    kernel.devices["fast"].users = 1  # another program has the pool open
    with pytest.raises(PoolError, match="as before: pool fast is open in another program"):
        do_replace(kernel, store, module, saved_in)
    assert tables(kernel) == before
    assert module.version == 1
    assert not saved_in.exists()


def test_a_module_that_cannot_be_unloaded_stays_in_use(kernel: Kernel, store: Store,
                                                       saved_in: Path) -> None:
    before, module = fill(kernel, store), Module(kernel, refuse_unload=True)
    with pytest.raises(PoolError, match="as before: rmmod dm_vcache: Module dm_vcache is in use"):
        do_replace(kernel, store, module, saved_in)
    assert tables(kernel) == before
    assert not saved_in.exists()


@pytest.mark.parametrize(("state", "message"), [
    ("bypassed", "the cache of lv has failed"), ("lost", "the cache of lv has failed")])
def test_a_failed_cache_is_refused_first(kernel: Kernel, store: Store, saved_in: Path, state: str,
                                         message: str) -> None:
    before, module = fill(kernel, store), Module(kernel)
    kernel.devices["lv"].state = state
    with pytest.raises(PoolError, match=message):
        do_replace(kernel, store, module, saved_in)
    assert tables(kernel) == before
    assert not saved_in.exists()


@pytest.mark.parametrize(("text", "message"), [
    ("{", "Expecting"), (json.dumps({"version": 2}), "version 2, must be 1"),
    (json.dumps({"version": 1, "pools": [{"name": "x"}]}), "no entry 'table'")])
def test_a_damaged_file_is_refused(kernel: Kernel, store: Store, saved_in: Path, text: str,
                                   message: str) -> None:
    saved_in.write_text(text)
    with pytest.raises(PoolError, match=message):
        do_replace(kernel, store, Module(kernel), saved_in)
    assert saved_in.read_text() == text
