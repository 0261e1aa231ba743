# SPDX-License-Identifier: Apache-2.0
"""Volumes that a compute host has over the network: LIO and nvmet, with Linux's initiators."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.box.inside import run
from tests.box.steps import at_end
from tests.cinder.functional import iscsi, lab, nvme
from tests.cinder.functional.test_life import (
    MIB,
    Content,
    check_cached,
    name_of,
    nothing_is_left,
    path_of,
)

assert nothing_is_left

ELSEWHERE = "elsewhere"


@pytest.fixture(params=[iscsi, nvme], ids=["iscsi", "nvme-tcp"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def remote(agent: lab.Agent, protocol: Any) -> Iterator[Any]:
    from tests.cinder.functional.cloud import INITIATOR, Cloud

    with protocol.ready(INITIATOR):
        made = Cloud(**protocol.OPTIONS)
        made.setUp()
        with at_end(made.doCleanups), at_end(protocol.forget):
            yield made
            assert protocol.exported() == set()


def device(volume: str) -> str:
    return f"/dev/{lab.GROUP}/{name_of(volume)}"


def test_a_volume_on_another_host(remote: Any, protocol: ModuleType) -> None:
    mode = "writeback"
    remote.kind("fast", mode=mode)
    volume = remote.make("fast")
    attachment, connection = remote.attach(volume, host=ELSEWHERE)
    assert connection["driver_volume_type"] == protocol.KIND
    check_cached(volume, mode)
    assert protocol.exported() == {device(volume)}
    content = Content()
    with protocol.connected(connection) as path:
        written = lab.written(name_of(volume))
        for place in range(8):
            content.write(path, place << 20, b"a")
        # Through the cache, and not beside it.
        assert lab.written(name_of(volume)) - written >= 8 * len(content.written[0])
        content.check(path)
        content.check(path_of(name_of(volume)))
        # First, because Cinder does not extend a thick volume in use that has snapshots.
        remote.act(volume, "os-extend", new_size=2)
        remote.wait(volume, "in-use")
        protocol.look_again(path)
        lab.eventually(lambda: lab.size(path) == 2048 * MIB, "its new size")
        content.write(path, 1536 * MIB, b"b")
        snapshot, before = remote.snapshot(volume), content.copy()
        check_cached(volume, mode)
        content.write(path, 0, b"c")
        remote.restart()
        check_cached(volume, mode)
        content.write(path, 1 << 20, b"d")
        content.check(path)
    remote.detach(volume, attachment)
    assert protocol.exported() == set()
    content.check(path_of(name_of(volume)))
    before.check(path_of(f"_snapshot-{snapshot}"))
    remote.delete_snapshot(snapshot)
    remote.delete(volume)


@pytest.mark.parametrize("protocol", [pytest.param(nvme, id="nvme-tcp")])
def test_the_host_restarts_while_others_use_its_volumes(
        remote: Any, agent: lab.Agent, protocol: ModuleType) -> None:
    """Each volume has its cache before its target, and the hosts find their targets again."""
    modes = {"writeback": b"a", "writethrough": b"b"}
    for mode in modes:
        remote.kind(mode, mode=mode)
    volumes = {remote.make(mode): mode for mode in modes}
    attached = {volume: remote.attach(volume, host=ELSEWHERE) for volume in volumes}
    contents = {volume: Content() for volume in volumes}
    for volume, (_, connection) in attached.items():
        with protocol.connected(connection) as path:
            if volumes[volume] == "writeback":
                run("vcache", "destage", path_of(name_of(volume)), "--pause", "600")
            for place in range(8):
                contents[volume].write(path, place << 20, modes[volumes[volume]])
    assert any(row["dirty_bytes"] for row in lab.volumes().values())
    lab.power_cut(agent, protocol.forget)
    assert not any(name_of(volume).replace("-", "--") in name
                   for volume in volumes for name in lab.mapped())
    agent.start()
    remote.restart()
    assert protocol.exported() == set(map(device, volumes))
    for volume, (attachment, connection) in attached.items():
        check_cached(volume, volumes[volume])
        with protocol.connected(connection) as path:
            contents[volume].check(path)
            contents[volume].write(path, 64 * MIB, b"c")
        contents[volume].check(path_of(name_of(volume)))
        remote.detach(volume, attachment)
        remote.delete(volume)
