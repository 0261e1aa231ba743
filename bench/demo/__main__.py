# SPDX-License-Identifier: Apache-2.0
"""The demo: ``python -m bench.demo``, or ``make demo``.

Boots the box, starts two VMs from domain XML as nova 34 writes it, measures
them on the bare device and under vcache, then on an HDD-like disk without and
with a cache, then as two that share a cache by weight, and writes
build/demo/report.json, demo.png and report.html.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.demo import report, slow_report, weights_report
from bench.demo.settings import Settings
from tests.box import Box, BoxError, ssd
from tests.box.guest import image
from tests.box.kernels import KernelNotFound

REPO = Path(__file__).resolve().parents[2]
OUT = REPO / "build" / "demo"

# The box's processors are emulated where there is no KVM. Work that only real
# processors need (against speculation), or that burns them while there is
# nothing to do (polling for a halted guest), would only add noise.
_KERNEL_ARGS = ("mitigations=off", "kvm.halt_poll_ns=0")

# One processor: with two, TCG now and then breaks a nested VM, and what the
# VMs reach depends on which of them shares a processor with what.
_CPUS = 1

# Two to three times what it takes on two cores left alone.
_LIMIT_SECONDS = 2100


class DemoError(Exception):
    """The demo could not show what it is for."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line: one option for each setting."""
    p = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    defaults = Settings()
    for field in dataclasses.fields(Settings):
        default = getattr(defaults, field.name)
        p.add_argument(f"--{field.name.replace('_', '-')}", type=type(default),
                       default=default, metavar="X", help=f"default {default}")
    return p


def measure(settings: Settings) -> dict[str, Any]:
    """Run the part in the box and return what it measured."""
    guest = image.build()
    ssd.build()
    raw = OUT / "measurements.json"
    raw.unlink(missing_ok=True)
    result = Box(cpus=_CPUS, memory="4G", kernel_args=_KERNEL_ARGS).run(
        [sys.executable, "-m", "bench.demo.inside", "--settings", settings.to_json(),
         "--kernel", str(guest.kernel), "--initrd", str(guest.initrd), "--output", str(raw)],
        timeout=_LIMIT_SECONDS)
    if result.status:
        raise DemoError(f"the part in the box ended with status {result.status}")
    found: dict[str, Any] = json.loads(raw.read_text())
    return found


def main() -> int:
    """Run the demo; return 0 if it measured everything."""
    settings = Settings(**vars(parser().parse_args()))
    OUT.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    print("demo: booting the box (times are those of its clock)", flush=True)
    try:
        found = measure(settings)
        result = report.build(found, dataclasses.asdict(settings), time.monotonic() - start)
    except (DemoError, BoxError, KernelNotFound, report.ReportError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    (OUT / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    # Only now: matplotlib takes a second to import.
    from bench.demo import plot
    plot.draw(result, OUT / "demo.png")
    plot.write_page(result, OUT / "demo.png", OUT / "report.html")
    print()
    print(report.table(result))
    print()
    print("On an HDD-like disk, by itself (slow) and with a cache on an SSD (cached):")
    print(slow_report.table(result["slow_disk"]))
    print(slow_report.cache_line(result["slow_disk"]))
    print()
    print("Two VMs with weights 1:3 share a cache, MiB; then the larger gets a maximum:")
    print(weights_report.table(result["weights"]))
    print(weights_report.line(result["weights"]))
    print()
    warning = report.noise(result)
    if warning:
        print(f"demo: {warning}")
    for name in ("report.json", "demo.png", "report.html"):
        print(f"demo: {(OUT / name).relative_to(REPO)}")
    print(f"demo: {result['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
