# SPDX-License-Identifier: Apache-2.0
"""Restart a host with pools and attached devices in all ways: python -m tests.reboot [ROOT...].

Writes build/test/reboot.json: {"roots": {"debian12": {"boots": n, "lost": 0, "failed": 0}, ...}}.
"""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.box.steps import at_end
from tests.reboot import machine, report, roots

# Seconds for which the guest writes until the power is cut.
CUT_S = 15.0

#: When the cache device is plugged in: when the console has this text.
PLUG = {"late": "Starting .*vcache-pool@fast", "later": "VTEST plug"}
#: Name, when the cache device is there, and words for the guest, in this order. With "hold" the
#: host cuts the power.
STEPS = (
    ("set up, restart", "cache", "setup,fill,reboot"),
    ("restart", "cache", "verify,cached,units,fill,reboot"),
    ("restart by force", "cache", "verify,cached,units,fill,force"),
    ("power cut", "cache", "verify,cached,units,fill,hold"),
    ("after the power cut", "cache", "verify,cached,units,fill,drain,reboot"),
    ("clean cache is missing", "", "verify,plain,warned,fill,reboot"),
    ("cache is back", "cache", "verify,cached,fill,reboot"),
    ("cache appears late", "late", "late,verify,cached,units,fill,hold"),
    ("dirty cache is missing, and appears later", "later",
     "unmounted,plug,late,verify,cached,units,fill,force"),
    ("upgrade", "cache", "verify,cached,units,upgrade,verify,cached,units,fill,reboot"),
    ("remove", "cache", "verify,cached,units,purge,poweroff"),
)


def _qemu(folder: Path, disks: str, words: str, log: Path) -> subprocess.Popen[bytes]:
    (folder / "monitor").unlink(missing_ok=True)
    line = [*machine.qemu(folder, log, words=f"vtest={words}"),
            "-monitor", f"unix:{folder / 'monitor'},server,nowait",
            *machine.disk(1, "origin", folder / "origin.img")]
    if disks == "cache":
        line += machine.disk(2, "cache", folder / "cache.img")
    elif disks in PLUG:
        line += machine.disk(2, "cache", folder / "cache.img")[:2]
    return machine.start(line)


def _plug_in(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(str(folder / "monitor"))
        monitor.sendall(b"device_add virtio-blk-pci,drive=d2,serial=cache\n")
        monitor.shutdown(socket.SHUT_WR)
        while monitor.recv(4096):  # until QEMU has done it
            pass


def step(folder: Path, number: int, disks: str, words: str) -> tuple[int, int]:
    """Boot once; return how many file systems lost data, and how many checks failed."""
    log = folder / f"boot{number:02}.log"
    start, result, plugged = time.monotonic(), None, False
    with _qemu(folder, disks, words, log) as qemu, at_end(qemu.kill):
        while qemu.poll() is None and time.monotonic() - start < machine.LIMIT_S:
            time.sleep(0.5)
            text = log.read_text(errors="replace") if log.exists() else ""
            if disks in PLUG and not plugged and re.search(PLUG[disks], text):
                _plug_in(folder)
                plugged = True
            if "hold" in words and re.search(r"VTEST result", text):
                time.sleep(CUT_S)
                break
            if "poweroff" in words and "VTEST result" in text:
                break
    text = log.read_text(errors="replace")
    for line in text.splitlines():
        if "VTEST" in line and "VTEST ok" not in line:
            print(f"    {line.strip()}", flush=True)
    result = re.search(r"VTEST result lost=(\d+) failed=(\d+)", text)
    print(f"    {time.monotonic() - start:.0f} s, {log}", flush=True)
    if result is None:
        print("    no result", flush=True)
        return 0, 1
    return int(result[1]), int(result[2])


def run(name: str) -> dict[str, int]:
    """Run all steps on one root."""
    debs = sorted((roots.REPO / "build" / "deb").glob("*.deb"))
    folder = roots.build(name, debs)
    for disk, mib in (("origin", 1024), ("cache", 256)):
        with (folder / f"{disk}.img").open("wb") as file:
            file.truncate(mib << 20)
    lost = failed = 0
    for number, (title, disks, words) in enumerate(STEPS, 1):
        print(f"{name} {number}/{len(STEPS)}: {title}", flush=True)
        more, wrong = step(folder, number, disks, words)
        lost, failed = lost + more, failed + wrong
    return {"boots": len(STEPS), "lost": lost, "failed": failed}


def main() -> int:
    """Run all roots, or those that are named."""
    results = {name: run(name) for name in sys.argv[1:] or roots.SUITES}
    report.write("roots", results)
    return 1 if any(result["lost"] or result["failed"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
