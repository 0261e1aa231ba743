# SPDX-License-Identifier: Apache-2.0
"""Domains with the small guest (tests/box/guest), whose load generator can be told what to do."""

import contextlib
import json
import os
import termios
import time
import tty
import uuid
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import libvirt

from tests.box.guest.image import CMDLINE
from tests.box.inside import REPO, domain_type, run
from tests.box.limits import Deadline
from tests.host import lab

_REPLY = "@vload "
_XML = """<domain type="{type}">
  <uuid>{uuid}</uuid><name>{name}</name><memory unit="MiB">96</memory><vcpu>1</vcpu>
  <metadata><nova:instance xmlns:nova="{nova}"><nova:name>{name}</nova:name>
    <nova:flavor name="test" id="1"><nova:memory>96</nova:memory>
      <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor></nova:instance></metadata>
  <os><type arch="x86_64" machine="pc">hvm</type>
    <kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{cmdline}</cmdline></os>
  <features><acpi/></features>
  <devices>
    <disk type="{kind}" device="disk"><driver name="qemu" type="{format}" cache="none"/>
      <source {attribute}={path}/><target dev="vda" bus="virtio"/></disk>
    <serial type="pty"><log file={log} append="on"/></serial>
    <controller type="usb" index="0" model="none"/><memballoon model="none"/></devices>
</domain>"""


def _log(name: str) -> Path:
    return Path(f"/run/{name}.console")


def _text(name: str) -> str:
    return _log(name).read_text(errors="replace") if _log(name).exists() else ""


class Vm:
    """The domains of one host."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        # Process ID of QEMU, and the descriptor.
        self._consoles: dict[str, tuple[int | None, int]] = {}

    def start(self, name: str, path: Path, specs: dict[str, str], layout: str = "raw") -> None:
        """Start a domain, and wait until its guest answers.

        :param layout: format of its disk
        """
        with lab.connection() as host:
            host.defineXML(self._xml(name, path, specs, layout)).create()
        self.reply(name)

    def _xml(self, name: str, path: Path, specs: dict[str, str], layout: str) -> str:
        (guest,) = (REPO / "build" / "guest").glob("*/initrd*")
        kernel = guest.parent / "vmlinux"
        found = "".join(
            f'<nova:extraSpec name={quoteattr(f"vcache:{key}")}>{escape(value)}</nova:extraSpec>'
            for key, value in specs.items())
        kind, attribute = ("block", "dev") if path.is_block_device() else ("file", "file")
        return _XML.format(
            type=domain_type(), uuid=uuid.uuid5(uuid.NAMESPACE_URL, name), name=name, nova=lab.NOVA,
            specs=found, kernel=kernel, initrd=guest, cmdline=escape(CMDLINE), kind=kind,
            attribute=attribute, format=layout, path=quoteattr(str(path)),
            log=quoteattr(str(_log(name))))

    def send(self, name: str, command: str) -> None:
        """Send a command to the load generator."""
        os.write(self._console(name), command.encode() + b"\n")

    def _console(self, name: str) -> int:
        """Return the descriptor of a domain's console, which stays open: QEMU drops what it has
        not read when the console closes.
        """
        pid = self.pid(name)
        known, console = self._consoles.get(name, (None, -1))
        if known is None or known != pid:  # it is another one after a migration
            self._close(name)
            console = os.open(run("virsh", "-q", "ttyconsole", name).strip(),
                              os.O_RDWR | os.O_NOCTTY)
            with contextlib.suppress(termios.error):
                tty.setraw(console)
            self._consoles[name] = (pid, console)
            time.sleep(1.5)  # QEMU looks once a second whether somebody has opened the console
        return console

    def _close(self, name: str) -> None:
        _, console = self._consoles.pop(name, (None, -1))
        if console >= 0:
            os.close(console)

    def reply(self, name: str) -> dict[str, Any]:
        """Return the next reply on this host.

        :raises AssertionError: if there is none in time, or it is an error
        """
        deadline = Deadline(lab.PATIENCE)
        while (found := self.poll(name)) is None:
            assert not deadline.passed(), f"{name}: no reply; its console: {_text(name)[-500:]!r}"
            time.sleep(0.2)
        return found

    def poll(self, name: str) -> dict[str, Any] | None:
        """Return the next reply on this host, if it is there already.

        :raises AssertionError: if it is an error
        """
        *lines, _ = _text(name)[self._read.get(name, 0):].split("\n")
        for line in lines:
            self._read[name] = self._read.get(name, 0) + len(line) + 1
            if _REPLY in line:
                found: dict[str, Any] = json.loads(line.partition(_REPLY)[2])
                assert "error" not in found, found
                return found
        return None

    def pid(self, name: str) -> int | None:
        """Return the process ID of its QEMU; None: there is none."""
        try:
            return int((Path("/run/libvirt/qemu") / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return None

    def end(self, name: str) -> None:
        """Stop and undefine a domain, in any state."""
        with lab.connection() as host, contextlib.suppress(libvirt.libvirtError):
            domain = host.lookupByName(name)
            for step in (domain.destroy, domain.undefine):
                with contextlib.suppress(libvirt.libvirtError):
                    step()
        self._close(name)
        _log(name).unlink(missing_ok=True)
        self._read.pop(name, None)
