# SPDX-License-Identifier: Apache-2.0
"""Inventory, libvirt (with its test driver), histograms, tables and the command."""

import dataclasses
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcache_agent import domain_xml, histogram, tables
from vcache_agent.admin_client import AdminError, ask
from vcache_agent.inventory import Inventory
from vcache_agent.libvirt_watch import LibvirtWatch
from vcache_agent.model import Backing, DiskSource, Domain, Phase
from vcache_agent.netlink import spec
from vcache_agent.status_files import StatusFiles

GRACE = 100.0


def domain(uuid: str) -> Domain:
    return Domain(uuid, uuid, {}, ())


def running(inventory: Inventory) -> dict[str, Phase]:
    return {entry.domain.uuid: entry.phase for entry in inventory.snapshot().entries}


def test_libvirts_list_replaces_what_was_known() -> None:
    inventory = Inventory(GRACE)
    assert not inventory.snapshot().complete
    inventory.told(domain("a"), Phase.RUNNING)
    inventory.listed([domain("b")], ["b", "c"], time.monotonic())
    assert running(inventory) == {"b": Phase.RUNNING}
    assert inventory.snapshot().complete
    assert inventory.snapshot().defined == {"b", "c"}
    inventory.lost()
    assert not inventory.snapshot().complete
    assert running(inventory) == {"b": Phase.RUNNING}


def test_a_domain_that_starts_is_not_taken_for_gone() -> None:
    inventory = Inventory(GRACE)
    inventory.told(domain("a"), Phase.PREPARING)
    inventory.listed([], ["a"], time.monotonic())
    inventory.not_running("a", time.monotonic())
    assert running(inventory) == {"a": Phase.PREPARING}
    inventory.told(domain("a"), Phase.RUNNING)
    inventory.ended("a")
    assert running(inventory) == {}
    hasty = Inventory(0.0)
    hasty.told(domain("a"), Phase.PREPARING)
    hasty.listed([], ["a"], time.monotonic())
    assert running(hasty) == {}


def test_what_is_told_while_libvirt_lists_is_newer() -> None:
    inventory = Inventory(GRACE)
    inventory.told(domain("a"), Phase.RUNNING)
    began = time.monotonic()
    inventory.told(domain("b"), Phase.RUNNING)
    inventory.ended("a")
    inventory.listed([domain("a")], ["a"], began)
    inventory.not_running("b", began)
    assert running(inventory) == {"b": Phase.RUNNING}


def test_a_domain_that_libvirt_describes_badly_is_kept() -> None:
    inventory = Inventory(GRACE)
    inventory.told(domain("a"), Phase.RUNNING)
    inventory.listed([], ["a"], time.monotonic(), ["a"])
    assert running(inventory) == {"a": Phase.RUNNING}


@pytest.mark.parametrize("late", ["stopped", "release"])
def test_a_late_message_of_the_last_run_does_not_end_this_one(late: str) -> None:
    inventory = Inventory(GRACE)
    now = time.monotonic()
    inventory.told(domain("a"), Phase.RUNNING, now - 9)
    if late == "release":
        assert inventory.ended("a", now - 8)
    inventory.told(domain("a"), Phase.PREPARING, now - 6)
    assert not inventory.ended("a", now - 7)
    assert running(inventory) == {"a": Phase.PREPARING}
    inventory.told(domain("a"), Phase.RUNNING, now - 5)
    inventory.ended("a", now - 7)
    assert running(inventory) == {"a": Phase.RUNNING}
    inventory.ended("a", now - 4)
    assert running(inventory) == {}


def test_a_late_message_does_not_bring_a_stopped_domain_back() -> None:
    inventory = Inventory(GRACE)
    now = time.monotonic()
    inventory.ended("a", now - 5)
    for phase in Phase:
        inventory.told(domain("a"), phase, now - 6)
        assert running(inventory) == {}
    inventory.listed([], ["a"], now - 4)
    inventory.told(domain("a"), Phase.RUNNING, now - 6)
    assert running(inventory) == {}
    inventory.told(domain("a"), Phase.RUNNING, now - 3)
    assert running(inventory) == {"a": Phase.RUNNING}


def test_a_message_of_an_older_hook_counts_when_it_arrives() -> None:
    inventory = Inventory(GRACE)
    inventory.told(domain("a"), Phase.PREPARING)
    inventory.told(domain("a"), Phase.RUNNING)
    inventory.ended("a")
    inventory.ended("a")
    assert running(inventory) == {}


