# SPDX-License-Identifier: Apache-2.0
"""In the box: our emulated SSD, with Linux's own NVMe/TCP host connected to it.

``build()`` belongs before the boot, on the machine; the rest runs inside.
"""

import contextlib
import itertools
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.box.inside import InsideError, run, stop
from tests.box.limits import Deadline
from tests.box.steps import at_end, on_error, step

REPO = Path(__file__).resolve().parents[2]
PROGRAM = REPO / "build" / "firmware" / "vcache-ssd"
# Followed by a number: Linux takes drives of one name for paths to one drive.
_NQN = "nqn.2026-01.org.example:box"
_numbers = itertools.count()
_CONTROLLERS = Path("/sys/class/nvme")

# Longest that the program may take to start, or a device to appear; limits.py adapts it.
_SECONDS = 60


def build() -> None:
    """Make the program; its make target knows whether that is needed."""
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(REPO))], cwd=REPO, check=True)


def _opens(path: str) -> bool:
    """Tell whether a device can be used: its node is there some time before that."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


class Ssd:
    """A running vcache-ssd and its namespaces.

    :param options: of vcache-ssd
    :param reconnect: seconds after which the host tries again to reach a drive that has gone
    """

    def __init__(self, options: Sequence[str], reconnect: int = 1) -> None:
        self._options = [str(option) for option in options]
        self._port = 0
        self._nqn = f"{_NQN}{next(_numbers)}"
        self._start()
        with on_error(stop, self._process, "vcache-ssd"), step("connecting Linux's NVMe host"):
            self._connect(reconnect)

    def _connect(self, reconnect: int) -> None:
        """Have Linux's host connect."""
        before = set(_CONTROLLERS.glob("nvme*"))
        fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
        try:
            os.write(fabrics, (
                f"transport=tcp,traddr=127.0.0.1,trsvcid={self._port},nqn={self._nqn},"
                f"reconnect_delay={reconnect},ctrl_loss_tmo=600,keep_alive_tmo=30").encode())
        finally:
            os.close(fabrics)
        self._controller = (set(_CONTROLLERS.glob("nvme*")) - before).pop()

    def namespace(self, nsid: int = 1) -> str:
        """Return the path of a namespace, once it is there."""
        name = f"{self._controller.name}n{nsid}"
        self._wait(lambda: _opens(f"/dev/{name}"), f"namespace {name}")
        return f"/dev/{name}"

    def _wait(self, what: object, name: str) -> None:
        deadline = Deadline(_SECONDS)
        while not what():  # type: ignore[operator]
            if self._process.poll() is not None:
                raise InsideError(f"{name}: vcache-ssd ended with status "
                                  f"{self._process.returncode}")
            if deadline.passed():
                raise InsideError(f"{name} is not there after {deadline}")
            time.sleep(0.05)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [PROGRAM, "--listen", f"127.0.0.1:{self._port}", "--nqn", self._nqn, *self._options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with on_error(stop, self._process, "vcache-ssd"):
            said = self._first_line()
            if len(said.split()) != 4:
                raise InsideError(f"vcache-ssd did not start: it printed {said!r}")
        self._port = int(said.split()[3].rpartition(":")[2])

    def _first_line(self) -> str:
        """Return the first line that the program prints, or what there is of it in time."""
        assert self._process.stdout
        said = b""
        deadline = Deadline(_SECONDS)
        while not said.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], deadline.left())[0]:
                if deadline.passed():
                    break
                continue
            more = os.read(self._process.stdout.fileno(), 4096)
            if not more:
                break
            said += more
        return said.decode(errors="replace")

    def model(self) -> str:
        """Return what the drive calls itself."""
        return (self._controller / "model").read_text().strip()

    def cut_power(self) -> None:
        """End the drive at once; what it had not made durable is lost."""
        self._process.kill()
        self._process.wait()

    def power_on(self, *more: str) -> None:
        """Start it again, with some more options from now on, and wait for the host."""
        self._options += more
        self._start()
        self.wait_live()

    def wait_live(self) -> None:
        """Wait until the host is connected."""
        self._wait(lambda: (self._controller / "state").read_text().strip() == "live",
                   "the controller")

    def pause(self) -> None:
        """Let the drive answer nothing for now."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Disconnect the host and end the drive."""
        with at_end(stop, self._process, "vcache-ssd"):
            # One that an error has left paused would not answer.
            self.resume()
            with contextlib.suppress(FileNotFoundError):
                (self._controller / "delete_controller").write_text("1")


@contextlib.contextmanager
def ssd(*options: str) -> Iterator[Ssd]:
    """Start a drive and connect to it."""
    run("ip", "link", "set", "lo", "up")
    run("modprobe", "nvme-tcp")
    drive = Ssd(options)
    with at_end(drive.close):
        yield drive


def image_folder() -> Path:
    """Return a new folder in memory for images."""
    folder = Path(f"/dev/shm/ssd-{os.getpid()}-{time.monotonic_ns()}")  # noqa: S108 - in the box
    folder.mkdir()
    return folder
