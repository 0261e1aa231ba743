# SPDX-License-Identifier: Apache-2.0
"""Behaviour with running instances while an agent, an API or the message bus is down."""

import time

from nova_vcache.placement import names
from tests.box.steps import at_end
from tests.cloud.servers import eventually
from tests.cloud.state import check_tag, has_pattern, tag_of, tags_of, write_pattern


def test_no_agent(cloud, servers, host, boot):
    runs = boot("before", "silver", host.node)
    tag = check_tag(host, runs, "silver")
    host.call("stop", "vcache-agent", True)
    with at_end(host.call, "start", "vcache-agent"):
        # I/O of running instances continues, with isolated flushes.
        write_pattern(host, runs, 0x31)
        assert has_pattern(host, runs, 0x31)
        assert [item.id for item in tags_of(host, runs)] == [tag.id]
        # Not required: the instance starts without a tag.
        lax = boot("lax", "bronze", host.node)
        assert not tags_of(host, lax)
        # Required: the hook refuses it or, once Placement is updated, the scheduler skips the
        # host.
        fault = boot("hard", "gold", host.node, status="ERROR")["fault"]["message"]
        assert "No valid host was found" in fault or "Exceeded maximum number of retries" in fault
        eventually(lambda: cloud.states()[host.node] == "stale", "the API says so")
        eventually(lambda: not modes(cloud, host), "Placement is told that there is nothing")
    check_tag(host, lax, "bronze")
    assert check_tag(host, runs, "silver").id == tag.id
    eventually(lambda: cloud.states()[host.node] == "up", "the API has its reports")
    eventually(lambda: modes(cloud, host), "Placement offers it again")


def modes(cloud, host) -> set[str]:
    """Return the Placement traits for modes of a host."""
    (provider,) = cloud.placement(
        "GET", f"/resource_providers?name={host.node}_vcache").json()["resource_providers"]
    found = cloud.placement("GET", f"/resource_providers/{provider['uuid']}/traits").json()
    return {names.WRITEBACK, names.WRITETHROUGH} & set(found["traits"])


def test_no_api(cloud, servers, host, boot):
    cloud.api.stop()
    with at_end(cloud.api.start):
        # The scheduler's summary becomes too old: summary_max_age.
        time.sleep(65)
        # stale_policy "pass": Placement has allocated from the host's cache.
        server = boot("no-api", "gold", host.node)
        check_tag(host, server, "gold")
        assert servers.allocations(server)[f"{host.node}_vcache"] == {
            names.TAG: 1, names.CACHE_MB: 64}
    eventually(lambda: api_knows(cloud, server), "an API that starts is told of what runs")


def api_knows(cloud, server) -> bool:
    import requests
    try:
        return cloud.ask("GET", f"/v1/instances/{server['id']}").status_code == 200
    except requests.ConnectionError:
        return False


def test_a_bus_that_is_restarted(cloud, servers, host, boot):
    server = boot("bus", "silver", host.node)
    tag = check_tag(host, server, "silver")
    cloud.rabbit.stop()
    with at_end(cloud.rabbit.start):
        write_pattern(host, server, 0x32)
        assert has_pattern(host, server, 0x32)
        eventually(lambda: cloud.states()[host.node] == "stale", "no report comes")
        assert [item.id for item in tags_of(host, server)] == [tag.id]
    eventually(lambda: cloud.states()[host.node] == "up", "reports come again")
    # Nova's own connections are restored too.
    eventually(lambda: host.node in cloud.computes(), "nova-compute is up")
    servers.act(server, "reboot", "ACTIVE", {"type": "HARD"})
    assert check_tag(host, server, "silver").id == tag.id
    assert tag_of(host, server) is not None
