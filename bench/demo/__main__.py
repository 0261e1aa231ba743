# SPDX-License-Identifier: Apache-2.0
"""The demo: ``python -m bench.demo``, or ``make demo``.

Boots User Mode Linux twice and starts VMs there from domain XML as nova 34 writes it. One
of these boxes measures a pair of VMs on an SSD, bare and under vcache. The other one measures
the pair on an HDD-like disk without and with a cache, then as two VMs that share a
cache by weight. Writes build/demo/report.json, demo.png and report.html.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from bench.demo import aims, findings, report, slow_report, weights_report
from bench.demo.settings import Settings
from tests.box import kernels, ssd, steps
from tests.box.guest import image
from tests.box.steps import Stack

REPO = Path(__file__).resolve().parents[2]
OUT = REPO / "build" / "demo"

#: The boxes, and the parts that each of them measures. Each box has one processor, so that
#: two of them use both cores of a small machine.
BOXES = {"ssd": ("ssd",), "disk": ("slow_disk", "weights")}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line: one option for each setting."""
    p = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Settings()
    for field in dataclasses.fields(Settings):
        default = getattr(defaults, field.name)
        name = f"--{field.name.replace('_', '-')}"
        if isinstance(default, bool):
            p.add_argument(name, action=argparse.BooleanOptionalAction, default=default)
        else:
            p.add_argument(name, type=type(default), default=default, metavar="X",
                           help=f"default {default}")
    return p


def _pump(name: str, source: IO[str]) -> None:
    """Print the lines of a box as they come."""
    for line in source:
        print(f"{name:<4} {line}", end="", flush=True)


def _end(process: subprocess.Popen[str]) -> None:
    """Have the process of a box end; it ends the box."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def measure(settings: Settings) -> dict[str, dict[str, Any]]:
    """Measure all parts in their boxes; return what each part has found.

    A box that fails does not end the other one. What was measured is returned in any case;
    a part that has failed, or was not reached, has no entry "complete".
    """
    guest = image.build()
    ssd.build()
    with Stack() as stack:
        boxes, pumps = [], []
        for name in BOXES:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.demo.box", name, settings.to_json(), str(OUT),
                 str(guest.kernel), str(guest.initrd)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace")
            stack.callback(_end, process)
            assert process.stdout
            pumps.append(threading.Thread(target=_pump, args=(name, process.stdout), daemon=True))
            pumps[-1].start()
            boxes.append(process)
        for process in boxes:
            process.wait()
        for pump in pumps:
            pump.join()
    return {part: findings.read(OUT / f"{part}.json")
            for parts in BOXES.values() for part in parts}


def _errors() -> list[str]:
    """Return the errors of the boxes, the first one first."""
    files = [OUT / f"{name}.error" for name in BOXES]
    there = sorted((file for file in files if file.exists()),
                   key=lambda file: file.stat().st_mtime)
    return [file.read_text().strip() for file in there]


def show(result: dict[str, Any]) -> None:
    """Print the tables of all parts that are complete."""
    if "neighbour_loss_pct" in result:
        print(f"\n{report.table(result)}")
    if "slow_disk" in result:
        print("\nOn an HDD-like disk, by itself (slow) and with a cache on an SSD (cached):")
        print(slow_report.table(result["slow_disk"]))
        print(slow_report.cache_line(result["slow_disk"]))
    if "weights" in result:
        print("\nTwo VMs with weights 1:3 share a cache, MiB; then the larger gets a maximum:")
        print(weights_report.table(result["weights"]))
        print(weights_report.line(result["weights"]))
    print("\nAims:")
    for aim in result["aims"]:
        print(f"  {aims.line(aim)}")
    print()


def draw(result: dict[str, Any]) -> None:
    """Write the plot and the page of a complete report."""
    # Only now: matplotlib takes a second to import.
    from bench.demo import plot
    plot.draw(result, OUT / "demo.png")
    plot.write_page(result, OUT / "demo.png", OUT / "report.html")


def main() -> int:
    """Run the demo; return 0 if it measured everything."""
    settings = Settings(**vars(parser().parse_args()))
    OUT.mkdir(parents=True, exist_ok=True)
    for old in (*OUT.glob("*.json"), *OUT.glob("*.error"), OUT / "demo.png", OUT / "report.html"):
        old.unlink(missing_ok=True)
    start = time.monotonic()
    print("demo: booting two boxes; times in brackets are those of their clocks", flush=True)
    try:
        found = measure(settings)
    except (OSError, subprocess.CalledProcessError, kernels.KernelNotFound) as error:
        print(f"demo: {steps.describe(error)}", file=sys.stderr)
        return 1
    result = report.build(found, dataclasses.asdict(settings), time.monotonic() - start,
                          _errors())
    (OUT / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    if not result["partial"]:
        draw(result)
    show(result)
    warning = report.noise(result)
    if warning:
        print(f"demo: {warning}")
    for name in ("report.json", "demo.png", "report.html"):
        if (OUT / name).exists():
            print(f"demo: {(OUT / name).relative_to(REPO)}")
    print(f"demo: {result['seconds']:.0f} s", flush=True)
    if result["partial"]:
        print("demo: build/demo/report.json is partial: it has what was measured before the "
              "failure", file=sys.stderr)
        for text in result["errors"]:
            print(f"demo: {text}", file=sys.stderr)
        # Logs may follow an error; what it was is the last line.
        print(f"demo: failed: {result['errors'][0].splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
