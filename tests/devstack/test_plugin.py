# SPDX-License-Identifier: Apache-2.0
"""Each phase on a single node, on a controller and on a compute node; then the clean-up."""

import json
import socket

import pytest

from tests.cloud.processes import wait_for
from tests.devstack.node import VENV, Node

BIN = str(VENV / "bin")
CONF = "/etc/vcache"
FILTER = "nova_vcache.scheduler.filter.VCacheFilter"
WEIGHER = "nova_vcache.scheduler.weigher.VCacheWeigher"
# Files that clean.sh removes after the plugins, files that other projects leave, and those written
# by depmod and a2dissite.
OF_OTHERS = ("opt/stack/data/venv/", "opt/stack/nova-vcache/nova_vcache.egg-info/",
             "opt/stack/requirements/", "etc/nova/", "etc/systemd/system/devstack@",
             "usr/lib/modules/", "var/lib/apache2/site/disabled_by_admin/")


def make(sandbox, cloud, kernel, layout, **settings) -> Node:
    return Node(sandbox, layout, cloud.auth_url.removesuffix("/v3"),
                cloud.rabbit_at.removesuffix(":5672"), {"VCACHE_KERNEL": kernel, **settings})


def openstack(node, *words) -> str:
    """Return the output of the command, as JSON unless it failed."""
    return node.command("openstack", "--os-cloud", "devstack-admin", *words, "-f", "json",
                        check=False)


def check_clean(node):
    assert not {name: what for name, what in node.left().items()
                if not name.startswith(OF_OTHERS)}
    assert not list((node.root / "usr/lib/modules").glob("*/updates/dkms/dm-vcache*"))
    assert not (node.root / "run/vcache").exists()


