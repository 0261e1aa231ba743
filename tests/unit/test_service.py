# SPDX-License-Identifier: Apache-2.0
"""The agent as a whole, with real files and libvirt's test driver, while a path hangs."""

import dataclasses
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.unit.locate_model import Hanging
from tests.unit.test_worker import Kernel
from vcache_agent import conf as options
from vcache_agent.framing import receive, send
from vcache_agent.metrics.pool_watch import PoolWatch
from vcache_agent.model import DeviceNumber
from vcache_agent.netlink import spec
from vcache_agent.service import Agent

PATIENCE = 60.0
# More than the connections that the hook's server has at the same time.
MANY = 50
NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"


class Host:
    """An agent, and its hook."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        self.folder = folder
        self.kernel = kernel
        self.socket = folder / "hook.sock"
        (folder / "agent.conf").write_text(
            f"[agent]\nstate_path = {folder}/state/agent.sqlite\nhook_socket = {self.socket}\n"
            f"admin_socket = {folder}/admin.sock\nlocate_timeout = 0.5\nprepare_timeout = 0.2\n"
            "[libvirt]\nuri = test:///default\n")
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf(["--config-file", str(folder / "agent.conf")], project="vcache")
        self.agent = Agent(conf)
        self.agent.start()

    def image(self, name: str) -> Path:
        path = self.folder / name
        path.write_bytes(b"x" * 4096)
        return path

    def hook(self, operation: str, name: str, path: Path, required: bool = False,
             **more: str) -> str:
        """Report an operation on a domain; return the status and the text of the answer.

        :param more: extra specs without their prefix
        """
        uuid = f"{sum(name.encode()):08x}-0000-4000-8000-000000000000"
        specs = {"vcache:mode": "flush-only", "vcache:required": str(required).lower()} | {
            f"vcache:{key}": value for key, value in more.items()}
        found = "".join(f'<nova:extraSpec name="{key}">{value}</nova:extraSpec>'
                        for key, value in specs.items())
        xml = (f'<domain type="kvm"><name>{name}</name><uuid>{uuid}</uuid><metadata>'
               f'<nova:instance xmlns:nova="{NOVA}"><nova:flavor name="x"><nova:extraSpecs>{found}'
               '</nova:extraSpecs></nova:flavor></nova:instance></metadata><devices>'
               f'<disk type="file" device="disk"><source file="{path}"/><target dev="vda"/></disk>'
               '</devices></domain>')
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            send(connection, b"\0".join([b"1", name.encode(), operation.encode(), b"begin", b"-",
                                         xml.encode()]), time.monotonic() + PATIENCE)
            answer = receive(connection, 1 << 16, time.monotonic() + PATIENCE)
        return answer.replace(b"\0", b" ", 1).decode()

    def tags(self) -> list[str]:
        return [tag.name for tag in self.kernel.tags()]


@pytest.fixture
def host(thread_helpers: None, tmp_path: Path,
         monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    status = tmp_path.stat()
    kernel = Kernel(DeviceNumber(os.major(status.st_dev), os.minor(status.st_dev)))
    monkeypatch.setattr("vcache_agent.worker.Client", kernel)
    monkeypatch.setattr("vcache_agent.service.Client", kernel)
    made = Host(tmp_path, kernel)
    yield made
    made.agent.stop()


def until(probe: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_start_with_a_path_that_hangs_follows_the_flavor(
        host: Host, hanging: Hanging) -> None:
    image = host.image("image")
    assert host.hook("prepare", "first", image) == "accept "
    hanging.hang(image)
    assert host.hook("prepare", "lax", image) == (
        f"accept lax: disk vda is not isolated: {image} does not answer in time; none of its "
        "disks is on a vcache device")
    until(lambda: hanging.waiting)
    refused = host.hook("prepare", "strict", image, required=True)
    assert refused.startswith("refuse strict: its flavor has vcache:required: disk vda is not "
                              f"isolated: {image} does not answer")
    hanging.go_on(image)
    until(lambda: host.hook("prepare", "strict", image, required=True) == "accept ")


def test_paths_that_hang_do_not_use_up_the_slots_of_the_hook(
        host: Host, hanging: Hanging) -> None:
    images = [host.image(f"image{number}") for number in range(MANY)]
    for image in images:
        hanging.hang(image)
    answers: list[str] = []
    threads = []
    for number, image in enumerate(images):
        threads.append(threading.Thread(
            target=lambda name, path: answers.append(host.hook("prepare", name, path)),
            args=(f"vm{number}", image)))
    # No more at once than there are slots, which is another test's subject.
    for at in range(0, MANY, 10):
        for thread in threads[at:at + 10]:
            thread.start()
        for thread in threads[at:at + 10]:
            thread.join()
    assert len(answers) == MANY
    assert all("does not answer" in answer for answer in answers)
    # The folder's file system does not answer, as far as the agent can know.
    good = host.image("good")
    assert host.hook("started", "good", good) == "accept "
    assert len(hanging.waiting) < 10
    hanging.end()
    until(lambda: host.hook("prepare", "good", good, required=True) == "accept ")
    until(lambda: any(name.startswith(f"{sum(b'good'):08x}") for name in host.tags()))


def test_a_store_that_refuses_changes_admits_only_known_disks(host: Host) -> None:
    image, other = host.image("image"), host.image("other")
    assert host.hook("started", "known", image) == "accept "
    until(lambda: host.tags() == [f"{sum(b'known'):08x}-0000-4000-8000-000000000000:vda"])
    store = host.agent.store
    store._db.execute("PRAGMA query_only = 1")
    with pytest.raises(sqlite3.OperationalError):
        store.set_policy("static")
    until(lambda: host.hook("prepare", "known", image, required=True) == "accept ")
    refused = host.hook("prepare", "strict", other, required=True)
    assert refused.startswith("refuse strict: its flavor has vcache:required: disk vda: no tag: ")
    assert "cannot be written" in refused
    assert host.hook("prepare", "lax", other).startswith("accept lax: disk vda: no tag: ")
    store._db.execute("PRAGMA query_only = 0")
    assert host.hook("prepare", "strict", other, required=True) == "accept "
def test_of_instances_that_start_at_once_only_as_many_are_admitted_as_fit(
        host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is guaranteed 300 MiB of the 900 that the pool can guarantee."""
    host.kernel.device = dataclasses.replace(
        host.kernel.device, mode=spec.Mode.WRITEBACK, pool="254:2", volume=1)
    monkeypatch.setattr(PoolWatch, "rows", ({
        "device": "254:2", "size_bytes": 1000 << 20, "lanes_bytes": [1000 << 20]},))
    images = [host.image(f"image{at}") for at in range(8)]

    def start(at: int) -> str:
        return host.hook("prepare", f"vm{at}", images[at], required=True, mode="writeback",
                         min_mb="300")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(start, range(8)))
    accepted = [at for at, answer in enumerate(answers) if answer == "accept "]
    assert len(accepted) == 3, answers
    refused = next(answer for answer in answers if answer != "accept ")
    assert "can guarantee 0 MiB more, but it needs 300 MiB" in refused
    # The planner has them now, and the same number is left.
    until(lambda: len(host.tags()) == 3)
    another = next(at for at in range(8) if at not in accepted)
    assert start(another).startswith("refuse")
    # One of them stops.
    host.hook("release", f"vm{accepted[0]}", images[accepted[0]])
    until(lambda: start(another) == "accept ")
