# SPDX-License-Identifier: Apache-2.0
"""Volume types, the client of the agent, and the brackets around commands of LVM."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cinder import exception
from cinder.brick.local_dev import lvm as brick

from vcache_agent.admin_client import AdminError, NotHere
from vcache_cinder import lvm, specs
from vcache_cinder.agent import Agent
from vcache_cinder.group import CachedGroup, volume_of

ID = "11111111-2222-4333-8444-555555555555"
NAME = f"volume-{ID}"


@pytest.mark.parametrize(("given", "multiattach", "found"), [
    ({}, False, {}),
    ({"vcache:mode": "none", "vcache:weight": "7"}, False, {}),
    ({"vcache:mode": "writeback", "vcache:weight": "7"}, False,
     {"vcache:mode": "writeback", "vcache:weight": "7"}),
    ({"vcache:mode": "writeback"}, True, {"vcache:mode": "writethrough"}),
    ({"vcache:mode": "flush-only"}, True, {"vcache:mode": "flush-only"})])
def test_specs_of_a_type(given: dict[str, str], multiattach: bool,
                         found: dict[str, str]) -> None:
    assert specs.effective(given, multiattach=multiattach) == found


@pytest.mark.parametrize(("given", "text"), [
    ({"vcache:mode": "fast"}, "vcache:mode: 'fast' is not allowed"),
    ({"vcache:speed": "1"}, "unknown key"),
    ({"vcache:mode": "writeback", "vcache:required": "true"}, "only for flavors"),
    ({"vcache:persist": "true"}, "only for flavors")])
def test_wrong_types_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(exception.InvalidVolumeType, match=text):
        specs.effective(given, multiattach=False)


def test_quality_of_service_wins_over_extra_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {"extra_specs": {"vcache:mode": "writeback", "vcache:weight": "7", "other": "x"},
            "qos_specs_id": "q"}
    quality = {"consumer": "back-end", "specs": {"vcache:weight": "9", "read_iops_sec": "5"}}
    monkeypatch.setattr("cinder.volume.volume_types.get_volume_type", lambda *_: kind)
    monkeypatch.setattr("cinder.volume.qos_specs.get_qos_specs", lambda *_: quality)
    assert specs.of_type("t") == {"vcache:mode": "writeback", "vcache:weight": "9"}
    quality["consumer"] = "front-end"
    assert specs.of_type("t") == {"vcache:mode": "writeback", "vcache:weight": "7"}
    assert specs.of_type(None) == {}


def test_an_entry_of_the_image_cache_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "of_type", lambda *_, **__: {"vcache:mode": "writeback"})
    volume = {"project_id": "p", "volume_type_id": "t"}
    with mock.patch("oslo_config.cfg.CONF") as conf:
        conf.cinder_internal_tenant_project_id = "internal"
        assert specs.of_volume(volume) == {"vcache:mode": "writeback"}
        assert specs.of_volume({**volume, "project_id": "internal"}) == {}
        conf.cinder_internal_tenant_project_id = None
        assert specs.of_volume({**volume, "project_id": None}) == {"vcache:mode": "writeback"}


def test_what_the_scheduler_sees() -> None:
    pool = {"state": "ok", "size_bytes": 3 << 30, "free_bytes": 1 << 30}
    assert lvm.capabilities(pool) == {
        "vcache": True, "vcache_modes": ["writeback", "writethrough", "flush-only"],
        "vcache_size_gb": 3.0, "vcache_free_gb": 1.0}
    assert lvm.capabilities(None)["vcache_modes"] == ["flush-only"]
    assert lvm.capabilities(pool | {"state": "failed"})["vcache_modes"] == ["flush-only"]


class Fake:
    """An agent with one volume; it notes what it is asked."""

    def __init__(self, state: str = "attached") -> None:
        self.volume: dict[str, Any] | None = {
            "id": ID, "device": "/dev/x", "state": state, "pool": "fast", "specs": {"a": "b"}}
        self.done: list[str] = []
        self.refuse = ""

    def __call__(self, path: Path, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        name = request["op"]
        if name == self.refuse:
            raise AdminError("no")
        if name != "volume-get":
            self.done.append(name)
        if name == "volume-delete":
            self.volume = None
            return {}
        if self.volume is None or request["id"] != ID:
            raise NotHere("not managed")
        if name == "volume-drain":
            self.volume["state"] = "drained"
        if name == "volume-put":
            self.volume["state"] = "attached"
        return {"volume": dict(self.volume)}


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def group(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> CachedGroup:
    """A volume group whose commands are noted, too."""
    made = CachedGroup.__new__(CachedGroup)
    made.agent, made._lost, made.vg_name = Agent("/s", 1.0, fake), {}, "vg"
    made._root_helper, made._locks = None, {}
    made._execute = lambda *words, **_: fake.done.append(words[0])
    for name in ("create_lv_snapshot", "extend_volume", "delete", "rename_volume", "revert",
                 "activate_lv"):
        monkeypatch.setattr(brick.LVM, name,
                            lambda self, *_, word=name, **__: fake.done.append(word))
    monkeypatch.setattr(brick.LVM, "get_volume", lambda self, name: {"name": name})
    monkeypatch.setattr(brick.LVM, "lv_get_origin", lambda self, name: NAME)
    return made


@pytest.mark.parametrize(("call", "command"), [
    (lambda group: group.create_lv_snapshot("_snapshot-1", NAME), "create_lv_snapshot"),
    (lambda group: group.extend_volume(NAME, "2g"), "extend_volume"),
    (lambda group: group.delete("_snapshot-1"), "delete"),
    (lambda group: group.revert("_snapshot-1"), "revert")])
def test_lvm_sees_the_original_table(group: CachedGroup, fake: Fake, call: Any,
                                     command: str) -> None:
    call(group)
    assert fake.done == ["activate_lv", "volume-drain", command, "volume-put"]
    # A volume without a cache stays without.
    fake.volume["state"], fake.done = "drained", []  # type: ignore[index]
    call(group)
    assert fake.done == [command]
    fake.refuse, fake.volume["state"], fake.done = (  # type: ignore[index]
        "volume-drain", "attached", [])
    with pytest.raises(exception.VolumeBackendAPIException, match="volume-drain: no"):
        call(group)
    assert command not in fake.done


def test_a_deleted_or_renamed_volume_is_forgotten(group: CachedGroup, fake: Fake) -> None:
    group.delete(NAME)
    assert fake.done == ["activate_lv", "volume-delete", "lvchange", "delete"]
    fake.volume, fake.done = Fake().volume, []
    group.rename_volume(NAME, "x")
    assert fake.done == ["activate_lv", "volume-delete", "lvchange", "rename_volume"]
    group.delete("by-hand")
    assert volume_of("by-hand") is volume_of("volume-by-hand") is volume_of(None) is None
    assert volume_of(NAME) == ID


def test_a_cache_that_does_not_come_back_is_tried_again(group: CachedGroup, fake: Fake) -> None:
    fake.refuse = "volume-put"
    group.extend_volume(NAME, "2g")  # it has worked
    group.retry()
    assert fake.volume and fake.volume["state"] == "drained"
    fake.refuse, fake.done = "", []
    group.retry()
    group.retry()
    assert fake.done == ["volume-put"]
    assert fake.volume["state"] == "attached"
