# SPDX-License-Identifier: Apache-2.0
"""The agent gives tags their weights in the emulated SSD, by the Linux NVMe/TCP host."""

import contextlib
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.box.inside import stop
from tests.box.ssd import Ssd, ssd
from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped, vcache
from vcache_agent.drive import tag_shares, watch
from vcache_agent.drive.watch import DriveWatch
from vcache_agent.netlink import spec
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.nvme import Drives
from vcache_agent.observe.sample import Sample, take

PORT = 9587


def weights(path: str) -> dict[int, int]:
    """Return the weights of the tags that have one in the drive."""
    return {share.tag: share.weight for share in tag_shares.read_shares(path) if share.weight}


@pytest.fixture
def drive() -> Iterator[Ssd]:
    """Provide a drive with state for few tags, with two namespaces, that forgets its weights."""
    with ssd("--size", "64M", "--namespaces", "2", "--tags", "4") as found:
        yield found


def _use(client: Client) -> None:
    assert Drives().use_tags(client, client.devices(), 60.0) == []
    assert {device.isolation for device in client.devices()} == {spec.Isolation.TAGGED}


class Looking:
    """The part of the agent that visits drives, with the kernel's tags as of each visit."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch, *,
                 set_weights: bool = True) -> None:
        monkeypatch.setattr(watch, "_PERIOD", 0.0)
        real, self.sent = tag_shares.set_weights, list[tuple[int, int]]()

        def set_and_count(path: str, changes: Iterable[tuple[int, int]]) -> dict[int, str]:
            self.sent += (changes := list(changes))
            return real(path, changes)

        monkeypatch.setattr(tag_shares, "set_weights", set_and_count)
        self._client, self._decoder = client, TagDecoder()
        self.watch = DriveWatch(self._sample, set_weights=set_weights)

    def _sample(self) -> Sample:
        return take(self._client, self._decoder)

    def visit(self) -> list[tuple[int, int]]:
        """Visit the drives; return the commands that were sent."""
        self.sent.clear()
        self.watch.step()
        self.watch.finish()
        return list(self.sent)


@pytest.mark.box
def test_only_differences_are_sent(
        drive: Ssd, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path, looking = drive.namespace(), Looking(client, monkeypatch)
    with vcache(path, "filesystem") as device:
        assert looking.visit() == []  # the agent has not enabled the tags yet
        _use(client)
        client.tag_set(device.number, 11, weight=300)
        client.tag_set(device.number, 12, weight=50)
        tag_shares.set_weight(path, 0, 77)
        assert looking.visit() == [(11, 300), (12, 50)]
        assert weights(path) == {0: 77, 11: 300, 12: 50}
        assert looking.visit() == []
        client.tag_set(device.number, 11, weight=200)
        client.tag_del(device.number, 12)
        assert looking.visit() == [(12, 0), (11, 200)]
        assert weights(path) == {0: 77, 11: 200}
        tag_shares.set_weight(path, 11, 1)  # by hand
        assert looking.visit() == [(11, 200)]
        drive.cut_power()
        drive.power_on()
        assert weights(path) == {}
        assert looking.visit() == [(11, 200)]
        assert weights(path) == {11: 200}
    # The device has gone, and with it the tags.
    assert looking.visit() == [(11, 0)]
    assert looking.visit() == []
    assert looking.watch.readings == ()
    assert weights(path) == {}


def test_two_namespaces_are_one_drive(
        drive: Ssd, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path, looking = drive.namespace(), Looking(client, monkeypatch)
    with vcache(path, "volume 7") as one, vcache(drive.namespace(2), "volume 8") as two:
        _use(client)
        client.tag_set(one.number, 7, weight=30)
        client.tag_set(two.number, 8, weight=20)
        assert looking.visit() == [(7, 30), (8, 20)]
        (reading,) = looking.watch.readings
        assert {share.tag: share.weight for share in reading.shares
                if share.weight} == {7: 30, 8: 20}
        # One that sends no tagged commands for now.
        client.device_set(two.number, nsid=0)
        client.tag_set(two.number, 8, weight=25)
        assert looking.visit() == []
        _use(client)
        assert looking.visit() == [(8, 25)]


def test_a_drive_that_refuses_is_logged_once(drive: Ssd, client: Client,
                                             monkeypatch: pytest.MonkeyPatch,
                                             caplog: pytest.LogCaptureFixture) -> None:
    """It has state for four tags, with that of the host."""
    path, looking = drive.namespace(), Looking(client, monkeypatch)
    with vcache(path, "filesystem") as device:
        _use(client)
        for number in range(11, 16):
            client.tag_set(device.number, number, weight=10 * number)
        for _ in range(3):
            looking.visit()
        assert weights(path) == {11: 110, 12: 120, 13: 130}
        errors = [record.getMessage() for record in caplog.records
                  if record.levelname == "ERROR"]
        name = Path(path).name.partition("n1")[0]
        assert errors == [
            f"drive {name}: its tags do not have their weights: tag 14: the drive has state for "
            "as many tags as it can, and 1 more tags"]
        # A tag that goes makes room for another one in the same visit.
        client.tag_del(device.number, 12)
        client.tag_del(device.number, 15)
        assert looking.visit() == [(12, 0), (14, 140)]
        assert weights(path) == {11: 110, 13: 130, 14: 140}
        assert looking.watch.readings[0].problem == ""


def test_a_drive_that_hangs_is_waited_for_in_a_thread(
        drive: Ssd, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path, looking = drive.namespace(), Looking(client, monkeypatch)
    with vcache(path, "filesystem") as device:
        _use(client)
        client.tag_set(device.number, 11, weight=300)
        drive.pause()
        try:
            for _ in range(3):
                looking.watch.step()
            assert looking.sent == []
        finally:
            drive.resume()
        looking.watch.finish()
        assert weights(path) == {11: 300}


class Agent:
    """The agent as a process, without libvirt: then the kernel keeps all tags."""

    def __init__(self, folder: Path, weights: bool) -> None:
        self._conf = folder / "agent.conf"
        self._log = folder / "log"
        self._conf.write_text(
            f"[agent]\nstate_path = {folder}/state.sqlite\nhook_socket = {folder}/hook.sock\n"
            f"admin_socket = {folder}/admin.sock\nrefresh_interval = 0.5\n"
            f"[libvirt]\nuri = qemu+unix:///system?socket={folder}/none\n"
            f"[metrics]\nlisten = 127.0.0.1:{PORT}\n"
            + ("[drives]\nweights = true\n" if weights else ""))
        self.start()

    def start(self) -> None:
        """Start it."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vcache_agent.cmd.agent", "--config-file",
                 str(self._conf)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it."""
        stop(self._process, "vcache-agent")

    def eventually(self, what: Callable[[], bool]) -> None:
        """Wait for something."""
        assert stack.wait_until(what), self._log.read_text()[-3000:]

    def metrics(self, name: str) -> dict[int, float]:
        """Return the values of a metric by tag."""
        with contextlib.suppress(OSError), \
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            return {int(one.labels["tag"]): one.value
                    for family in text_string_to_metric_families(answer.read().decode())
                    for one in family.samples if one.name == f"vcache_drive_tag_{name}"}
        return {}


@contextlib.contextmanager
def agent(folder: Path, *, weights: bool) -> Iterator[Agent]:
    """Run the agent."""
    stack.run("ip", "link", "set", "lo", "up")
    found = Agent(folder, weights)
    with at_end(found.close):
        yield found


def _write(device: Mapped, at: int) -> None:
    with Disk(device.path) as disk:
        disk.write(at, pattern(at, 8))
        disk.flush()


def test_the_agent_sets_the_weights(drive: Ssd, client: Client, tmp_path: Path) -> None:
    path = drive.namespace()
    with vcache(path, "volume 7") as device, agent(tmp_path, weights=True) as running:
        running.eventually(lambda: weights(path) == {7: 100})
        client.tag_set(device.number, 7, weight=300)
        running.eventually(lambda: weights(path) == {7: 300})
        running.eventually(lambda: running.metrics("weight").get(7) == 300)
        # The drive forgets everything; the agent enables its tags again.
        drive.cut_power()
        drive.power_on()
        _write(device, 0)
        running.eventually(lambda: weights(path) == {7: 300})
        running.eventually(lambda: client.devices()[0].isolation is spec.Isolation.TAGGED)
        _write(device, 8)
        running.eventually(lambda: running.metrics("flushes_total").get(7, 0) > 0)
        assert running.metrics("bank_seconds_total")[7] > 0
        running.kill()
        drive.cut_power()
        drive.power_on()
        tag_shares.set_weight(path, 9, 5)
        client.tag_set(device.number, 7, weight=400)
        running.start()
        running.eventually(lambda: weights(path) == {7: 400})


def test_by_default_the_agent_only_reports(drive: Ssd, client: Client, tmp_path: Path) -> None:
    path = drive.namespace()
    with vcache(path, "volume 7") as device, agent(tmp_path, weights=False) as running:
        running.eventually(lambda: client.devices()[0].isolation is spec.Isolation.TAGGED)
        _write(device, 0)
        tag_shares.set_weight(path, 9, 5)
        running.eventually(lambda: running.metrics("writes_total").get(7, 0) > 0)
        assert running.metrics("weight")[7] == 0
        assert weights(path) == {9: 5}
