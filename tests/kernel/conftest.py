# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the module, and checks after every test."""

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box import console, inside
from tests.box.steps import at_end, each
from tests.kernel import debug, dm, stack
from tests.kernel.disk import Disk
from vcache_agent.netlink.client import Client, EventListener

# Tests that need fault injection: Debian's kernels do not have it.
collect_ignore = [] if debug.FAILSLAB.exists() else ["test_faults.py"]


class KernelLog:
    """The kernel's log from the creation of this object on."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)
        self.text = ""

    def read(self) -> str:
        """Return the log since the test began."""
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return self.text
            except BrokenPipeError:
                continue  # records were overwritten before we read them
            self.text += record.partition(";")[2].splitlines()[0] + "\n"

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def pytest_sessionstart() -> None:
    """Refuse to run on the host itself."""
    if not os.environ.get("VCACHE_BOX"):
        pytest.exit("the kernel tests run in the box: python -m tests.kernel", returncode=2)


@pytest.fixture(scope="session", autouse=True)
def _module() -> Iterator[None]:
    module = os.environ.get("VCACHE_MODULE")
    # See mutations.py.
    inside.load_module(path=Path(module) if module else None)
    # Without nr_devices=0, the default creates an unneeded disk.
    stack.run("modprobe", "null_blk", "nr_devices=0")
    for name in ("dm-log-writes", "dm-flakey", "dm-delay", "loop"):
        stack.run("modprobe", name)
    with at_end(debug.save_counts), at_end(_unload):
        yield
        lost = debug.leaks(all_ages=True)
        assert not lost, lost


def _unload() -> None:
    if Path("/sys/module/dm_vcache").exists():
        inside.unload_module()


@pytest.fixture(autouse=True)
def kmsg() -> Iterator[KernelLog]:
    """Provide the kernel's log.

    Fail the test if the log contains a fault, if a device remains, or if memory is lost.
    """
    log = KernelLog()
    yield log
    splat = console.find_splat(log.read())
    log.close()
    assert not splat, splat
    assert dm.names() == []
    users = Path("/sys/module/dm_vcache/refcnt")
    assert not users.exists() or users.read_text().strip() == "0"
    lost = debug.leaks()
    assert not lost, lost


@pytest.fixture
def client() -> Iterator[Client]:
    """Give a netlink client."""
    with Client() as connection:
        yield connection


@pytest.fixture
def events() -> Iterator[EventListener]:
    """Give a listener for the family's events."""
    with EventListener() as listener:
        yield listener


@pytest.fixture(scope="session")
def _disk() -> Iterator[str]:
    with stack.null_blk(discard=True) as path:
        yield path


@pytest.fixture
def origin(_disk: str) -> str:
    """Provide an empty disk of 64 MiB with a volatile cache, FUA and discard."""
    with Disk(_disk) as disk:
        disk.discard(0, stack.sectors(_disk))
    return _disk


class Cgroup:
    """A cgroup for a test.

    :param path: its directory
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.stat().st_ino

    def child(self, name: str) -> "Cgroup":
        """Create a cgroup below this one."""
        path = self.path / name
        path.mkdir()
        return Cgroup(path)

    def run(self, work: Callable[[], None]) -> None:
        """Call `work` in a process of this cgroup; raise its OSError here."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                (self.path / "cgroup.procs").write_text(str(os.getpid()))
                work()
                status = 0
            except OSError as error:
                os.write(writer, str(error.errno).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writer)
        code = os.read(reader, 16)
        os.close(reader)
        _, status = os.waitpid(child, 0)
        if code:
            raise OSError(int(code), os.strerror(int(code)))
        assert status == 0, f"a process in {self.path} ended with status {status}"

    def remove(self) -> None:
        """Remove it and the cgroups below it."""
        for path in sorted(self.path.rglob("*/"), reverse=True):
            if path.is_dir():
                path.rmdir()
        self.path.rmdir()


@pytest.fixture
def cgroup() -> Iterator[Callable[[str], Cgroup]]:
    """Provide a function that creates cgroups; all are removed at the end."""
    made: list[Cgroup] = []

    def make(name: str) -> Cgroup:
        path = Path("/sys/fs/cgroup") / stack.unique(f"test-{name}-")
        path.mkdir()
        made.append(Cgroup(path))
        return made[-1]

    yield make
    each(Cgroup.remove, made)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: a later fault may end the box."""
    if report.failed:
        print(f"\n{report.longreprtext}", flush=True)