class TestSingle:
    """One node with all services: Keystone, Placement, RabbitMQ and nova-api."""

    @pytest.fixture(scope="class", name="node")
    @staticmethod
    def _node(sandbox, cloud, kernel):
        return make(sandbox, cloud, kernel, "single")

    def test_pre_install_builds_the_module(self, node, kernel):
        node.twice("stack", "pre-install")
        assert list((node.root / f"lib/modules/{kernel}/updates/dkms").glob("dm-vcache.ko*"))
        assert node.read("/etc/modules-load.d/dm-vcache.conf") == "dm-vcache\n"

    def test_install(self, node):
        node.twice("stack", "install")
        for name in ("vcache-agent", "vcache-host", "nova-vcache-status"):
            assert node.exists(f"{BIN}/{name}")
        assert "/opt/stack/nova-vcache" in node.command(
            f"{BIN}/python3", "-c", "import nova_vcache; print(nova_vcache.__file__)")
        hook = node.root / "etc/libvirt/hooks/qemu.d/50-vcache"
        assert hook.stat().st_mode & 0o777 == 0o755
        # Once: the second run found the hook already installed.
        assert node.systemctl_calls() == ["reload-or-restart libvirtd"]

    def test_post_config(self, node, cloud):
        node.kernel_calls()
        node.twice("stack", "post-config")
        self.check_nova(node)
        self.check_api(node, cloud)
        self.check_storage(node)
        host = node.ini("/etc/vcache/vcache-host.conf")
        assert host["DEFAULT"]["transport_url"] == cloud.rabbit.url
        assert host["placement"]["username"] == "vcache"
        assert node.exists("/etc/vcache/vcache-agent.conf")
        for name in ("api", "host"):
            path = node.root / f"etc/vcache/vcache-{name}.conf"
            assert path.stat().st_mode & 0o777 == 0o600, "it has passwords"

    def check_nova(self, node):
        text = node.read("/etc/nova/nova.conf")
        assert [line for line in text.splitlines() if line.startswith("available_filters")] == [
            "available_filters = nova.scheduler.filters.all_filters",
            f"available_filters = {FILTER}"]
        scheduler = node.ini("/etc/nova/nova.conf")["filter_scheduler"]
        filters = scheduler["enabled_filters"].split(",")
        assert filters[0] == "ComputeFilter" and filters.count("VCacheFilter") == 1
        assert scheduler["weight_classes"] == f"nova.scheduler.weights.all_weighers,{WEIGHER}"
        assert dict(node.ini("/etc/nova/nova.conf")["vcache"]) == {
            "auth_section": "placement", "region_name": "RegionOne"}

    def check_api(self, node, cloud):
        api = node.ini("/etc/vcache/vcache-api.conf")
        assert api["DEFAULT"]["transport_url"] == cloud.rabbit.url
        assert api["keystone_authtoken"]["username"] == "vcache"
        assert api["placement"]["valid_interfaces"] == "public"
        assert "interface" not in api["placement"]
        assert api["oslo_policy"]["policy_file"] == "/etc/vcache/policy.yaml"
        served = node.ini("/etc/vcache/vcache-api-uwsgi.ini")["uwsgi"]
        assert served["module"] == "nova_vcache.wsgi.api:application"
        assert (served["enable-threads"], served["lazy-apps"]) == ("true", "true")
        site = node.read("/etc/apache2/sites-available/vcache-api.conf")
        assert site.count("ProxyPass") == 1 and '"/vcache"' in site
        admin = cloud.people["admin"].session
        found = admin.get(f"{cloud.auth_url}/services?type=vcache").json()["services"]
        assert [item["name"] for item in found] == ["vcache"]
        ends = admin.get(f"{cloud.auth_url}/endpoints?service_id={found[0]['id']}").json()
        assert sorted((item["interface"], item["url"]) for item in ends["endpoints"]) == [
            ("internal", node.url), ("public", node.url)]
        user = admin.get(f"{cloud.auth_url}/users?name=vcache").json()["users"][0]["id"]
        roles = admin.get(f"{cloud.auth_url}/role_assignments?user.id={user}&include_names=true")
        assert {item["role"]["name"] for item in roles.json()["role_assignments"]} == {"service"}

    def check_storage(self, node):
        file, instances = "/opt/stack/data/vcache/", "/opt/stack/data/nova/instances"
        mapped = "/dev/mapper/vcache-instances"
        changes = [call for call in node.kernel_calls() if call.split()[0] in (
            "mkfs.ext4", "mount", "modprobe") or call.startswith((
                "losetup --find", "dmsetup create", "vcache"))]
        assert changes == [
            "modprobe dm-vcache",
            f"losetup --find --show {file}instances",
            "dmsetup create vcache-instances --table "
            "0 41943040 vcache flush-only /dev/loop70 filesystem",
            f"losetup --find --show {file}pool",
            "vcache pool create vcache-pool /dev/loop71",
            "vcache attach vcache-instances --pool vcache-pool --mode writeback --filesystem",
            f"mkfs.ext4 -q {mapped}", f"mount {mapped} {instances}",
            # Again: changes that the commands themselves do not repeat.
            "modprobe dm-vcache", "vcache pool create vcache-pool /dev/loop71",
            "vcache attach vcache-instances --pool vcache-pool --mode writeback --filesystem"]
        assert (node.root / file.lstrip("/") / "pool").stat().st_size == 4 << 30

    def test_extra_starts_all_and_it_works(self, node, cloud):
        cloud.compute_node(socket.gethostname())
        node.systemctl_calls()
        node.twice("stack", "extra")
        started = [call for call in node.systemctl_calls() if call.startswith("start ")]
        assert started[:3] == [f"start devstack@vcache-{name}.service"
                               for name in ("agent", "host", "api")]
        for service, user, command in (
                ("agent", "root", f"{BIN}/vcache-agent --config-file {CONF}/vcache-agent.conf"),
                ("host", "root", f"{BIN}/vcache-host --config-file {CONF}/vcache-host.conf"),
                ("api", "stack", f"{BIN}/uwsgi --procname-prefix vcache-api "
                                 f"--ini {CONF}/vcache-api-uwsgi.ini --venv {VENV}")):
            unit = node.unit(f"vcache-{service}")["Service"]
            assert (unit["User"], unit["ExecStart"]) == (user, command)
            assert node.runs(f"vcache-{service}"), node.log(f"vcache-{service}")
        # From the agent to vcache-host, RabbitMQ, vcache-api, Apache and the command. This kernel
        # has no such module, and the agent reports that.
        wait_for(lambda: "load the module dm-vcache" in openstack(
            node, "vcache", "host", "show", socket.gethostname()), "the host has reported", 120)

    def test_flavors(self, node):
        shown = json.loads(openstack(node, "vcache", "flavor", "show", "gold"))
        assert (shown["mode"], shown["weight"], shown["min_mb"], shown["problems"]) == (
            "writeback", 400, 256, [])
        assert json.loads(openstack(node, "vcache", "flavor", "check")) == []

    def test_config(self, node):
        node.twice("stack", "test-config")
        # The plugin checks this: without the filter, our part of the scheduler would not be used.
        nova = node.root / "etc/nova/nova.conf"
        text = nova.read_text()
        nova.write_text(text.replace(",VCacheFilter", ""))
        assert "nova-vcache-status upgrade check: exit status 2" in node.fails(
            "stack", "test-config")
        nova.write_text(text)

    def test_unstack_stops_all(self, node):
        node.systemctl_calls()
        node.run("unstack")
        for service in ("api", "host", "agent"):
            assert not node.runs(f"vcache-{service}")
        assert [call for call in node.systemctl_calls() if call.startswith("disable")] == [
            f"disable devstack@vcache-{name}.service" for name in ("api", "host", "agent")]
        node.run("unstack")
        assert not [call for call in node.systemctl_calls() if not call.startswith("is-")]

    def test_clean_removes_all(self, node):
        node.kernel_calls()
        node.run("clean")
        check_clean(node)
        assert [call for call in node.kernel_calls() if " info " not in call
                and "--associated" not in call] == [
            "umount /opt/stack/data/nova/instances", "dmsetup table vcache-instances",
            "vcache detach vcache-instances", "dmsetup remove vcache-instances",
            "vcache pool remove vcache-pool", "losetup --detach /dev/loop70",
            "losetup --detach /dev/loop71"]
        node.twice("clean")


