# SPDX-License-Identifier: Apache-2.0
"""The roles on roots of Debian 13."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import root as roots
from tests.deploy.play import Result, apply

PACKAGES = roots.REPO / "build" / "deb"
CREDENTIALS = {"auth_type": "password", "auth_url": "http://controller:5000/v3",
               "username": "vcache", "password": "se cret = %", "project_name": "service",
               "user_domain_id": "default", "project_domain_id": "default"}
COMPUTE = {
    "vcache_packages": str(PACKAGES), "vcache_kernel_headers": "",
    "vcache_agent_config": {"agent": {"refresh_interval": 7}},
    "vcache_host_config": {"DEFAULT": {"transport_url": "rabbit://vcache:x@controller/"},
                           "placement": CREDENTIALS}}
CONTROLLER = {
    "vcache_packages": str(PACKAGES), "vcache_api_bind": "127.0.0.1:18777",
    "vcache_api_config": {"DEFAULT": {"transport_url": "rabbit://vcache:x@controller/"},
                          "keystone_authtoken": {**CREDENTIALS, "memcached_servers": "m1:11211"},
                          "placement": CREDENTIALS},
    "vcache_api_policy": {"vcache:hosts:update": "role:cache-admin"}}


class Host:
    """A root and a role.

    :param role: name of the role
    :param variables: what the role gets
    :param folder: empty
    """

    def __init__(self, role: str, variables: dict[str, Any], folder: Path) -> None:
        self.role, self.variables, self.folder = role, variables, folder
        self.root = folder / "root"
        roots.unpack(self.root)

    def apply(self, **variables: Any) -> Result:
        """Apply the role, with other values for some variables."""
        return apply(self.role, self.root, {**self.variables, **variables}, self.folder)

    def run(self, *words: str) -> str:
        """Run a program in the root."""
        done = subprocess.run(["chroot", str(self.root), *words], capture_output=True, text=True,
                              check=False)
        assert not done.returncode, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def who_reads(self, path: str) -> str:
        """Return owner, group and mode of a file."""
        return self.run("stat", "-c", "%U:%G %a", path)

    def validate(self, namespace: str, path: str) -> None:
        """Let oslo.config check names and values of a file."""
        words = [word for each in namespace.split() for word in ("--namespace", each)]
        self.run("oslo-config-validator", *words, "--input-file", path)


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Host:
    host = Host("vcache_compute", COMPUTE, tmp_path_factory.mktemp("compute"))
    assert host.apply().failed == []
    return host


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Host:
    host = Host("vcache_controller", CONTROLLER, tmp_path_factory.mktemp("controller"))
    assert host.apply().failed == []
    return host


def test_a_second_run_changes_nothing(compute: Host, controller: Host) -> None:
    assert compute.apply() == controller.apply() == Result([], [], [])


def test_a_compute_host_has_all_parts(compute: Host) -> None:
    for name in ("nova-vcache-agent", "nova-vcache-dkms", "python3-nova-vcache"):
        assert compute.run("dpkg-query", "-Wf", "${db:Status-Abbrev}", name) == "ii"
    assert compute.run("systemctl", "is-enabled", "vcache-agent", "vcache-host") \
        == "enabled\nenabled"
    hook = compute.root / "etc/libvirt/hooks/qemu.d/50-vcache"
    assert hook.stat().st_mode & stat.S_IXUSR


def test_the_programs_read_what_the_roles_write(compute: Host, controller: Host) -> None:
    compute.validate("vcache_agent", "/etc/vcache/vcache-agent.conf")
    compute.validate("nova_vcache.host oslo.messaging", "/etc/vcache/vcache-host.conf")
    controller.validate("nova_vcache.api keystonemiddleware.auth_token oslo.messaging oslo.policy",
                        "/etc/vcache/vcache-api.conf")
    program = ("from oslo_config import cfg; c = cfg.ConfigOpts(); "
               "c.register_opt(cfg.StrOpt('password'), 'placement'); "
               "c(['--config-file', '/etc/vcache/vcache-host.conf'], project='x'); "
               "print(c.placement.password)")
    assert compute.run("python3", "-c", program) == CREDENTIALS["password"]
    assert "refresh_interval = 7" in (compute.root / "etc/vcache/vcache-agent.conf").read_text()
    assert (controller.root / "etc/vcache/policy.yaml").read_text().strip() \
        == "vcache:hosts:update: role:cache-admin"
    assert "VCACHE_API_BIND=127.0.0.1:18777" in (
        controller.root / "etc/default/vcache-api").read_text()


def test_only_the_services_read_passwords(compute: Host, controller: Host) -> None:
    assert compute.who_reads("/etc/vcache/vcache-host.conf") == "root:vcache 640"
    assert controller.who_reads("/etc/vcache/vcache-api.conf") == "root:vcache-api 640"


def test_nova_scheduler_has_filter_and_weigher(controller: Host) -> None:
    program = ("import nova.conf; c = nova.conf.CONF; "
               "c([], project='nova', prog='nova-scheduler'); f = c.filter_scheduler; "
               "print(f.available_filters[-1], f.enabled_filters[0], f.enabled_filters[-1], "
               "f.weight_classes[-1])")
    assert controller.run("python3", "-c", program).split() == [
        "nova_vcache.scheduler.filter.VCacheFilter", "ComputeFilter", "VCacheFilter",
        "nova_vcache.scheduler.weigher.VCacheWeigher"]
    assert controller.run("systemctl", "is-enabled", "vcache-api") == "enabled"


def test_a_change_restarts_only_its_service(compute: Host) -> None:
    changed = compute.apply(vcache_agent_config={"agent": {"refresh_interval": 8}})
    assert changed.failed == []
    assert changed.changed[0] == "vcache_common : Write /etc/vcache/vcache-agent.conf"
    assert changed.handlers == ["Restart vcache-agent"]
    assert compute.apply().failed == []


@pytest.mark.parametrize(("variables", "message"), [
    ({"vcache_host_config": {"placement": CREDENTIALS}},
     "vcache_host_config has no transport_url in DEFAULT"),
    ({"vcache_host_config": {"DEFAULT": {"transport_url": "x"}, "placement": {}}},
     "vcache_host_config has no auth_type in placement"),
    ({"vcache_host_config": {"DEFAULT": {"transport_url": "x"}, "plcement": {}}}, "plcement"),
    ({"vcache_libvirt_service": "nova-compute"}, "must be one of: libvirtd, virtqemud"),
    ({"vcache_packages": "/nowhere"},
     "/nowhere has 0 files nova-vcache-dkms_*.deb, must have one; see make deb"),
])
def test_a_wrong_variable_is_named_before_anything_changes(
        compute: Host, variables: dict[str, Any], message: str) -> None:
    result = compute.apply(**variables)
    assert result.changed == []
    assert any(message in text for text in result.failed), result.failed
