# SPDX-License-Identifier: Apache-2.0
"""A root file system that QEMU boots, and that executes commands of this machine."""

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.box import kernels
from tests.box.limits import Deadline

#: Seconds after which a boot, or a command, hangs. A busy machine emulates slowly.
LIMIT_S = 3600.0


def disk(number: int, name: str, path: Path) -> list[str]:
    """Return the options of a disk, /dev/disk/by-id/virtio-NAME."""
    return ["-drive", f"if=none,id=d{number},format=raw,cache=writeback,file={path}",
            "-device", f"virtio-blk-pci,drive=d{number},serial={name}"]


def qemu(folder: Path, log: Path, *, memory_mib: int = 1536, words: str = "") -> list[str]:
    """Return QEMU's command line for the root in a folder, which roots.build() has made.

    :param log: takes the console
    :param words: further words of the kernel's command line
    """
    return [kernels.qemu(), "-nodefaults", "-display", "none", "-no-reboot", "-machine", "pc",
            "-m", str(memory_mib), "-smp", "2", "-accel", "tcg,thread=multi",
            "-serial", f"file:{log}",
            "-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img"),
            "-append", "root=/dev/vda rw console=ttyS0 panic=-1 systemd.show_status=1 "
                       f"no_timer_check mitigations=off {words}".strip(),
            *disk(0, "root", folder / "disk.img")]


def start(line: list[str]) -> subprocess.Popen[bytes]:
    """Start QEMU."""
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True,
                            env=kernels.qemu_environment() or None)


class Machine:
    """A boot of a root with shell.py, until it ends.

    :param line: QEMU's command line
    :param folder: folder for its socket
    """

    def __init__(self, line: list[str], folder: Path) -> None:
        self._socket = folder / "shell"
        self._socket.unlink(missing_ok=True)
        self._qemu = start([
            *line, "-chardev", f"socket,id=shell,path={self._socket},server=on,wait=off",
            "-device", "virtio-serial-pci", "-device", "virtserialport,name=vtest,chardev=shell"])
        self._stream: socket.socket | None = None
        self._rest = b""

    def _connect(self) -> socket.socket:
        deadline = Deadline(60)
        while self._stream is None:
            assert self._qemu.poll() is None, "QEMU has ended"
            stream = socket.socket(socket.AF_UNIX)
            try:
                stream.connect(str(self._socket))
            except OSError:
                stream.close()
                assert not deadline.passed(), f"{self._socket} does not exist"
                time.sleep(0.2)
                continue
            stream.settimeout(LIMIT_S)
            self._stream = stream
        return self._stream

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        stream = self._connect()
        stream.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._rest:
            more = stream.recv(65536)
            assert more, f"the host ended during {request}"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def status(self, command: str) -> tuple[int, str]:
        """Run a command of bash as root; return its status and its output with its errors.

        The first command waits until the root has booted.
        """
        answer = self._ask({"run": command})
        return int(answer["status"]), str(answer["out"])

    def run(self, command: str) -> str:
        """Run a command; return its output.

        :raises AssertionError: if it fails
        """
        status, out = self.status(command)
        assert status == 0, f"{command}: exit status {status}: {out[-3000:]}"
        return out

    def write(self, path: str, text: str, mode: int = 0o644, group: str = "root") -> None:
        """Write a file of root's."""
        answer = self._ask({"write": path, "text": text, "mode": mode, "group": group})
        assert answer["status"] == 0, f"{path}: {answer['out']}"

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._qemu.poll() is None

    def await_end(self) -> None:
        """Wait until a restart, at which QEMU ends."""
        self._qemu.wait(LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """Cut the power."""
        self._qemu.kill()
        self._qemu.wait()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
