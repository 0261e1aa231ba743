# SPDX-License-Identifier: Apache-2.0
"""Volumes that a compute host has over iSCSI, with LIO as the target."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.steps import at_end
from tests.cinder.functional import iscsi, lab
from tests.cinder.functional.test_life import (
    MODES,
    Content,
    check_cached,
    name_of,
    nothing_is_left,
    path_of,
)

assert nothing_is_left


@pytest.fixture
def remote(agent: lab.Agent) -> Iterator[Any]:
    from tests.cinder.functional.cloud import INITIATOR, Cloud

    for folder in ("/etc/target", "/var/target"):
        Path(folder).mkdir(exist_ok=True)  # as the package of targetcli does
    made = Cloud("lioadm")
    made.setUp()
    with at_end(made.doCleanups), iscsi.daemon(INITIATOR):
        yield made


@pytest.mark.parametrize("mode", MODES)
def test_a_volume_over_iscsi(remote: Any, mode: str) -> None:
    remote.kind("fast", mode=mode)
    volume = remote.make("fast")
    attachment, connection = remote.attach(volume, host="elsewhere")
    assert connection["driver_volume_type"] == "iscsi"
    check_cached(volume, mode)
    content = Content()
    with iscsi.connected(connection) as path:
        for place in range(8):
            content.write(path, place << 20, b"a")
        content.check(path_of(name_of(volume)))
        snapshot, before = remote.snapshot(volume), content.copy()
        check_cached(volume, mode)
        content.write(path, 0, b"b")
        remote.act(volume, "os-extend", new_size=2)
        remote.wait(volume, "in-use")
        content.check(path)
        remote.restart()
        check_cached(volume, mode)
        content.write(path, 1 << 20, b"c")
        content.check(path)
    remote.detach(volume, attachment)
    content.check(path_of(name_of(volume)))
    copy = remote.make(snapshot_id=snapshot)
    before.check(path_of(name_of(copy)))
    remote.delete_snapshot(snapshot)
    remote.delete(copy)
    remote.delete(volume)
