# SPDX-License-Identifier: Apache-2.0
"""From a flavor to the tag, and the refusals on the way."""

import pytest

from nova_vcache.placement import names
from tests.box.steps import at_end
from tests.cloud.servers import FLAVORS, IMAGE_MB, MIB, eventually
from tests.cloud.state import check_tag, tags_of


@pytest.mark.parametrize("flavor", list(FLAVORS))
def test_an_instance_has_the_tag_of_its_flavor(cloud, servers, host, flavor):
    server = servers.create(f"tag-{flavor}", flavor)
    with at_end(servers.delete, server):
        tag = check_tag(host, server, flavor)
        # The disk has only the data of the image, and no data of others.
        eventually(lambda: tags_of(host, server)[0].extents_sectors * 512 >= IMAGE_MB * MIB,
                   "the disk's extents")
        assert [item.id for item in tags_of(host, server)] == [tag.id]
        shown = eventually(lambda: next((item for item in cloud.show(
            "vcache", "instance", "list", "--all-projects") if item["UUID"] == server["id"]), None),
            "vcache-api knows it")
        assert (shown["Weight"], shown["Mode"], shown["Host"]) == (
            FLAVORS[flavor]["weight"], FLAVORS[flavor]["mode"], host.node)
        hard = {f"{host.node}_vcache": {names.TAG: 1, names.CACHE_MB: 64}}
        wanted = hard if flavor == "gold" else {}
        assert {key: value for key, value in servers.allocations(server).items()
                if key != host.node} == wanted
        runs = {item["operation"]: item["status"] for item in host.call(
            "hook_runs", server["OS-EXT-SRV-ATTR:instance_name"])}
        assert {"prepare": 0, "start": 0, "started": 0}.items() <= runs.items()
    eventually(lambda: not tags_of(host, server), "the tag goes")
    assert servers.allocations(server) == {}


def test_nova_api_refuses_a_spec_that_no_host_could_give(cloud, servers):
    answer = cloud.compute("POST", "/flavors/gold/os-extra_specs",
                           json={"extra_specs": {"vcache:weight": "1001"}})
    assert answer.status_code == 400
    assert "vcache:weight: '1001' is not allowed" in answer.text
    assert "1 to 1000" in answer.text
    answer = cloud.compute("POST", "/flavors/gold/os-extra_specs",
                           json={"extra_specs": {"vcache:wieght": "100"}})
    assert answer.status_code == 400
    assert "vcache:wieght" in answer.text
    specs = cloud.compute("GET", "/flavors/gold/os-extra_specs").json()["extra_specs"]
    assert specs["vcache:weight"] == "400" and "vcache:wieght" not in specs


def refused(cloud, servers, flavor: str) -> tuple[str, str]:
    """Boot an instance that cannot start; return Nova's fault and the scheduler's log of it."""
    before = len(cloud.nova["nova-scheduler"].log.read_text())
    server = servers.create(f"refused-{flavor}", flavor, status="ERROR")
    with at_end(servers.delete, server):
        return (server["fault"]["message"],
                cloud.nova["nova-scheduler"].log.read_text()[before:])


def test_a_guarantee_that_placement_does_not_have(cloud, servers):
    servers.make_flavor("huge", mode="writeback", min_mb=100_000)
    fault, log = refused(cloud, servers, "huge")
    assert "No valid host was found" in fault
    assert "Got no allocation candidates" in log


def test_a_full_cache_that_only_the_filter_sees(cloud, servers, host):
    # Its keys for Placement do not match; "flavor check" reports it.
    servers.make_flavor("unmatched", mode="writeback", required=True)
    cloud.compute("POST", "/flavors/unmatched/os-extra_specs",
                  json={"extra_specs": {"vcache:min_mb": "5000"}})
    fault, log = refused(cloud, servers, "unmatched")
    assert "No valid host was found" in fault
    assert "VCacheFilter rejected 1 of 1 hosts" in log
    assert f"cache full, 1 ({host.node}: 5000 MiB to be guaranteed, " in log
