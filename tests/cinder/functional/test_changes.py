# SPDX-License-Identifier: Apache-2.0
"""Changes of volumes in use, and restarts, through Cinder's API."""

from typing import Any

from tests.box.inside import run
from tests.cinder.functional import lab
from tests.cinder.functional.test_life import (
    Content,
    check_cached,
    name_of,
    nothing_is_left,
    path_of,
)

assert nothing_is_left


def retype(cloud: Any, volume: str, kind: str, status: str) -> None:
    cloud.act(volume, "os-retype", new_type=kind, migration_policy="never")
    cloud.wait(volume, status)


def test_a_volume_in_use_changes_its_type(cloud: Any) -> None:
    modes = {"writeback": "100", "writethrough": "200", "flush-only": "300"}
    for mode, weight in modes.items():
        cloud.kind(mode, mode=mode, weight=weight)
    cloud.kind("plain")
    volume = cloud.make("plain")
    attachment, connection = cloud.attach(volume)
    path, content = connection["device_path"], Content()
    content.write(path, 0, b"a")
    assert lab.table(name_of(volume)) == "linear"
    steps = ["writeback", "flush-only", "writethrough", "plain", "flush-only", "writeback"]
    for number, kind in enumerate(steps):
        retype(cloud, volume, kind, "in-use")
        content.write(path, (number + 1) << 20, b"b")
        if kind == "plain":
            assert lab.table(name_of(volume)) == "linear"
            assert lab.volumes() == {}
        else:
            check_cached(volume, kind)
            assert str(lab.disks()[volume]["weight"]) == modes[kind]
        content.check(path)
    cloud.detach(volume, attachment)
    cloud.delete(volume)


def test_a_volume_of_several_instances_is_never_in_writeback(cloud: Any) -> None:
    cloud.kind("shared", mode="writeback", multiattach="<is> True")
    volume = cloud.make("shared")
    first, _ = cloud.attach(volume)
    check_cached(volume, "writethrough")
    second, _ = cloud.attach(volume)
    cloud.detach(volume, first, "in-use")
    check_cached(volume, "writethrough")
    cloud.detach(volume, second)
    cloud.delete(volume)


def test_restarts_of_the_agent_and_the_service(cloud: Any, agent: lab.Agent) -> None:
    cloud.kind("fast", mode="writeback")
    volume = cloud.make("fast")
    attachment, connection = cloud.attach(volume)
    path, content = connection["device_path"], Content()
    content.write(path, 0, b"a")
    tag = lab.volumes()[volume]["tag"]
    agent.kill()
    content.write(path, 1 << 20, b"b")
    agent.start()
    lab.eventually(lambda: lab.disks().get(volume, {}).get("state") == "isolated", "its tag")
    check_cached(volume, "writeback")
    assert lab.volumes()[volume]["tag"] == tag
    # cinder-volume was killed after it had the cache removed.
    lab.ask(lab.VOLUMES, {"op": "volume-drain", "id": volume})
    assert lab.table(name_of(volume)) == "linear"
    content.check(path)
    cloud.restart()
    check_cached(volume, "writeback")
    content.check(path)
    cloud.detach(volume, attachment)
    cloud.delete(volume)


def test_the_host_restarts(cloud: Any, agent: lab.Agent) -> None:
    """The logical volume stays inactive until Cinder exports it, then it has its cache."""
    cloud.kind("fast", mode="writeback")
    volume = cloud.make("fast")
    attachment, connection = cloud.attach(volume)
    path, content = connection["device_path"], Content()
    run("vcache", "destage", path, "--pause", "600")
    for place in range(8):
        content.write(path, place << 20, b"a")
    name = path_of(name_of(volume)).rpartition("/")[2]
    dirty = lab.volumes()[volume]["dirty_bytes"]
    agent.kill()
    # What a power cut leaves: the pool on its device, and no mapped devices.
    for one in (name, f"{name}-vcorigin", lab.POOL):
        run("dmsetup", "remove", one)
    cache = str((lab.DISKS / "virtio-cache").resolve())
    run("vcache", "pool", "create", lab.POOL, cache)
    run("vgchange", "-aay", lab.GROUP)
    assert name not in lab.mapped()
    agent.start()
    cloud.restart()
    check_cached(volume, "writeback")
    assert dirty
    content.check(path)
    cloud.detach(volume, attachment)
    cloud.delete(volume)


def test_an_unmanaged_volume_is_managed_again(cloud: Any) -> None:
    cloud.kind("fast", mode="writeback")
    volume = cloud.make("fast")
    attachment, connection = cloud.attach(volume)
    content = Content()
    content.write(connection["device_path"], 0, b"a")
    cloud.detach(volume, attachment)
    cloud.act(volume, "os-unmanage")
    cloud.gone(lambda: cloud.api.get_volume(volume))
    assert lab.volumes() == {}
    content.check(path_of(name_of(volume)))
    run("lvrename", lab.GROUP, name_of(volume), "by-hand")
    again = cloud.call("POST", "manageable_volumes", {"volume": {
        "host": cloud.host, "ref": {"source-name": "by-hand"}, "volume_type": "fast"}})
    again = again["volume"]["id"]
    cloud.wait(again)
    attachment, connection = cloud.attach(again)
    content.check(connection["device_path"])
    check_cached(again, "writeback")
    cloud.detach(again, attachment)
    cloud.delete(again)
