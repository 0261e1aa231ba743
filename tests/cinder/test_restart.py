# SPDX-License-Identifier: Apache-2.0
"""What a killed cinder-volume has left is continued when it starts."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from cinder import exception

from vcache_agent.admin_client import AdminError
from vcache_cinder import specs
from vcache_cinder.agent import Agent
from vcache_cinder.lvm import VcacheLVMDriver

ID = "11111111-2222-4333-8444-555555555555"
WANTED = {"vcache:mode": "writeback"}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver: Any = VcacheLVMDriver.__new__(VcacheLVMDriver)
    driver.vg, driver.rows = mock.MagicMock(), []
    driver.agent = Agent("/s", 1.0, lambda _path, request, _seconds: {
        "volume-list": {"volumes": driver.rows}}[request["op"]])
    monkeypatch.setattr(specs, "of_volume", lambda volume: volume["specs"])
    driver._apply = mock.Mock()
    return driver


def volume(status: str = "available", wanted: Any = WANTED, attached: int = 0) -> dict[str, Any]:
    return {"id": ID, "name": f"volume-{ID}", "status": status, "specs": wanted,
            "volume_attachment": [SimpleNamespace()] * attached}


def row(state: str = "attached", **given: Any) -> dict[str, Any]:
    return {"id": ID, "device": "/dev/x", "state": state, "pool": "fast", "specs": WANTED, **given}


@pytest.mark.parametrize(("found", "rows", "applied"), [
    (volume("extending", attached=1), [row("drained")], True),
    (volume("available"), [row("leaving")], True),
    (volume("retyping", attached=1), [row(specs={"vcache:mode": "flush-only"})], True),
    (volume("retyping", attached=1), [], True),
    (volume("available", {}), [row()], True),
    (volume("available"), [row()], False),
    (volume("available"), [], False),
    (volume("in-use", attached=1), [row("drained")], False),
    (volume("deleting"), [row("drained")], False)])
def test_what_was_left_is_continued(made: Any, found: dict[str, Any], rows: list[Any],
                                    applied: bool) -> None:
    made.rows = rows
    assert made.update_provider_info([found], []) == (None, None)
    assert [call.args for call in made._apply.mock_calls] == [(found, found["specs"])] * applied
    assert made.vg.activate_lv.called == applied


def test_one_that_fails_does_not_stop_the_others(made: Any) -> None:
    made.rows = [row("drained")]
    made._apply.side_effect = exception.VolumeBackendAPIException(data="no pool")
    assert made.update_provider_info([volume(), volume()], []) == (None, None)
    assert made._apply.call_count == 2


def test_the_service_starts_although_the_agent_does_not_answer(made: Any) -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        raise AdminError("no")

    made.agent = Agent("/s", 1.0, refuse)
    assert made.update_provider_info([volume("extending", attached=1)], []) == (None, None)
    assert not made._apply.called