class TestController:
    """A node without nova-compute: no part of a compute host."""

    @pytest.fixture(scope="class", name="node")
    @staticmethod
    def _node(sandbox, cloud, kernel):
        return make(sandbox, cloud, kernel, "controller", VCACHE_CREATE_FLAVORS="False")

    def test_all_phases(self, node):
        for phase in ("pre-install", "install", "post-config", "extra", "test-config"):
            node.run("stack", phase)
        assert node.runs("vcache-api")
        # Another node of these tests may have one, but it does not report.
        assert "up" not in {item["State"] for item in json.loads(
            openstack(node, "vcache", "host", "list"))}
        assert node.ini("/etc/nova/nova.conf")["filter_scheduler"]["weight_classes"].endswith(
            WEIGHER)
        for name in ("/etc/systemd/system/devstack@vcache-agent.service",
                     "/etc/systemd/system/devstack@vcache-host.service",
                     "/usr/src/nova-vcache-0.1.0",
                     "/etc/vcache/vcache-host.conf", "/etc/vcache/vcache-agent.conf",
                     "/etc/libvirt/hooks/qemu.d/50-vcache", "/opt/stack/data/vcache"):
            assert not node.exists(name), name
        assert node.kernel_calls() == []

    def test_it_all_goes(self, node):
        node.run("unstack")
        assert not node.runs("vcache-api")
        node.run("clean")
        check_clean(node)
        assert node.kernel_calls() == []


class TestCompute:
    """A node with only nova-compute, its instances on a volume, without a cache."""

    @pytest.fixture(scope="class", name="node")
    @staticmethod
    def _node(sandbox, cloud, kernel):
        return make(sandbox, cloud, kernel, "compute", VCACHE_MODE="flush-only",
                    VCACHE_INSTANCES_DEVICE="/dev/vg0/instances", VCACHE_BUILD_MODULE="False")

    def test_files_are_not_hidden(self, node):
        node.run("stack", "pre-install")
        node.run("stack", "install")
        file = node.root / "opt/stack/data/nova/instances/somebodys"
        file.touch()
        assert ("/opt/stack/data/nova/instances has files that /dev/mapper/vcache-instances would "
                "hide; move them away") in node.fails("stack", "post-config")
        file.unlink()
        assert node.kernel_calls() == ["modprobe dm-vcache"]

    def test_all_phases(self, node):
        for phase in ("post-config", "extra", "test-config"):
            node.run("stack", phase)
        assert node.runs("vcache-agent") and node.runs("vcache-host")
        for name in ("/etc/systemd/system/devstack@vcache-api.service",
                     "/etc/vcache/vcache-api.conf", "/etc/apache2/sites-available/vcache-api.conf",
                     "/usr/src/nova-vcache-0.1.0", "/opt/stack/data/vcache"):
            assert not node.exists(name), name
        assert [call for call in node.kernel_calls() if call.split()[0] in (
            "dmsetup", "losetup", "vcache", "mount") and " info " not in call] == [
            "dmsetup create vcache-instances --table "
            "0 41943040 vcache flush-only /dev/vg0/instances filesystem",
            "mount /dev/mapper/vcache-instances /opt/stack/data/nova/instances"]

    def test_it_all_goes(self, node):
        node.run("unstack")
        assert not node.runs("vcache-agent") and not node.runs("vcache-host")
        node.run("clean")
        check_clean(node)
        assert [call for call in node.kernel_calls() if call.startswith(("vcache", "dmsetup re"))
                ] == ["dmsetup remove vcache-instances"]
