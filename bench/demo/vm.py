# SPDX-License-Identifier: Apache-2.0
"""Instances of the demo: domain XML as nova 34 writes it, and their console."""

import contextlib
import json
import os
import select
import shutil
import string
import termios
import time
import tty
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tests.box.guest.image import Guest
from tests.box.inside import InsideError, run

INSTANCES = Path("/var/lib/nova/instances")
_TEMPLATE = Path(__file__).with_name("domain.xml.in")
_REPLY = b"@vload "
_BOOT_SECONDS = 120

# Ids in the XML are made from names, so that two runs have the same ones.
_NAMESPACE = uuid.UUID("6e6f7661-7663-4163-8865-64656d6f0000")


@dataclass
class Instance:
    """One instance on this host.

    :param number: number in the domain's name, as nova counts them
    :param role: its name for people
    :param extra_specs: extra specs of its flavor
    :param data: folder of a second disk, on another file system; None: there is none
    """

    number: int
    role: str
    extra_specs: dict[str, str]
    data: Path | None = None
    uuid: str = field(init=False)
    _pty: int | None = field(default=None, init=False)
    _pending: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self.uuid = str(uuid.uuid5(_NAMESPACE, self.role))

    @property
    def name(self) -> str:
        """Name of the libvirt domain."""
        return f"instance-{self.number:08x}"

    @property
    def folder(self) -> Path:
        """Where nova keeps the instance's files."""
        return INSTANCES / self.uuid

    @property
    def disk(self) -> Path:
        """The root disk."""
        return self.folder / "disk"

    @property
    def disks(self) -> dict[str, Path]:
        """All disks by their names in the guest."""
        found = {"vda": self.disk}
        if self.data is not None:
            found["vdb"] = self.data / f"{self.uuid}.disk"
        return found

    def create_disk(self, size_mb: int, name: str = "vda") -> None:
        """Write a disk as nova does for images_type=raw: the image's data."""
        path = self.disks[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        run("fallocate", "-l", f"{size_mb}M", str(path))
        run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size_mb}",
            "oflag=direct", "conv=notrunc,fsync")

    def domain_xml(self, guest: Guest, memory_mb: int, domain_type: str) -> str:
        """Return the domain as nova 34 defines it."""
        specs = "\n".join(
            f"          <nova:extraSpec name={quoteattr(key)}>{escape(value)}</nova:extraSpec>"
            for key, value in self.extra_specs.items())
        values = {
            "domain_type": domain_type,
            "uuid": self.uuid,
            "name": self.name,
            "display_name": self.role,
            "memory_kib": memory_mb * 1024,
            "memory_mb": memory_mb,
            "creation_time": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
            "flavor_name": f"vcache.{self.role}",
            "flavor_id": uuid.uuid5(_NAMESPACE, f"flavor {self.role}"),
            "image_id": uuid.uuid5(_NAMESPACE, "image"),
            "user_id": uuid.uuid5(_NAMESPACE, "user").hex,
            "project_id": uuid.uuid5(_NAMESPACE, f"project {self.role}").hex,
            "kernel": guest.kernel,
            "initrd": guest.initrd,
            "cmdline": guest.cmdline,
            "console_log": self.folder / "console.log",
        }
        disks = "\n".join(
            f'''    <disk type="file" device="disk">
      <driver name="qemu" type="raw" cache="none" io="native"/>
      <source file={quoteattr(str(path))}/>
      <target dev="{name}" bus="virtio"/>
    </disk>''' for name, path in self.disks.items())
        filled = {key: escape(str(value)) for key, value in values.items()}
        # Nova's default for virt_type=qemu is no mode.
        filled["cpu_mode"] = "" if domain_type == "qemu" else ' mode="host-passthrough"'
        return string.Template(_TEMPLATE.read_text()).substitute(filled, extra_specs=specs,
                                                                      disks=disks)

    def start(self, guest: Guest, memory_mb: int, domain_type: str) -> None:
        """Define and start the domain, as nova's driver does."""
        xml = Path("/run") / f"{self.name}.xml"
        xml.write_text(self.domain_xml(guest, memory_mb, domain_type))
        run("virsh", "-q", "define", str(xml))
        run("virsh", "-q", "start", self.name)
        self._open_console()

    def wait_ready(self) -> None:
        """Wait until the load generator answers."""
        self.receive(_BOOT_SECONDS)

    def stop(self) -> None:
        """Destroy and undefine the domain; its files stay."""
        if self._pty is not None:
            os.close(self._pty)
            self._pty = None
        self._pending = b""
        if self.name in run("virsh", "-q", "list", "--name").split():
            run("virsh", "-q", "destroy", self.name)
        if self.name in run("virsh", "-q", "list", "--all", "--name").split():
            run("virsh", "-q", "undefine", self.name)

    def _open_console(self) -> None:
        path = run("virsh", "-q", "ttyconsole", self.name).strip()
        self._pty = os.open(path, os.O_RDWR | os.O_NOCTTY)
        with contextlib.suppress(termios.error):
            tty.setraw(self._pty)

    def send(self, command: str, **options: object) -> None:
        """Send a command to the load generator."""
        assert self._pty is not None
        words = [command, *(f"{name}={value}" for name, value in options.items())]
        os.write(self._pty, " ".join(words).encode() + b"\n")

    def receive(self, timeout: float) -> dict[str, Any]:
        """Return the next reply of the load generator.

        :raises InsideError: if it reports an error or is silent for `timeout` s
        """
        limit = time.monotonic() + timeout
        while (reply := self._take()) is None:
            if not self._more(max(0.0, limit - time.monotonic())):
                raise InsideError(f"{self.role}: no answer within {timeout:g} s; console: "
                                  f"{self._pending[-500:]!r}")
        return reply

    def poll(self) -> dict[str, Any] | None:
        """Return the next reply of the load generator if it is there already.

        :raises InsideError: if it reports an error
        """
        while (reply := self._take()) is None and self._more(0.0):
            pass
        return reply

    def _more(self, timeout: float) -> bool:
        """Read from the console; return whether there was something in time."""
        assert self._pty is not None
        if not select.select([self._pty], [], [], timeout)[0]:
            return False
        self._pending += os.read(self._pty, 65536)
        return True

    def _take(self) -> dict[str, Any] | None:
        """Take the next reply out of what was read."""
        *lines, self._pending = self._pending.split(b"\n")
        for number, line in enumerate(lines):
            if _REPLY in line:
                self._pending = b"\n".join([*lines[number + 1:], self._pending])
                return self._parse(line.partition(_REPLY)[2])
        return None

    def console_tail(self) -> str:
        """Return the end of what the guest has written on its console."""
        return (self.folder / "console.log").read_text(errors="replace")[-2000:]

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = json.loads(text)
        except ValueError:
            raise InsideError(f"{self.role}: answered {text!r}") from None
        if "error" in reply:
            raise InsideError(f"{self.role}: {reply['error']}")
        return reply


def place_guest(guest: Guest) -> Guest:
    """Copy the guest's kernel into memory, where QEMU reads it faster than by 9p."""
    folder = Path("/run/guest")
    folder.mkdir(exist_ok=True)
    return Guest(Path(shutil.copy(guest.kernel, folder)),
                 Path(shutil.copy(guest.initrd, folder)), guest.cmdline)
