# SPDX-License-Identifier: Apache-2.0
"""Effects of Nova's actions on tags, shares, Placement and dirty data, on one host."""

import pytest

from nova_vcache.placement import names
from tests.cloud.servers import MIB, eventually
from tests.cloud.state import (
    PATTERN_MB,
    check_tag,
    dirty,
    has_pattern,
    tags_of,
    write_pattern,
)


@pytest.fixture(scope="module")
def gold(cloud, servers):
    """An instance whose flavor has a guarantee and mode writeback."""
    made = servers.create("actions", "gold", cloud.host.node)
    yield made
    servers.delete(made)


def write(host, server, pattern: int) -> None:
    """Write data in a guest that is acknowledged, flushed, and only in the cache."""
    check_tag(host, server, "gold")
    write_pattern(host, server, pattern)
    assert tags_of(host, server)[0].cached_bytes >= PATTERN_MB * MIB, "it is in the cache"


def of_cache(host, servers, server):
    """Return the Placement allocation of an instance from a host's cache."""
    return servers.allocations(server).get(f"{host.node}_vcache", {})


def test_hard_reboot_with_dirty_data(servers, host, gold):
    tag = check_tag(host, gold, "gold")
    write(host, gold, 0xa5)
    servers.act(gold, "reboot", "ACTIVE", {"type": "HARD"})
    assert check_tag(host, gold, "gold").id == tag.id, "the tag is the same"
    assert has_pattern(host, gold, 0xa5)
    assert of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64}


def test_stop_and_start(servers, host, gold):
    tag = check_tag(host, gold, "gold")
    write(host, gold, 0x11)
    servers.act(gold, "os-stop", "SHUTOFF")
    eventually(lambda: not tags_of(host, gold), "no tag, so nothing dirty in memory")
    assert of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64}, \
        "a stopped instance keeps what Placement has given it"
    servers.act(gold, "os-start", "ACTIVE")
    assert check_tag(host, gold, "gold").id == tag.id, "a disk keeps its number"
    assert has_pattern(host, gold, 0x11)


def test_pause_and_suspend(servers, host, gold):
    tag = check_tag(host, gold, "gold")
    write(host, gold, 0x22)
    servers.act(gold, "pause", "PAUSED")
    assert check_tag(host, gold, "gold").id == tag.id
    servers.act(gold, "unpause", "ACTIVE")
    servers.act(gold, "suspend", "SUSPENDED")
    eventually(lambda: not tags_of(host, gold), "its QEMU has ended, so has the tag")
    servers.act(gold, "resume", "ACTIVE")
    assert check_tag(host, gold, "gold").id == tag.id
    assert has_pattern(host, gold, 0x22)


def test_snapshot(cloud, servers, host, gold):
    tag = check_tag(host, gold, "gold")
    write(host, gold, 0x33)
    servers.act(gold, "createImage", "ACTIVE", {"name": "snap"})
    glance, session = cloud.glance_url, cloud.people["admin"].session

    def active():
        found = session.get(f"{glance}/v2/images?name=snap").json()["images"]
        return found and found[0]["status"] == "active" and found[0]

    image = eventually(active, "the image is there")
    data = session.get(f"{glance}/v2/images/{image['id']}/file").content
    session.delete(f"{glance}/v2/images/{image['id']}")
    assert image["disk_format"] == "raw"
    assert data[MIB:(1 + PATTERN_MB) * MIB] == b"\x33" * (PATTERN_MB * MIB), \
        "what only the cache had is in it"
    assert check_tag(host, gold, "gold").id == tag.id
    assert len(tags_of(host, gold)) == 1, "nothing is left of what the snapshot used"
    assert has_pattern(host, gold, 0x33)


def test_rescue(servers, host, gold):
    write(host, gold, 0x44)
    root = check_tag(host, gold, "gold").id
    servers.act(gold, "rescue", "RESCUE", {})
    # The rescue image is the first disk, the instance's own the second.
    rescue, own = check_rescue(host, gold)
    assert own.id == root, "the instance's own disk keeps its number"
    assert rescue.id != root
    assert rescue.cache_min_bytes == own.cache_min_bytes == 32 * MIB, "they share the guarantee"
    assert has_pattern(host, gold, 0x44)
    assert of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64}
    servers.act(gold, "unrescue", "ACTIVE")
    assert check_tag(host, gold, "gold").id == root
    eventually(lambda: [tag.id for tag in tags_of(host, gold)] == [root], "one tag again")
    assert has_pattern(host, gold, 0x44)


def check_rescue(host, server):
    """Check and return the tags of a rescued instance's two disks."""
    def both():
        found = tags_of(host, server)
        return found if len(found) == 2 and all(tag.cgroups for tag in found) else None

    found = eventually(both, "a tag for each disk")
    assert [tag.name[-3:] for tag in found] == ["sda", "sdb"]
    assert {(tag.weight, tag.mode.name) for tag in found} == {(400, "WRITEBACK")}
    return found


def test_rebuild(servers, host, gold):
    write(host, gold, 0x55)
    servers.act(gold, "rebuild", "ACTIVE", {"imageRef": servers.image})
    check_tag(host, gold, "gold")
    eventually(lambda: len(tags_of(host, gold)) == 1, "one tag")
    assert not has_pattern(host, gold, 0x55), "it is the image's disk again"
    assert of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64}


def test_shelve_and_unshelve(servers, host, gold):
    write(host, gold, 0x66)
    servers.act(gold, "shelve", "SHELVED_OFFLOADED")
    eventually(lambda: not tags_of(host, gold), "the tag goes")
    assert servers.allocations(gold) == {}, "all of its host's is given back"
    servers.act(gold, "unshelve", "ACTIVE")
    check_tag(host, gold, "gold")
    assert has_pattern(host, gold, 0x66)
    assert of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64}


def test_resize_and_revert(servers, host, gold):
    write(host, gold, 0x77)
    servers.act(gold, "resize", "VERIFY_RESIZE", {"flavorRef": "silver"})
    tag = check_tag(host, gold, "silver")
    assert has_pattern(host, gold, 0x77)
    write_pattern(host, gold, 0x78)
    eventually(lambda: not dirty(host, gold), "nothing stays in the cache alone in writethrough")
    assert tag.cache_min_bytes == 0
    servers.act(gold, "revertResize", "ACTIVE")
    check_tag(host, gold, "gold")
    # Data written in the meantime is gone, as defined by Nova: the old disk is back.
    assert has_pattern(host, gold, 0x77)
    eventually(lambda: of_cache(host, servers, gold) == {names.TAG: 1, names.CACHE_MB: 64},
               "the allocation of the old flavor")
    assert len(tags_of(host, gold)) == 1


def test_resize_and_confirm(servers, host, gold):
    write(host, gold, 0x79)
    servers.act(gold, "resize", "VERIFY_RESIZE", {"flavorRef": "bronze"})
    tag = check_tag(host, gold, "bronze")
    servers.act(gold, "confirmResize", "ACTIVE")
    assert check_tag(host, gold, "bronze").id == tag.id
    assert has_pattern(host, gold, 0x79)
    eventually(lambda: not of_cache(host, servers, gold), "nothing of the cache")
    assert tag.cache_min_bytes == 0 and len(tags_of(host, gold)) == 1
