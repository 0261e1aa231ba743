# SPDX-License-Identifier: Apache-2.0
"""The sample configuration files of make openstack-samples."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    "nova-vcache": {"vcache": ["summary_interval", "stale_policy", "auth_section"]},
    "vcache-api": {"api": ["stale_after", "rpc_host_cap"], "placement": ["auth_type", "username"],
                   "keystone_authtoken": ["memcached_servers"], "DEFAULT": ["transport_url"],
                   "oslo_policy": ["policy_file"], "oslo_middleware": ["max_request_body_size"]},
    "vcache-host": {"host": ["node", "admin_socket"], "placement": ["auth_type", "username"],
                    "DEFAULT": ["transport_url"]}}


def test_each_generator_has_its_groups():
    assert {path.name.removesuffix("-generator.conf")
            for path in (ROOT / "nova_vcache/etc").glob("*-generator.conf")} == set(GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_a_sample_has_what_it_should(name, tmp_path):
    subprocess.run([Path(sys.executable).parent / "oslo-config-generator", "--config-file",
                    f"nova_vcache/etc/{name}-generator.conf", "--output-file",
                    tmp_path / "sample"], cwd=ROOT, check=True, timeout=120)
    # All lines are comments; read them as if they were none.
    found = configparser.RawConfigParser(strict=False, allow_no_value=True,
                                         default_section="none")
    found.read_string("\n".join(
        line.removeprefix("#") for line in (tmp_path / "sample").read_text().splitlines()
        if line.startswith("[") or (line.startswith("#") and " = " in line
                                    and not line.startswith("# "))))
    for group, options in GROUPS[name].items():
        assert set(options) <= set(found[group]), group
    assert f"{name}.conf.sample" in (ROOT / "doc/source/admin/deploy.rst").read_text()
