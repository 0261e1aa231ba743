# SPDX-License-Identifier: Apache-2.0
"""A sandbox in the state in which stack.sh calls plugins, and nodes in it, one at a time."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.devstack import ROOT, node, upstream
from tests.devstack.sandbox import Sandbox
from tests.openstack_api.cloud import Cloud

for name in [name for name in os.environ if name.startswith("OS_")]:
    del os.environ[name]


class Others(Cloud):
    """The services of other projects that devstack has started when it calls the plugin."""

    service_user = "nova"
    rabbit_at = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}:5672"

    def _api(self) -> None:
        """The plugin creates the API, its user and its endpoint."""


@pytest.fixture(scope="session")
def devstack() -> Path:
    try:
        return upstream.checkout()
    except upstream.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cloud(devstack: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Others(tmp_path_factory.mktemp("cloud"))
    made.nova_api()
    yield made
    made.close()


@pytest.fixture(scope="session")
def sandbox(devstack: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    if os.geteuid():
        pytest.skip("a root of one's own needs root")
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("a root of one's own needs unshare and nsenter (util-linux)")
    made = Sandbox(tmp_path_factory.mktemp("sandbox"), node.libraries())
    with at_end(made.close):
        node.prepare(made, devstack)
        yield made


@pytest.fixture(scope="session")
def kernel() -> str:
    """Return the release of a kernel with installed headers, to build the module for."""
    done = subprocess.run([ROOT / ".ci/kernel"], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no headers of a kernel to build for: {done.stderr.strip()}")
    return done.stdout.strip()
