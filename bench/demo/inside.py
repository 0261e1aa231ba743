# SPDX-License-Identifier: Apache-2.0
"""What runs in a box of the demo: libvirtd and the parts of this box."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from bench.demo import disk_parts, ssd_part, vcache
from bench.demo.findings import Parts
from bench.demo.pair import say
from bench.demo.settings import Settings
from bench.demo.vm import place_guest
from tests.box import inside as box
from tests.box.guest.image import Guest
from tests.box.steps import describe, explained

#: The boxes, and what each of them measures.
BOXES: dict[str, Callable[[Parts, Settings, Guest], None]] = {
    "ssd": ssd_part.measure, "disk": disk_parts.measure}


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    def first_line(*command: str) -> str:
        return box.run(*command).splitlines()[0]

    return {
        "kernel": os.uname().release,
        "kernel_build": os.uname().version,
        "libvirt": first_line("libvirtd", "--version"),
        "qemu": first_line("qemu-system-x86_64", "--version"),
        "domain_type": box.domain_type(),
        "cpus": str(os.cpu_count()),
        "cpu": next((line.partition(":")[2].strip()
                     for line in Path("/proc/cpuinfo").read_text().splitlines()
                     if line.startswith("model name")), "unknown"),
    }


def main() -> None:
    """Measure the parts of a box; each leaves what it has found in a file of its own."""
    p = argparse.ArgumentParser()
    p.add_argument("--settings", required=True, type=Settings.from_json)
    p.add_argument("--kernel", required=True, type=Path, help="the guest's")
    p.add_argument("--initrd", required=True, type=Path, help="the guest's")
    p.add_argument("--folder", required=True, type=Path, help="takes PART.json of each part")
    p.add_argument("--error", required=True, type=Path, help="takes the error, if there is one")
    p.add_argument("box", choices=BOXES)
    a = p.parse_args()
    say("the box is up")
    with explained("demo"):
        try:
            guest = place_guest(Guest(a.kernel, a.initrd))
            with box.libvirt(hook=vcache.HOOK):
                say("libvirtd is up")
                BOXES[a.box](Parts(a.folder, versions()), a.settings, guest)
        except Exception as error:
            a.error.write_text(describe(error))
            raise


if __name__ == "__main__":
    main()
