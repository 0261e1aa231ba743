# SPDX-License-Identifier: Apache-2.0
"""The images of devstack/containers, built from our packages on a root of Debian 13."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.box.limits import Deadline, limit
from tests.cloud.processes import free_port
from tests.deploy import root as roots

CREDENTIALS = """auth_type = password
auth_url = http://127.0.0.1:1/v3
username = vcache
password = x
project_name = service
user_domain_id = default
project_domain_id = default
"""
CONFIG = f"""[DEFAULT]
transport_url = rabbit://x:x@127.0.0.1:1/
[keystone_authtoken]
{CREDENTIALS}[placement]
{CREDENTIALS}"""


class Buildah:
    """Buildah with images of its own.

    :param folder: where they are
    """

    def __init__(self, folder: Path) -> None:
        self._common = ["buildah", "--storage-driver", "vfs", "--root", str(folder / "root"),
                        "--runroot", str(folder / "run")]

    def words(self, *words: str) -> list[str]:
        """Return a command line."""
        return [*self._common, *words]

    def __call__(self, *words: str) -> str:
        """Run a command."""
        done = subprocess.run(self.words(*words), capture_output=True, text=True, check=False)
        assert not done.returncode, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()

    def build(self, target: str) -> str:
        """Build an image, and return a container of it."""
        self("bud", "--pull-never", "--isolation", "chroot", "--network", "host", "-f",
             str(roots.REPO / "devstack/containers/Containerfile"), "--target", target, "-t",
             target, str(roots.REPO / "build/deb"))
        return self("from", "--pull-never", target)


@pytest.fixture(scope="module")
def buildah() -> Iterator[Buildah]:
    folder = roots.BUILD / "containers"
    shutil.rmtree(folder, ignore_errors=True)
    made = Buildah(folder)
    base = made("from", "scratch")
    made("add", "-q", base, str(roots.minimal()), "/")
    made("commit", "-q", base, "debian:13")
    yield made
    made("rm", "--all")
    shutil.rmtree(folder)


@pytest.mark.parametrize(("image", "user"), [("vcache-agent", "root"), ("vcache-host", "vcache")])
def test_the_images_of_a_host_have_its_commands(buildah: Buildah, image: str, user: str) -> None:
    container = buildah.build(image)
    found = buildah("run", "--isolation", "chroot", container, "--", "sh", "-ec",
                    "id -un; vcache --version; vcache-agent --version; vcache-host --version; "
                    "ls /etc/libvirt/hooks/qemu.d")
    name, *versions, hook = found.split("\n")
    assert (name, len(set(versions)), hook) == (user, 1, "50-vcache")
    assert versions[0] in next((roots.REPO / "build/deb").glob("nova-vcache-agent_*")).name.replace(
        "~", ".")
    command = buildah("inspect", "--format", "{{index .OCIv1.Config.Cmd 0}}", image)
    assert command == image


def test_the_image_of_the_api_serves(buildah: Buildah, tmp_path: Path) -> None:
    container = buildah.build("vcache-api")
    (tmp_path / "vcache-api.conf").write_text(CONFIG)
    tmp_path.chmod(0o755)
    port = free_port()
    command = [word.strip("[]") for word in buildah(
        "inspect", "--format", "{{.OCIv1.Config.Cmd}}", "vcache-api").split()]
    command = [word.replace("0.0.0.0:8777", f"127.0.0.1:{port}") for word in command]
    with subprocess.Popen(buildah.words(
            "run", "--isolation", "chroot", "-v", f"{tmp_path}:/etc/vcache:ro", container, "--",
            # It outlives buildah.
            "timeout", str(round(limit(300))), *command), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL) as process:
        try:
            assert _versions(f"http://127.0.0.1:{port}/")[0]["id"] == "v1"
            assert requests.get(f"http://127.0.0.1:{port}/v1/hosts", timeout=60).status_code == 401
        finally:
            process.terminate()


def _versions(url: str) -> list[dict[str, str]]:
    """Return the versions of an API as soon as it answers."""
    deadline = Deadline(300)
    while True:
        try:
            found: list[dict[str, str]] = requests.get(url, timeout=60).json()["versions"]
        except requests.ConnectionError:
            assert not deadline.passed(), f"{url} does not answer"
            time.sleep(0.5)
        else:
            return found
