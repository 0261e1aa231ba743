# SPDX-License-Identifier: Apache-2.0
"""Targets that are missing after a restart of the host, and connections that end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from vcache_cinder import targets
from vcache_cinder.lvm import VcacheLVMDriver

NAME = "volume-11111111-2222-4333-8444-555555555555"
IQN = f"iqn.2010-10.org.openstack:{NAME}"
LOCAL, OTHER = {"host": "here", "initiator": "a"}, {"host": "there", "initiator": "b"}


def volume(location: str | None = f"127.0.0.1:3260,1 {IQN} 0", *connectors: Any) -> dict[str, Any]:
    return {"id": NAME.partition("-")[2], "name": NAME, "provider_location": location,
            "volume_attachment": [SimpleNamespace(connector=one) for one in connectors]}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver whose target driver notes what it is told."""
    driver: Any = VcacheLVMDriver.__new__(VcacheLVMDriver)
    driver.configuration = SimpleNamespace(
        target_helper="lioadm", volume_group="vg", vcache_local_attach=True, vcache_pool="fast")
    driver.hostname, driver.vg, driver.target_driver = "here", mock.MagicMock(), mock.Mock()
    driver.target_driver.share_targets = False
    monkeypatch.setattr(driver, "_give_cache", driver.target_driver.give_cache)
    return driver


def calls(driver: Any) -> list[str]:
    return [name for name, _, _ in driver.target_driver.method_calls]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where LIO has the disk of the target."""
    monkeypatch.setattr(targets, "LIO", tmp_path)
    return tmp_path / IQN / "tpgt_1" / "lun" / "lun_0"


def test_a_target_of_lio_that_is_complete_stays(made: Any, disk: Path) -> None:
    disk.mkdir(parents=True)
    (disk / "link").symlink_to("/")
    made.ensure_export(None, volume(f"127.0.0.1:3260,1 {IQN} 0", OTHER))
    assert calls(made) == ["give_cache", "ensure_export"]


@pytest.mark.parametrize("found", ["nothing", "no disk", "no storage object"])
def test_a_target_of_lio_without_its_disk_is_created_again(
        made: Any, disk: Path, found: str) -> None:
    if found != "nothing":
        (disk if found == "no storage object" else disk.parent).mkdir(parents=True)
    wanted = volume(f"127.0.0.1:3260,1 {IQN} 0", LOCAL, None, OTHER)
    made.ensure_export(None, wanted)
    assert calls(made) == ["give_cache", "ensure_export", "remove_iscsi_target", "create_export",
                           "initialize_connection"]
    made.target_driver.create_export.assert_called_once_with(None, wanted, f"/dev/vg/{NAME}")
    made.target_driver.initialize_connection.assert_called_once_with(wanted, OTHER)


def test_targets_of_nvmet_are_created_again(made: Any) -> None:
    made.configuration.target_helper = "nvmet"
    made.ensure_export(None, volume("127.0.0.1:4420 tcp nqn 10", OTHER))
    assert calls(made) == ["give_cache", "ensure_export", "create_export",
                           "initialize_connection"]


def test_other_target_drivers_do_it_themselves(made: Any) -> None:
    made.configuration.target_helper = "tgtadm"
    made.ensure_export(None, volume(f"127.0.0.1:3260,1 {IQN} 0", OTHER))
    assert calls(made) == ["give_cache", "ensure_export"]
    made.target_driver.reset_mock()
    made.ensure_export(None, volume(None, LOCAL))
    assert calls(made) == ["give_cache"]


@pytest.mark.parametrize(("shared", "expected"), [(False, []), (True, ["terminate_connection"])])
def test_the_end_of_all_connections(made: Any, shared: bool, expected: list[str]) -> None:
    """remove_export() removes a target with all its initiators, but not one of several volumes."""
    made.target_driver.share_targets = shared
    assert made.terminate_connection(volume(), None, force=True) is False
    assert calls(made) == expected


@pytest.mark.parametrize(("mode", "expected"), [
    ("writeback", ["keep_inactive True", "put"]),
    ("writethrough", ["keep_inactive True", "put"]),
    ("flush-only", ["put", "keep_inactive False"])])
def test_nothing_opens_a_volume_before_the_data_of_its_pool(
        made: Any, mode: str, expected: list[str]) -> None:
    done = []
    made.vg.keep_inactive = lambda name, inactive: done.append(f"keep_inactive {inactive}")
    made.agent = SimpleNamespace(put=lambda *_: done.append("put"))
    made._apply(volume(), {"vcache:mode": mode})
    assert done == expected
