# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one libvirtd, one file system on a vcache device, an agent for each test."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box import inside
from tests.box.steps import each
from tests.host import lab
from vcache_agent.model import DeviceNumber


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--churn-seconds", type=float, default=60, help="how long test_churn lasts")
    parser.addoption("--churn-seed", type=int, default=1, help="seed of its random choices")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("VCACHE_BOX"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason="runs in the box: python -m tests.host"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Print at once: a box that exceeds its time limit would lose the reasons.
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}: {report.longreprtext}", file=sys.stderr)


@pytest.fixture(scope="session")
def libvirtd() -> Iterator[None]:
    lab.set_hook(timeout=lab.HOOK_PATIENCE)
    with inside.libvirt(hook=lab.timed_hook()):
        yield


@pytest.fixture(scope="session")
def module() -> None:
    inside.load_module("buffer_mb=64")
    # RAM disks: for images, for a volume, below two volumes and for their cache, and for paths
    # that hang.
    inside.run("modprobe", "brd", "rd_nr=5", "rd_size=262144")


@pytest.fixture(scope="session")
def filesystem(module: None) -> Iterator[Path]:
    with lab.mapped("instances", Path("/dev/ram0"), "filesystem") as device, \
            lab.mounted(device, Path("/run/instances")) as folder:
        yield folder


@pytest.fixture(scope="session")
def device(filesystem: Path) -> DeviceNumber:
    return lab.number_of(Path("/dev/mapper/instances"))


@pytest.fixture(scope="session")
def one_agent(libvirtd: None, filesystem: Path) -> Iterator[lab.Agent]:
    lab.set_agent()
    running = lab.Agent()
    yield running
    if running.runs:
        assert running.stop() == 0


@pytest.fixture
def agent(one_agent: lab.Agent) -> lab.Agent:
    """A running agent. A test may kill it; the next test gets a new one."""
    lab.set_hook(timeout=lab.HOOK_PATIENCE)
    if not one_agent.runs:
        one_agent.start()
    return one_agent


@pytest.fixture
def vm(libvirtd: None) -> Iterator[Callable[..., lab.Vm]]:
    made: list[lab.Vm] = []

    def make(*arguments: object, **options: object) -> lab.Vm:
        made.append(lab.Vm(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    each(_remove, made)


def _remove(vm: lab.Vm) -> None:
    vm.end()
    for path in vm.disks:
        if path.is_file():
            path.unlink()
