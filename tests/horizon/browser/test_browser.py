# SPDX-License-Identifier: Apache-2.0
"""What people do in Horizon, in a real browser, and what happens in the cloud."""

import re

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from nova_vcache.placement.flavor import disagreements
from tests.cloud.processes import wait_for
from tests.horizon.browser.cloud import HorizonCloud
from tests.horizon.browser.pages import Browser
from tests.openstack.agents import GIB, uuid_of

HOSTS, INSTANCES, FLAVORS = (f"/admin/vcache_{name}/" for name in ("hosts", "instances",
                                                                   "flavors"))
DATABASE = uuid_of(1)


def test_hosts(cloud: HorizonCloud, admin: Browser) -> None:
    admin.open(HOSTS)
    row = admin.row("compute1").text
    assert "Up" in row and "1 of 2 missed" in row
    admin.picture("hosts")
    admin.link("compute1").click()
    admin.await_text("last answer")
    admin.link("Pools and Lanes").click()
    admin.await_text("Used 6.0 GB with dirty data")
    bars = [float(one.get_attribute("width") or 0)
            for one in admin.all("section > .vcache-bar rect")]
    assert bars == [20, 40, 40]
    assert DATABASE in admin.row("Only for").text
    admin.picture("pools")
    admin.link("Instances").click()
    admin.row(DATABASE)
    assert not admin.problems()


def test_a_host_drains_with_its_progress(cloud: HorizonCloud, admin: Browser) -> None:
    agent = cloud.hosts["compute2"].agent
    agent.answer["pools"][0]["dirty_bytes"] = 4 * GIB
    admin.open(HOSTS)
    admin.button(admin.row("compute2"), "Drain Host").click()
    admin.find(".modal .btn-danger").click()
    wait_for(lambda: agent.answer["draining"], "the agent drains")
    agent.answer["pools"][0]["dirty_bytes"] = GIB
    # The page asks for the row again and again.
    admin.until(lambda: "1.0 GB left" in admin.row("compute2").text, "progress")
    bar = admin.row("compute2").find_element(By.CSS_SELECTOR, "[role=progressbar]")
    assert int(bar.get_attribute("aria-valuenow") or 0) >= 70
    admin.picture("drain")
    agent.answer["pools"][0]["dirty_bytes"] = 0
    for disk in agent.answer["disks"]:
        disk["dirty_bytes"] = 0
    admin.until(lambda: "Drained" in admin.row("compute2").text, "the end")
    admin.button(admin.row("compute2"), "Stop Draining Host").click()
    wait_for(lambda: not agent.answer["draining"], "the agent accepts instances again")
    assert not admin.problems()


def test_instances_are_selected(admin: Browser) -> None:
    admin.open(INSTANCES)
    admin.row("Another instance has much more load than usual.")
    admin.picture("instances")
    assert len(admin.all("#vcache_instances tbody tr")) == 4
    admin.find("input[name=vcache_instances__filter__q]").send_keys("missed", Keys.ENTER)
    admin.until(lambda: len(admin.all("#vcache_instances tbody tr")) == 1, "one instance")
    assert DATABASE in admin.row("Missed").text


def test_why_an_instance_is_slow(admin: Browser) -> None:
    admin.open(f"{INSTANCES}{DATABASE}/")
    admin.await_text("comes from tag 2 on device 254:0")
    admin.picture("instance")
    admin.link("Miss-Ratio Curves").click()
    admin.find(".vcache-plot figcaption")
    (line,) = admin.all(".vcache-line-read")
    assert len((line.get_attribute("points") or "").split()) == 33
    # The share is 1 GiB, half of the footprint: in the middle of the plot.
    share = admin.all(".vcache-share")[0].get_attribute("x1")
    assert float(share or 0) == 240
    admin.picture("curves")
    # The values are there without the picture, and by the keyboard.
    admin.find(".vcache-plot summary").send_keys(Keys.ENTER)
    assert re.search(r"0 bytes\s+100.0 %\s+-", admin.text)
    admin.link("Decisions").click()
    admin.await_text("flavor of vm: 100")
    assert not admin.problems()


def test_a_flavor_is_edited(cloud: HorizonCloud, admin: Browser) -> None:
    admin.open(FLAVORS)
    assert "vcache:slo_flush_ms = 0.5" in admin.row("m1.db").text
    admin.row("m1.db").find_element(By.PARTIAL_LINK_TEXT, "Edit Cache").click()
    admin.find("#id_weight").send_keys("1001")
    admin.find("#id_min_mb").send_keys("512")
    admin.find(".modal [type=submit]").click()
    admin.await_text("must be an integer from 1 to 1000")
    assert len(cloud.extra_specs("m1.db")) == 2
    weight = admin.find("#id_weight")
    weight.clear()
    weight.send_keys("250")
    admin.picture("flavor", 1000)
    admin.find(".modal [type=submit]").click()
    wait_for(lambda: len(cloud.extra_specs("m1.db")) > 2, "Nova has the keys")
    specs = cloud.extra_specs("m1.db")
    assert specs == {"vcache:mode": "writeback", "vcache:weight": "250", "vcache:min_mb": "512",
                     "vcache:slo_flush_ms": "0.5",
                     "resources:CUSTOM_VCACHE_MB": "512", "resources:CUSTOM_VCACHE_VTAG": "1"}
    assert disagreements(specs) == []
    admin.picture("flavors")


def test_a_project_sees_its_own(member: Browser) -> None:
    member.open(f"/project/instances/{DATABASE}/")
    member.link("Cache").click()
    member.await_text("The cause is outside of the instance.")
    assert member.all(".vcache-line-read")
    page = member.driver.page_source
    tab = member.find("#instance_details__vcache").text
    for word in ("compute1", "tag 2", "254:0", "Tag", uuid_of(9)):
        assert word not in tab, word
    assert HOSTS not in page, "no panel of administrators"
    member.picture("own")
    member.open(HOSTS)
    assert "compute1" not in member.text
