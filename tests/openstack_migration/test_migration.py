# SPDX-License-Identifier: Apache-2.0
"""Effects of migrations on tags, shares, Placement and dirty data.

The tests run in order: the evacuation, which stops the first host, is the last.
"""

import pytest

from nova_vcache.placement import names
from tests.cloud.servers import eventually
from tests.cloud.state import check_tag, dirty, has_pattern, tags_of, write_pattern

GOLD = {names.TAG: 1, names.CACHE_MB: 64}


def used(cloud, host) -> dict[str, int]:
    """Return the Placement allocations of a host's cache, including those of migrations."""
    (provider,) = cloud.placement(
        "GET", f"/resource_providers?name={host.node}_vcache").json()["resource_providers"]
    found: dict[str, int] = cloud.placement(
        "GET", f"/resource_providers/{provider['uuid']}/usages").json()["usages"]
    return {name: value for name, value in found.items() if value}


def where(cloud, server) -> str:
    """Return the host of an instance, according to Nova."""
    found: str = cloud.compute("GET", f"/servers/{server['id']}").json()["server"][
        "OS-EXT-SRV-ATTR:host"]
    return found


def check_moved(cloud, servers, server, source, target) -> None:
    """Check that an instance is on one host, as its flavor defines, and not on the other."""
    assert where(cloud, server) == target.node
    check_tag(target, server, "gold")
    eventually(lambda: not tags_of(source, server), "no tag is left behind, so nothing dirty")
    eventually(lambda: servers.allocations(server).get(f"{target.node}_vcache") == GOLD,
               "Placement has it where it is")
    eventually(lambda: not used(cloud, source), "and not where it was")
    assert used(cloud, target) == GOLD


@pytest.fixture
def gold(cloud, boot):
    """An instance on the first host, with acknowledged data that is only in its cache."""
    made = boot("moves", "gold", cloud.hosts[0].node)
    check_tag(cloud.hosts[0], made, "gold")
    write_pattern(cloud.hosts[0], made, 0xa1)
    return made


def test_cold_migration(cloud, servers, gold):
    source, target = cloud.hosts
    servers.act(gold, "migrate", "VERIFY_RESIZE", {"host": target.node})
    check_tag(target, gold, "gold")
    assert has_pattern(target, gold, 0xa1), "what only the cache of the other host had"
    assert used(cloud, source) == GOLD, "the room to go back to"
    servers.act(gold, "confirmResize", "ACTIVE")
    check_moved(cloud, servers, gold, source, target)
    assert has_pattern(target, gold, 0xa1)


def test_cold_migration_and_back(cloud, servers, gold):
    source, target = cloud.hosts
    servers.act(gold, "migrate", "VERIFY_RESIZE", {"host": target.node})
    check_tag(target, gold, "gold")
    write_pattern(target, gold, 0xa2)
    servers.act(gold, "revertResize", "ACTIVE")
    check_moved(cloud, servers, gold, target, source)
    assert has_pattern(source, gold, 0xa1), "as Nova has it: the disk of before"


def test_live_migration_and_back(cloud, servers, gold):
    source, target = cloud.hosts
    for number, (old, new) in enumerate(((source, target), (target, source))):
        assert dirty(old, gold) > 0
        servers.act(gold, "os-migrateLive", "ACTIVE",
                    {"host": new.node, "block_migration": "auto"})
        check_moved(cloud, servers, gold, old, new)
        assert has_pattern(new, gold, 0xa1 + number)
        write_pattern(new, gold, 0xa2 + number)


def test_an_override_moves_along(cloud, servers, gold):
    source, target = cloud.hosts
    path = f"/v1/instances/{gold['id']}/override"
    assert cloud.ask("PUT", path, json={"weight": 7}).status_code == 200
    servers.act(gold, "os-migrateLive", "ACTIVE",
                {"host": target.node, "block_migration": "auto"})
    check_moved(cloud, servers, gold, source, target)
    eventually(lambda: cloud.ask("GET", f"/v1/instances/{gold['id']}").json()["instance"][
        "override"] == {"weight": 7}, "the new host has it")


def test_evacuation(cloud, servers, gold):
    source, target = cloud.hosts
    source.close()
    (service,) = cloud.compute("GET", f"/os-services?binary=nova-compute&host={source.node}"
                               ).json()["services"]
    answer = cloud.compute("PUT", f"/os-services/{service['id']}", json={"forced_down": True})
    assert answer.status_code == 200, answer.text
    servers.act(gold, "evacuate", "SHUTOFF", {})
    assert where(cloud, gold) == target.node
    servers.act(gold, "os-start", "ACTIVE")
    check_tag(target, gold, "gold")
    assert not has_pattern(target, gold, 0xa1), "as Nova has it without shared storage: the image"
    assert used(cloud, target) == GOLD
    assert used(cloud, source) == GOLD, "until it is back"
    write_pattern(target, gold, 0xa5)
    assert has_pattern(target, gold, 0xa5)
