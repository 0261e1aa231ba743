# SPDX-License-Identifier: Apache-2.0
"""Locating disks while paths hang, fail or vanish. The files are real."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.locate_model import Hanging, ThreadHelper
from vcache_agent import fiemap, inode, locate, locate_pool, mounts
from vcache_agent.blockstack import BlockStack
from vcache_agent.locate import Located, Locator
from vcache_agent.locate_pool import Answer, Helper, Pool, ProcessHelper, Question, Urgency
from vcache_agent.model import Device, DeviceNumber, Extent, Location
from vcache_agent.netlink import spec
from vcache_agent.packed_extents import pack

# Nothing may depend on the speed of the machine: this is only the end of a wait.
PATIENCE = 60.0


def until(probe: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < limit
        time.sleep(0.01)


class Host:
    """A folder whose file system is said to be on a vcache device, and a locator."""

    def __init__(self, folder: Path, timeout: float = 1.0, **options: int) -> None:
        self.folder = folder
        status = folder.stat()
        self.number = DeviceNumber(os.major(status.st_dev), os.minor(status.st_dev))
        self.stack = BlockStack([Device(
            self.number, "images", spec.Mode.FLUSH_ONLY, spec.Scope.FILESYSTEM,
            spec.Isolation.FUA, 1 << 50, "8:0")])
        self.changes = threading.Semaphore(0)
        self.locator = Locator(timeout, self.changes.release, **options)
        self.locator.start()

    def image(self, name: str, blocks: int = 1) -> Path:
        path = self.folder / name
        with open(path, "wb") as file:
            file.write(b"x" * 4096 * blocks)
            file.flush()
            os.fsync(file.fileno())
        return path

    def __call__(self, path: object, **options: Any) -> Located:
        """Locate a path, and wait for its first answer."""
        return self.locator.locate("file", str(path), self.stack,
                                   deadline=time.monotonic() + PATIENCE, **options)

    def fresh(self, path: object, **options: Any) -> Located:
        """Locate a path, and wait for a new answer."""
        ticket = self.locator.ask([str(path)], fresh=True, **options)[str(path)]
        return self(path, ticket=ticket)


@pytest.fixture
def host(thread_helpers: None, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    if not made(made.image("probe")).location:
        pytest.skip("the temporary folder's file system tells no places")
    yield made
    made.locator.stop()


def sectors(found: Located) -> int:
    assert found.location is not None
    return sum(extent.length for extent in found.location.extents)


def test_a_file_is_found_by_its_inode(host: Host) -> None:
    image = host.image("image", 2)
    found = host(image)
    with image.open("rb") as file:
        generation = inode.generation(file.fileno())
    key = inode.with_generation(f"file:images:{image.stat().st_ino}", generation)
    assert found == Located(Location(key, host.number, found.location.extents), "", 0.0)
    assert sectors(found) == 16
    link = host.folder / "link"
    link.symlink_to(image)
    assert host(link).location == found.location
    assert host(host.image("other")).location.key != found.location.key
    assert host(image, extents=False).location == Location(found.location.key, host.number)


@pytest.mark.parametrize(("path", "unknown", "words"), [
    ("/nonexistent/x", True, "/nonexistent/x: No such file"),
    ("/proc/version", False, "not on a single block device"),
    ("/proc", False, "must be a regular file or a block device"),
    ("/dev/null", False, "must be a regular file or a block device")])
def test_paths_that_cannot_be_tagged_say_why(
        host: Host, path: str, unknown: bool, words: str) -> None:
    found = host(path)
    assert (found.location, found.unknown) == (None, unknown)
    assert words in found.problem


def test_growth_is_found_without_being_asked_for(host: Host) -> None:
    image = host.image("image")
    assert sectors(host(image)) == 8
    while host.changes.acquire(blocking=False):
        pass
    host.image("image", 64)
    until(lambda: sectors(host(image)) == 512)
    assert host.changes.acquire(timeout=PATIENCE)


def test_unchanged_extents_are_the_same_object(host: Host) -> None:
    image = host.image("image")
    first = host(image).location
    assert host.fresh(image).location.extents is first.extents


def test_only_the_largest_extents_of_a_fragmented_image_are_used(
        thread_helpers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extents = tuple(Extent(number * 100, number) for number in range(1, 11))
    monkeypatch.setattr(fiemap, "read", lambda *_: (pack(extents).data, 0))
    host = Host(tmp_path, most=3)
    found = host(host.image("image"))
    assert found.location.extents == extents[-3:]
    assert found.left_bytes == sum(range(1, 8)) * 512
    assert host(host.folder / "image").location.extents is found.location.extents
    host.locator.stop()


def test_a_path_that_hangs_keeps_its_location_and_delays_no_other(
        host: Host, hanging: Hanging) -> None:
    image, other = host.image("image"), host.image("other")
    known = host(image)
    hanging.hang(image)
    late = host.fresh(image)
    assert (late.location, late.unknown) == (known.location, True)
    assert late.problem == f"{image} does not answer"
    assert 0.0 < late.age_s < PATIENCE
    # It is not asked again, and occupies one helper, while all others are answered.
    for _ in range(20):
        assert host.fresh(image).location == known.location
        assert host.fresh(other).problem == ""
    assert hanging.waiting == [str(image)]
    while host.changes.acquire(blocking=False):
        pass
    hanging.go_on(image)
    until(lambda: host(image).problem == "")
    assert host.changes.acquire(timeout=PATIENCE)
    assert host.fresh(image) == known


def test_a_path_that_hangs_from_the_beginning_has_no_location(
        host: Host, hanging: Hanging) -> None:
    image = host.image("image")
    hanging.hang(image)
    assert host(image) == Located(None, f"{image} does not answer", 0.0, unknown=True)
    hanging.go_on(image)
    until(lambda: host(image).location is not None)
    assert host(image).problem == ""


def test_a_deadline_ends_the_wait_before_the_path_counts_as_hanging(
        thread_helpers: None, tmp_path: Path, hanging: Hanging) -> None:
    host = Host(tmp_path, timeout=PATIENCE)
    image = host.image("image")
    hanging.hang(image)
    found = host.locator.locate("file", str(image), host.stack,
                                deadline=time.monotonic() + 0.05)
    assert found == Located(None, f"{image} does not answer", 0.0, unknown=True)
    host.locator.stop()


def test_the_end_of_the_locator_ends_all_waits(
        thread_helpers: None, tmp_path: Path, hanging: Hanging) -> None:
    host = Host(tmp_path, timeout=10 * PATIENCE)
    image = host.image("image")
    hanging.hang(image)
    found: list[Located] = []
    thread = threading.Thread(target=lambda: found.append(host.locator.locate(
        "file", str(image), host.stack, deadline=time.monotonic() + 10 * PATIENCE)))
    thread.start()
    until(lambda: hanging.waiting)
    host.locator.stop()
    thread.join(PATIENCE)
    assert [one.location for one in found] == [None]


def test_a_known_location_costs_no_wait(
        thread_helpers: None, tmp_path: Path, hanging: Hanging) -> None:
    host = Host(tmp_path, timeout=PATIENCE)
    image = host.image("image")
    known = host(image)
    hanging.hang(image)
    until(lambda: hanging.waiting)
    assert host.locator.locate("file", str(image), host.stack) == known
    host.locator.stop()


def test_a_path_that_vanishes_keeps_its_location(host: Host) -> None:
    image = host.image("image")
    known = host(image)
    image.rename(host.folder / "away")
    gone = host.fresh(image)
    assert gone.location == known.location
    assert "No such file" in gone.problem
    assert host.locator.missing(str(image))
    (host.folder / "away").rename(image)
    assert host.fresh(image).problem == ""
    assert not host.locator.missing(str(image))


def test_a_new_file_at_the_path_is_another_one(host: Host) -> None:
    image = host.image("image")
    known = host(image)
    host.image("new", 4).rename(image)
    found = host.fresh(image)
    assert found.location.key != known.location.key
    assert (sectors(found), found.problem) == (32, "")


def test_a_new_file_never_has_the_location_of_the_old_one(
        host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> tuple[bytes, int]:
        raise fiemap.FiemapFailed("an I/O error, as in a test")

    image = host.image("image")
    assert host(image).location
    new = host.image("new", 4)
    monkeypatch.setattr(fiemap, "read", fail)
    new.rename(image)
    assert host.fresh(image) == Located(None, "an I/O error, as in a test", unknown=True)


def test_a_device_that_is_reconfigured_keeps_the_location(host: Host) -> None:
    image = host.image("image")
    known = host(image)
    found = host.locator.locate("file", str(image), BlockStack([]))
    assert (found.location, found.unknown) == (known.location, False)
    assert "no vcache device" in found.problem


def test_extents_that_cannot_be_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> tuple[bytes, int]:
        raise reason

    reason = fiemap.FiemapError("no extents here")

    read = fiemap.read
    monkeypatch.setattr(fiemap, "read", refuse)
    monkeypatch.setattr(locate, "_EXTENTS_AGAIN_S", 0.0)
    image = host.image("image")
    assert host(image) == Located(None, "no extents here", 0.0)
    monkeypatch.setattr(fiemap, "read", read)
    until(lambda: host(image).problem == "")
    assert sectors(host(image)) == 8
    # Extents that are known remain.
    monkeypatch.setattr(fiemap, "read", refuse)
    assert sectors(host.fresh(image)) == 8
    reason = fiemap.FiemapFailed("an I/O error, as in a test")
    assert host(host.image("other")) == Located(None, str(reason), 0.0, unknown=True)


def test_what_nobody_asks_for_is_forgotten(host: Host, hanging: Hanging) -> None:
    image, other = host.image("image"), host.image("other")
    host(image), host(other)
    hanging.hang(other)
    assert host.fresh(other).problem
    for _ in range(2):
        host.locator.prune()
    paths = host.locator._paths
    assert str(image) not in paths
    assert str(other) in paths, "it still occupies a helper"
    hanging.go_on(other)
    until(lambda: paths[str(other)].answered == paths[str(other)].asked)
    host.locator.prune()
    assert not host.locator._paths
    assert not host.locator._files


class Answers:
    """A pool, and what it has answered."""

    def __init__(self, points: frozenset[str] = frozenset({"/"}), timeout: float = 0.1,
                 start: Callable[[], Helper] = ThreadHelper) -> None:
        self.known: dict[str, Answer] = {}
        self.stalled: list[str] = []
        self.pool = Pool(lambda question, answer: self.known.update({question.path: answer}),
                         lambda question: self.stalled.append(question.path), timeout, start,
                         lambda: points)
        self.pool.start()

    def ask(self, *paths: object, urgency: Urgency = Urgency.FIRST,
            extents: bool = False) -> None:
        self.pool.ask([Question(str(path), extents) for path in paths], urgency)


@contextlib.contextmanager
def answers(*arguments: Any, **options: Any) -> Iterator[Answers]:
    made = Answers(*arguments, **options)
    yield made
    made.pool.stop()


def folder_with(path: Path, count: int) -> list[Path]:
    path.mkdir()
    files = [path / str(number) for number in range(count)]
    for file in files:
        file.touch()
    return files


def test_a_file_system_that_hangs_occupies_few_helpers(
        tmp_path: Path, hanging: Hanging) -> None:
    bad, good = folder_with(tmp_path / "bad", 100), folder_with(tmp_path / "good", 100)
    for path in bad:
        hanging.hang(path)
    with answers(frozenset({"/", str(tmp_path / "bad")}), timeout=1.0) as found:
        found.ask(*bad, *good)
        until(lambda: all(str(path) in found.known for path in good))
        until(lambda: len(found.known) + len(hanging.waiting) == 200)
        assert all(found.known[str(path)].inode == path.stat().st_ino for path in good)
        assert len(hanging.waiting) <= locate_pool._HUNG_OF_MOUNT + locate_pool.READY - 1
        until(lambda: set(hanging.waiting) <= set(found.stalled))
        stuck = list(hanging.waiting)
        told = {found.known[str(path)].error for path in bad if str(path) in found.known}
        assert all("its file system does not answer" in text for text in told)
        found.known.clear()
        hanging.end()
        until(lambda: all(path in found.known for path in stuck))
        found.ask(*bad)
        until(lambda: all(path.stat().st_ino == found.known.get(str(path), Answer()).inode
                          for path in bad))


def test_of_many_that_hang_the_oldest_are_given_up(
        tmp_path: Path, hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    folders = [tmp_path / str(number) for number in range(20)]
    files = [folder_with(folder, 1)[0] for folder in folders]
    for file in files:
        hanging.hang(file)
    with answers(frozenset({"/", *map(str, folders)})) as found:
        for number, file in enumerate(files):
            found.ask(file)
            until(lambda: len(found.stalled) > number)  # noqa: B023
        # A helper that is killed ends the wait for its path.
        given_up = [str(file) for file in files[:20 - locate_pool._HUNG_MAX]]
        until(lambda: sorted(found.known) == sorted(given_up))
        assert found.known[given_up[0]].error == f"{files[0]} does not answer"
        assert f"giving up {files[0]} after" in caplog.text
        good = folder_with(tmp_path / "good", 1)[0]
        found.ask(good)
        until(lambda: found.known.get(str(good), Answer()).inode)


def test_a_helper_is_kept_for_the_hook(tmp_path: Path, hanging: Hanging) -> None:
    files = folder_with(tmp_path / "files", 10)
    for file in files[:-1]:
        hanging.hang(file)
    # None of them counts as hanging.
    with answers(timeout=PATIENCE) as found:
        for file in files[:-1]:
            found.ask(file)
        until(lambda: len(hanging.waiting) == locate_pool.READY - 1)
        found.ask(files[-1], urgency=Urgency.HOOK)
        until(lambda: str(files[-1]) in found.known)
        assert len(hanging.waiting) == locate_pool.READY - 1
        hanging.end()


def test_a_helper_loads_little() -> None:
    """Several helpers are ready on each host, and each first look waits for them."""
    program = locate_pool._PROGRAM.replace("main()", "print(*sys.modules)")
    loaded = subprocess.run(
        [sys.executable, "-IS", "-c", program, "0", str(locate_pool._CODE)], check=True,
        capture_output=True, text=True, cwd="/").stdout.split()
    ours = {name for name in loaded if name.startswith(("vcache_agent.", "nova_vcache"))}
    assert ours == {f"vcache_agent.{name}" for name in ("locate_helper", "fiemap", "inode", "runs")}
    assert not {"site", "ctypes", "dataclasses", "pathlib"} & set(loaded)


def test_progress_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extents of a fragmented file take longer than the timeout."""
    go_on = threading.Event()

    def read(_fd: int, progress: Callable[[], object]) -> tuple[bytes, int]:
        while not go_on.wait(0.05):
            progress()
        return pack([(8, 8)]).data, 16

    monkeypatch.setattr(fiemap, "read", read)
    monkeypatch.setattr("vcache_agent.locate_helper._PROGRESS_S", 0.0)
    (file,) = folder_with(tmp_path / "files", 1)
    with answers(timeout=2.0) as found:
        found.ask(file, extents=True)
        time.sleep(3.0)
        assert (found.known, found.stalled) == ({}, [])
        go_on.set()
        until(lambda: str(file) in found.known)
        answer = found.known[str(file)]
        assert (answer.extents, answer.unwritten) == ((Extent(8, 8),), 16)


