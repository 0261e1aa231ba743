# SPDX-License-Identifier: Apache-2.0
"""The options, and the sample file generated from them."""

import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg, generator

from vcache_agent import conf as options
from vcache_agent import service
from vcache_agent.decide.restraint import Means

ETC = Path(__file__).parents[2] / "agent" / "etc"


def ours(text: str) -> str:
    """Return the sections of our own options; those of oslo.log depend on its version."""
    return text[text.index("[agent]"):]


def test_the_sample_is_up_to_date(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    generator.main(["--config-file", str(ETC / "config-generator.conf"),
                    "--output-file", str(sample)])
    assert ours(sample.read_text()) == ours((ETC / "vcache-agent.conf.sample").read_text()), \
        "run: oslo-config-generator --config-file agent/etc/config-generator.conf"


def load(folder: Path, text: str) -> cfg.ConfigOpts:
    file = folder / "c.conf"
    file.write_text(text)
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(["--config-file", str(file)], project="vcache")
    return conf


def test_the_sample_itself_is_a_valid_configuration(tmp_path: Path) -> None:
    conf = load(tmp_path, (ETC / "vcache-agent.conf.sample").read_text())
    assert conf.agent.hook_socket == "/run/vcache/hook.sock"
    assert conf.libvirt.uri == "qemu:///system"


@pytest.mark.parametrize("line", ["refresh_interval = 0.1", "refresh_interval = x",
                                  "netlink_timeout = 100", "prepare_grace = 1"])
def test_a_value_out_of_range_is_refused(tmp_path: Path, line: str) -> None:
    conf = load(tmp_path, f"[agent]\n{line}\n")
    with pytest.raises(cfg.ConfigFileValueError, match=line.split()[0]):
        getattr(conf.agent, line.split()[0])


def test_weights_of_projects(tmp_path: Path) -> None:
    conf = load(tmp_path, "[policy]\nnested = true\nproject_weights = a1b2:300,c3:50\n")
    assert conf.policy.project_weights == {"a1b2": 300, "c3": 50}
    conf = load(tmp_path, "[policy]\nslo_means = io, destage\n")
    assert conf.policy.slo_means == ["io", "destage"]
    assert service._shares(conf).means == (Means.IO, Means.DESTAGE)
    conf = load(tmp_path, "[policy]\nslo_means = pace\n")
    with pytest.raises(ValueError, match="pace"):
        assert conf.policy.slo_means
    conf = load(tmp_path, "[policy]\nproject_weights = a1b2:1001\n")
    with pytest.raises(cfg.ConfigFileValueError, match="project_weights"):
        assert conf.policy.project_weights


def test_every_option_says_what_it_is() -> None:
    for _, items in options.list_opts():
        assert all(len(item.help) > 20 for item in items)


def test_a_hook_does_not_wait_long_for_the_interpreter(tmp_path: Path) -> None:
    conf = tmp_path / "agent.conf"
    conf.write_text(f"[agent]\nstate_path = {tmp_path}/none.sqlite\n")
    code = ("import sys; from vcache_agent.cmd import agent; "
            "agent.main(sys.argv[1:]); print(sys.getswitchinterval())")
    done = subprocess.run([sys.executable, "-c", code, "--store-downgrade", "--config-file", conf],
                          check=True, capture_output=True, text=True)
    assert "none.sqlite does not exist" in done.stdout
    assert float(done.stdout.split()[-1]) <= 0.001, "a tenth of what a hook may take in all"
