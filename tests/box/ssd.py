# SPDX-License-Identifier: Apache-2.0
"""In the box: our emulated SSD, with Linux's own NVMe/TCP host connected to it.

``build()`` belongs before the boot, on the machine; the rest runs inside.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.box.inside import InsideError, run

REPO = Path(__file__).resolve().parents[2]
PROGRAM = REPO / "build" / "firmware" / "vcache-ssd"
NQN = "nqn.2026-01.org.example:box"
_CONTROLLERS = Path("/sys/class/nvme")
_SECONDS = 30


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
        self._start()
        before = set(_CONTROLLERS.glob("nvme*"))
        fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
        try:
            os.write(fabrics, f"transport=tcp,traddr=127.0.0.1,trsvcid={self._port},nqn={NQN},"
                     f"reconnect_delay={reconnect},ctrl_loss_tmo=600,keep_alive_tmo=30".encode())
        finally:
            os.close(fabrics)
        self._controller = (set(_CONTROLLERS.glob("nvme*")) - before).pop()

    def namespace(self, nsid: int = 1) -> str:
        """Return the path of a namespace, once it is there."""
        name = f"{self._controller.name}n{nsid}"
        self._wait(lambda: _opens(f"/dev/{name}"), f"namespace {name}")
        return f"/dev/{name}"

    def _wait(self, what: object, name: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not what():  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise InsideError(f"{name} is not there after {_SECONDS} s")
            time.sleep(0.05)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [PROGRAM, "--listen", f"127.0.0.1:{self._port}", "--nqn", NQN, *self._options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        said = self._process.stdout.readline().split()
        if len(said) != 4:
            raise InsideError("vcache-ssd did not start")
        self._port = int(said[3].rpartition(":")[2])

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
        with contextlib.suppress(FileNotFoundError):
            (self._controller / "delete_controller").write_text("1")
        self._process.terminate()
        self._process.wait(_SECONDS)


@contextlib.contextmanager
def ssd(*options: str) -> Iterator[Ssd]:
    """Start a drive and connect to it."""
    run("ip", "link", "set", "lo", "up")
    run("modprobe", "nvme-tcp")
    drive = Ssd(options)
    try:
        yield drive
    finally:
        drive.close()


def image_folder() -> Path:
    """Return a new folder in memory for images."""
    folder = Path(f"/dev/shm/ssd-{os.getpid()}-{time.monotonic_ns()}")  # noqa: S108 - in the box
    folder.mkdir()
    return folder