def test_many_extents_take_several_messages(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extents = tuple(Extent(number * 16, 8) for number in range(10_000))
    monkeypatch.setattr(fiemap, "read", lambda *_: (pack(extents).data, 0))
    files = folder_with(tmp_path / "files", 2)
    with answers(timeout=PATIENCE) as found:
        found.ask(*files, extents=True)
        until(lambda: len(found.known) == 2)
        assert [found.known[str(file)].extents for file in files] == [extents, extents]


class Processes:
    """Real helper processes."""

    def __init__(self) -> None:
        self.started: list[ProcessHelper] = []

    def __call__(self) -> ProcessHelper:
        self.started.append(ProcessHelper())
        return self.started[-1]

    def signal(self, number: int) -> None:
        for helper in list(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper.process.pid, number)


def test_processes_that_hang_and_that_are_killed(tmp_path: Path) -> None:
    """A stopped process stands for one that hangs in the kernel."""
    processes = Processes()
    files = folder_with(tmp_path / "files", 3)
    with answers(timeout=1.0, start=processes) as found:
        found.ask(files[0])
        until(lambda: found.known.get(str(files[0]), Answer()).inode == files[0].stat().st_ino)
        assert found.known[str(files[0])].device == DeviceNumber(
            os.major(files[0].stat().st_dev), os.minor(files[0].stat().st_dev))
        until(lambda: len(processes.started) == locate_pool.READY)
        processes.signal(signal.SIGSTOP)
        found.ask(files[1])
        until(lambda: found.stalled == [str(files[1])])
        # The replacement runs, but may not be used before another is idle.
        processes.signal(signal.SIGCONT)
        until(lambda: str(files[1]) in found.known)
        processes.signal(signal.SIGKILL)
        found.known.clear()
        until(lambda: found.ask(files[2]) or found.known.get(
            str(files[2]), Answer()).inode == files[2].stat().st_ino)
    until(lambda: all(helper.process.poll() is not None for helper in processes.started))


def test_the_end_does_not_wait_for_a_path(tmp_path: Path) -> None:
    processes = Processes()
    (file,) = folder_with(tmp_path / "files", 1)
    with answers(timeout=0.2, start=processes) as found:
        until(lambda: len(processes.started) == locate_pool.READY)
        processes.signal(signal.SIGSTOP)
        found.ask(file)
        until(lambda: found.stalled)
    until(lambda: all(helper.process.poll() == -signal.SIGKILL for helper in processes.started))


def test_a_process_that_ends_at_once_is_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcache_agent.locate_pool.sys.executable", "/bin/false")
    with pytest.raises(OSError, match="ended with status 1"):
        ProcessHelper()


def test_a_helper_that_cannot_be_started_is_tried_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate_pool, "_START_AGAIN", 0.01)
    attempts: list[int] = []

    def start() -> Helper:
        attempts.append(1)
        if len(attempts) < 10:
            raise OSError("no memory, as in a test")
        return ThreadHelper()

    (file,) = folder_with(tmp_path / "files", 1)
    with answers(timeout=PATIENCE, start=start) as found:
        found.ask(file)
        until(lambda: str(file) in found.known)
    assert len(attempts) >= 10


def test_the_mount_of_a_path(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        r"30 22 0:40 / /srv/nfs\040share rw,relatime shared:1 - nfs4 host:/x rw" "\n"
        "31 22 0:41 / /srv rw - tmpfs tmpfs rw\n")
    points = mounts.points(table)
    assert points == {"/", "/srv", "/srv/nfs share"}
    for path, mount in (("/srv/nfs share/a/b", "/srv/nfs share"), ("/srv/nfs", "/srv"),
                        ("/srvx/a", "/"), ("/srv/../etc/x", "/"), ("/", "/"), ("x", "/")):
        assert mounts.point_of(path, points) == mount
    assert mounts.points(tmp_path / "none") == {"/"}
    assert "/proc" in mounts.points()