def test_a_time_in_the_future_hides_nothing() -> None:
    inventory = Inventory(GRACE)
    inventory.told(domain("a"), Phase.RUNNING, time.monotonic() + 1e6)
    inventory.ended("a", time.monotonic() + 2e6)
    inventory.told(domain("a"), Phase.RUNNING)
    assert running(inventory) == {"a": Phase.RUNNING}


OPERATIONS = {"prepare": Phase.PREPARING, "started": Phase.RUNNING, "stopped": None,
              "release": None}


@given(st.lists(st.sampled_from(list(OPERATIONS)), min_size=1, max_size=8), st.randoms())
def test_messages_in_any_order_end_as_in_the_right_order(
        operations: list[str], chance: random.Random) -> None:
    now = time.monotonic()
    messages = [(now - 100 + step, name) for step, name in enumerate(operations)]
    chance.shuffle(messages)
    inventory = Inventory(GRACE)
    for at, name in messages:
        if (phase := OPERATIONS[name]) is None:
            inventory.ended("a", at)
        else:
            inventory.told(domain("a"), phase, at)
    last = OPERATIONS[operations[-1]]
    assert running(inventory) == ({} if last is None else {"a": last})


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Inventory, list[float]]]:
    """A watch on libvirt's test driver, which has one running domain, "test"."""
    inventory, changes = Inventory(GRACE), []
    watch = LibvirtWatch("test:///default", inventory, 60.0,
                         lambda: changes.append(time.monotonic()), tmp_path_factory.mktemp("run"))
    watch.start()
    yield inventory, changes
    watch.stop()


