# SPDX-License-Identifier: Apache-2.0
"""Boot a Debian kernel over a copy-on-write view of this root, run a command."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.box import kernels, pulse
from tests.box.machine import (
    REPO,
    BoxError,
    BoxNotBooted,
    BoxTimeout,
    Disk,
    KernelSplat,
    Machine,
    Result,
)

__all__ = ["REPO", "Box", "BoxError", "BoxNotBooted", "BoxTimeout", "Disk", "KernelSplat",
           "Result"]

# Seconds a box may need to boot. 20 to 40 are usual under TCG; a machine that
# others use as well has taken more than 180, and a box that hangs is told from
# a slow one by nothing but time.
_BOOT_SECONDS = 600
_DEBUG_BOOT_SECONDS = 1200

# Drivers of what the emulated machine has and no box uses. Under TCG udev takes
# half a minute or more of the boot to load them. Nested VMs are emulated, too.
_UNUSED_DRIVERS = (
    "ahci", "aesni_intel", "button", "ccp", "cryptd", "evdev", "ghash_clmulni_intel",
    "i2c_i801", "i6300esb", "iTCO_wdt", "kvm", "kvm_amd", "kvm_intel", "lpc_ich", "pcspkr",
    "psmouse", "qemu_fw_cfg", "serio_raw", "sha1_ssse3", "sha256_ssse3", "sha512_ssse3")


@dataclass
class Box(Machine):
    """One kind of box; each :meth:`run` boots it anew.

    The parameters that it shares with other machines are described there.

    :param kernel: kernel release or its beginning; the newest match is booted
        (default: $VCACHE_KERNEL, else 6.1)
    :param cpus: processors; two of them wait for one another where the machine has not as many
        to spare, so one is better where nothing needs two
    :param icount: QEMU's clock counts instructions, 1 ns each (one CPU, TCG)
    :param icount_sleep: with icount, time in which the CPU idles passes at its
        real pace instead of being skipped; needed where the box waits for what
        the clock knows nothing of, such as many files over 9p or nested VMs
    :param network: user-mode network; the host's loopback is then 10.0.2.2
    :param netdevs: network devices, as QEMU's -netdev takes them but for their id; the box
        finds them in that order, without addresses
    """

    kernel: str = field(default_factory=kernels.default)
    cpus: int = 2
    icount: bool = False
    icount_sleep: bool = False
    network: bool = False
    netdevs: Sequence[str] = ()

    def select(self) -> str:
        """Return the release of the kernel to boot."""
        return kernels.select(self.kernel)

    def uses_kvm(self) -> bool:
        """Tell whether runs of this box use KVM."""
        release = kernels.select(self.kernel)
        return not self.icount and kernels.kvm_works(kernels.image(release))

    def _has_pulse(self) -> bool:
        """Tell whether the box can stand still, see :mod:`tests.box.pulse`.

        In virtual time the timers run in the processor's own thread, and a pulse would
        make that time another in each run.
        """
        return not self.icount and not self.uses_kvm()

    def _start(self, release: str, state: Path, log: BinaryIO, stdout: int,
               stderr: int) -> subprocess.Popen[bytes]:
        if self._has_pulse():
            os.mkfifo(state / "pulse")
        # TMPDIR: virtme-run leaves its own small files there when it is killed.
        return subprocess.Popen(
            self._virtme_run(release, state, stderr), stdin=subprocess.DEVNULL,
            stdout=stdout, stderr=log, pass_fds=(stderr,), start_new_session=True,
            env={**os.environ, "TMPDIR": str(state), **kernels.qemu_environment()})

    def _boot_seconds(self, release: str) -> float:
        return _DEBUG_BOOT_SECONDS if release.endswith(kernels.DEBUG) else _BOOT_SECONDS

    def _beside(self, state: Path) -> contextlib.AbstractContextManager[None]:
        if self._has_pulse():
            return pulse.beating(state / "pulse")
        return contextlib.nullcontext()

    def _virtme_run(self, release: str, state: Path, stderr: int) -> list[str]:
        """Return the virtme-run command line.

        :param stderr: descriptor that takes the command's errors
        """
        tool = Path(sys.executable).with_name("virtme-run")
        found = str(tool) if tool.exists() else shutil.which("virtme-run")
        if found is None:
            raise BoxError(f"virtme-run is neither beside {sys.executable} nor on "
                           "PATH (pip install virtme-ng)")
        overlays = ["/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var", "/tmp"]
        if not any(self.cwd.is_relative_to(folder) for folder in overlays):
            overlays.append(str(self.cwd))
        line = [
            found, "--kimg", str(kernels.image(release)), "--mods", "auto",
            "--force-9p", "--disable-monitor", "--show-boot-console", "--name", "box",
            "--memory", self.memory, "--cpus", str(1 if self.icount else self.cpus),
            "--qemu-bin", kernels.qemu(), "--script-sh", "sh /run/box/io/enter.sh /run/box/io",
            "--rwdir", f"/run/box/io={state / 'io'}"]
        for overlay in overlays:
            line += ["--overlay-rwdir", overlay]
        for number, folder in enumerate(self.rw):
            line += ["--rwdir", f"/run/box/rw{number}={Path(folder).resolve()}"]
        if not self.uses_kvm():
            line += ["--disable-kvm"]
        if self.network:
            line += ["--net", "user", "--no-dhcp"]
        # loglevel=5: warnings and worse, so that every fault is in the log and
        # boot messages do not cost time on an emulated serial port. A stall or
        # hang is judged by the box's own time limit, not by watchdogs that a
        # busy host under TCG sets off.
        # no_timer_check: the boot panics if the timer does not interrupt in the 10 ms of a
        # check, and a QEMU that does not run meanwhile does not interrupt.
        for option in ("loglevel=5", "oops=panic", "nowatchdog", "no_timer_check",
                       "rcupdate.rcu_cpu_stall_timeout=300",
                       f"modprobe.blacklist={','.join(_UNUSED_DRIVERS)}",
                       *self.kernel_args):
            line += ["--kopt", option]
        if self.icount:
            # It tests its ciphers as it boots, which this mode can make fail.
            line += ["--kopt", "cryptomgr.notests"]
        return [*line, "--qemu-opts", *self._qemu_options(release, state, stderr)]

    def _qemu_options(self, release: str, state: Path, stderr: int) -> list[str]:
        # virtme-run sends the kernel's console to its own standard error, so
        # the command's errors get a port of their own.
        # -nodefaults: there is nothing in the CD drive that QEMU adds otherwise,
        # and the firmware of QEMU 10 waits half a minute for it.
        options = [
            "-nodefaults",
            "-chardev", f"file,id=boxerr,path=/proc/self/fd/{stderr}",
            "-device", "virtio-serial-pci",
            "-device", "virtserialport,name=box.stderr,chardev=boxerr"]
        if not self.uses_kvm() and (kernel := kernels.unpacked(kernels.image(release))):
            # The last one counts. virtme-run gets the packed one, from which it takes the release.
            options += ["-kernel", str(kernel)]
        if self._has_pulse():
            options += pulse.qemu_options(state / "pulse")
        if self.icount:
            sleep = "on" if self.icount_sleep else "off"
            options += ["-icount", f"shift=0,sleep={sleep}"]
        for number, netdev in enumerate(self.netdevs):
            options += ["-netdev", f"{netdev},id=boxnet{number}",
                        "-device", f"virtio-net-pci,netdev=boxnet{number},romfile="]
        for number, disk in enumerate(self.disks):
            # QEMU's options double a comma that is part of a value.
            file = str(disk.path.resolve()).replace(",", ",,")
            readonly = "on" if disk.readonly else "off"
            options += [
                "-drive", f"if=none,id=boxdisk{number},format=raw,file={file},"
                          f"readonly={readonly}",
                "-device", f"virtio-blk-pci,drive=boxdisk{number},serial={disk.name}"]
        return options