def until(probe: object, seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not probe():  # type: ignore[operator]
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_libvirts_domains_and_events(watched: tuple[Inventory, list[float]]) -> None:
    inventory, changes = watched
    until(lambda: inventory.snapshot().complete)
    assert [entry.domain.name for entry in inventory.snapshot().entries] == ["test"]
    # All connections of a process to test:///default share the same state.
    connection = libvirt.open("test:///default")
    found = connection.lookupByName("test")
    before = len(changes)
    found.destroy()
    until(lambda: not running(inventory))
    found.create()
    until(lambda: running(inventory))
    assert len(changes) > before
    connection.close()


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[
        tuple[Inventory, list[float]]]:
    """A watch that gets no event and lists once an hour."""
    monkeypatch.setattr(LibvirtWatch, "_event", lambda *_: None)
    inventory, changes = Inventory(GRACE), []
    watch = LibvirtWatch("test:///default", inventory, 3600.0,
                         lambda: changes.append(time.monotonic()), tmp_path)
    watch.start()
    until(lambda: changes)
    yield inventory, changes
    watch.stop()


def test_a_change_without_an_event_is_found_by_the_status_file(
        tmp_path: Path, silent: tuple[Inventory, list[float]],
        monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, changes = silent
    asked = []
    made = domain_xml.parse
    snapshot = dataclasses.replace(made(asked_xml()), disks=(
        DiskSource("vda", "file", "/top", backing=(Backing("file", "/base"),)),))
    monkeypatch.setattr("vcache_agent.libvirt_watch.domain_xml.parse",
                        lambda xml: asked.append(xml) or snapshot)
    before = len(changes)
    replace(tmp_path / "test.xml")
    until(lambda: len(changes) > before)
    (entry,) = inventory.snapshot().entries
    assert entry.domain == snapshot
    # Another one leaves the domain as it is, so nothing has to be done.
    before, reads = len(changes), len(asked)
    replace(tmp_path / "test.xml")
    until(lambda: len(asked) > reads)
    replace(tmp_path / "gone.xml")
    replace(tmp_path / "test.xml")
    until(lambda: len(asked) > reads + 1)
    assert len(changes) == before


def asked_xml() -> bytes:
    connection = libvirt.open("test:///default")
    try:
        return connection.lookupByName("test").XMLDesc(0).encode()
    finally:
        connection.close()


def replace(path: Path) -> None:
    """Replace a file as libvirt does."""
    path.with_suffix(".new").write_text("<domstatus/>")
    path.with_suffix(".new").rename(path)


def look(files: StatusFiles) -> list[str]:
    """Look as soon as it is time."""
    while wait := files.wait:
        time.sleep(wait)
    return files.changed()


def test_only_a_replaced_status_file_counts(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path / "qemu", pause=0.0)
    assert look(files) == []
    (tmp_path / "qemu").mkdir()
    for name in ("a", "b with. dots"):
        replace(tmp_path / "qemu" / f"{name}.xml")
    (tmp_path / "qemu" / "a.pid").write_text("1")
    (tmp_path / "qemu" / "link.xml").symlink_to("/nonexistent")
    assert look(files) == ["a", "b with. dots", "link"]
    assert look(files) == []
    replace(tmp_path / "qemu" / "a.xml")
    assert look(files) == ["a"]
    replace(tmp_path / "qemu" / "a.xml")
    files.mark()
    (tmp_path / "qemu" / "b with. dots.xml").unlink()
    assert look(files) == []


def test_looks_at_status_files_have_a_pause(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path, pause=1000.0)
    files.mark()
    replace(tmp_path / "a.xml")
    assert files.wait > 900
    assert files.changed() == []


def test_work_for_changed_domains_has_a_budget(tmp_path: Path) -> None:
    """A guest that causes many changes does not keep libvirt busy."""
    files = StatusFiles(tmp_path, pause=0.0)
    files.mark()
    files.worked(50.0)
    assert 400 < files.wait <= 500
    files.worked(1.0)
    assert files.wait > 400


def test_a_libvirt_that_is_away_leaves_the_inventory_incomplete() -> None:
    inventory = Inventory(GRACE)
    watch = LibvirtWatch("qemu+unix:///system?socket=/nonexistent", inventory, 60.0, lambda: None,
                         Path("/nonexistent"))
    watch.start()
    time.sleep(0.3)
    assert not inventory.snapshot().complete
    watch.stop()


def test_buckets_of_the_histogram_touch() -> None:
    lowers = [histogram.lower(bucket) for bucket in range(spec.HISTOGRAM_BUCKETS + 1)]
    assert lowers[:10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert lowers == sorted(set(lowers))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_percentile_is_right_to_a_bucket(values: list[int], part: float) -> None:
    lowers = [histogram.lower(bucket) for bucket in range(spec.HISTOGRAM_BUCKETS + 1)]
    counts = [0] * spec.HISTOGRAM_BUCKETS
    for value in values:
        counts[max(bucket for bucket in range(spec.HISTOGRAM_BUCKETS)
                   if lowers[bucket] <= value)] += 1
    rank = max(1, -int(-part * len(values) // 1))
    true = sorted(values)[min(rank, len(values)) - 1]
    found = histogram.percentile(counts, part)
    assert found is not None
    # Four buckets per power of two: an error of at most a quarter, and one rank to each side.
    assert found >= 0.79 * true - 1
    assert found <= 1.26 * sorted(values)[min(rank, len(values) - 1)] + 2


def test_no_value_has_no_percentile() -> None:
    assert histogram.percentile([0] * 128, 0.5) is None


def test_a_table_is_aligned() -> None:
    text = tables.table(("NAME", "COUNT"), [("a", 5), ("long", 1234), (None, 1)])
    assert text.splitlines() == ["NAME  COUNT", "a         5", "long   1234", "-         1"]


@given(st.integers(0, 2**63))
def test_sizes_for_people(count: int) -> None:
    text = tables.size(count)
    assert text is not None
    value, unit = text.split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    assert abs(float(value) * factor - count) <= 0.051 * factor + (count > 2**60) * count


STATE = {
    "agent": {"problem": "", "libvirt": True, "domains": 1},
    "devices": [{"device": "254:0", "name": "images", "scope": "filesystem",
                 "isolation": "degraded", "size_bytes": 1 << 30, "dirty_bytes": 0, "tags": 2,
                 "suspended": False, "broken": True, "origin": "8:0", "mode": "writeback",
                 "cache": {"pool": "254:9", "volume": 3, "dirty_bytes": 5 << 20,
                           "broken": True}}],
    "tags": [{"tag": 3, "device": "254:0", "device_name": "images", "name": "u:vda",
              "mode": "writethrough", "cached_bytes": 3 << 20, "cache_dirty_bytes": 2 << 20,
              "weight": 100, "limit_bytes": 1 << 20, "dirty_bytes": 4096, "extents": 7,
              "flush": {"count": 2, "mean_us": 1500.0, "p50_us": 900.0, "p99_us": None}}],
    "disks": [], "orphans": [{"tag": 9, "device": None, "name": "x", "dirty_bytes": 0,
                              "reason": "gone"}]}


def test_what_is_wrong_stands_first_and_loud() -> None:
    text = tables.status(STATE)
    assert text.startswith("WARNING: images: isolation=degraded")
    assert "NOT" in text and "DEGRADED" in text and "writes to the origin 8:0 fail" in text
    assert "1.5 ms" in text and "900 us" in text and "4.0 KiB" in text and "gone" in text
    assert "5.0 MiB are only in the cache" in text and "cache failing" in text
    assert "writethrough" in text and "3.0 MiB" in text and "2.0 MiB" in text


def vcache(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "vcache_agent.cmd.cli", *arguments],
                          capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("arguments", [
    (), ("tag",), ("tag", "set", "5"), ("tag", "set", "0", "--weight", "5"),
    ("tag", "set", "65536", "--weight", "5"), ("tag", "set", "5", "--weight", "1001"),
    ("tag", "set", "5", "--weight", "x"), ("tag", "set", "5", "--weight", "5", "--flavor-weight"),
    ("tag", "set", "5", "--mode", "none"), ("tag", "set", "5", "--mode", "writeback",
                                            "--flavor-mode"),
    ("tag", "set", "5", "--lanes", "64"), ("tag", "set", "5", "--lanes", "1,,2"),
    ("pool", "create", "p", "/dev/x", "--lanes", "0"),
    ("pool", "create", "p", "/dev/x", "--lanes", "65"),
    ("pool", "create", "p", "/dev/x", "--lane", "0"),
    ("pool", "create", "p", "/dev/x", "--lanes", "2", "--lane", "1M")])
def test_wrong_usage_is_status_2_and_says_what_is_allowed(arguments: tuple[str, ...]) -> None:
    done = vcache(*arguments)
    assert done.returncode == 2
    assert "usage: vcache" in done.stderr


def test_without_an_agent(tmp_path: Path) -> None:
    where = ("--socket", str(tmp_path / "s.sock"))
    done = vcache(*where, "tag", "set", "5", "--weight", "5")
    assert done.returncode == 5
    assert "vcache-agent is not running" in done.stderr
    if not Path("/sys/module/dm_vcache").exists():
        done = vcache(*where, "status")
        assert done.returncode == 3
        assert "modprobe dm-vcache" in done.stderr


def answers(path: Path) -> bool:
    try:
        return bool(ask(path, {"op": "state"}))
    except AdminError:
        return False


def start_agent(folder: Path) -> subprocess.Popen[bytes]:
    conf = folder / "agent.conf"
    conf.write_text(f"[agent]\nstate_path = {folder}/state.sqlite\n"
                    f"hook_socket = {folder}/hook.sock\nadmin_socket = {folder}/admin.sock\n"
                    "refresh_interval = 0.5\n[libvirt]\nuri = test:///default\n")
    with open(folder / "log", "ab") as log:
        return subprocess.Popen([sys.executable, "-m", "vcache_agent.cmd.agent", "--config-file",
                                 str(conf)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def test_the_agent_without_the_module_says_so_and_goes_on(tmp_path: Path) -> None:
    if Path("/sys/module/dm_vcache").exists():
        pytest.skip("the module is loaded")
    where = ("--socket", str(tmp_path / "admin.sock"))
    agent = start_agent(tmp_path)
    try:
        until(lambda: answers(tmp_path / "admin.sock"))
        until(lambda: json.loads(vcache(*where, "status", "--json").stdout)["agent"]["problem"]
              != "the first pass is not complete yet")
        assert "modprobe dm-vcache" in vcache(*where, "disks").stdout
        done = vcache(*where, "tag", "set", "5", "--weight", "5")
        assert (done.returncode, "does not belong to a disk" in done.stderr) == (1, True)
        second = start_agent(tmp_path)
        assert second.wait(60) == 1
        assert "another vcache-agent is running" in (tmp_path / "log").read_text()
    finally:
        agent.terminate()
        assert agent.wait(60) == 0
    assert not (tmp_path / "admin.sock").exists()


def test_the_agent_can_be_killed_at_any_moment_of_its_start(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(4):
        agent = start_agent(tmp_path)
        time.sleep(chance.random() * 1.5)
        agent.kill()
        agent.wait()
    agent = start_agent(tmp_path)
    try:
        # A socket of a killed agent may still exist.
        until(lambda: answers(tmp_path / "admin.sock"))
        done = vcache("--socket", str(tmp_path / "admin.sock"), "disks", "--json")
        assert json.loads(done.stdout)["disks"] == []
    finally:
        agent.terminate()
        assert agent.wait(60) == 0
