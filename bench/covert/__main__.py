# SPDX-License-Identifier: Apache-2.0
"""Capacity of the covert channel between two VMs by the time of their fsyncs.

``python -m bench.covert`` writes build/bench/covert.json and prints a table.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import simulated
from bench.covert.channel import TRAINING, Decoded, Symbol, capacity, decode, least

OUT = simulated.ROOT / "build" / "bench"
SYSTEMS = ("bare", "fua", "plp", "tagged", "weighted", "lanes")
SYMBOLS_US = (1000, 2000, 5000, 10000, 20000)
BLOCKS = (1, 16, 64, 256)
SEEDS = (1, 2, 3)
#: Bits to decode, by the length of a symbol: shorter ones need more to tell a small capacity.
DECODED = {us: 4096 if us < 10000 else 1024 for us in SYMBOLS_US}
AIM = 10.0


class Sender(NamedTuple):
    """What the sender does.

    :param symbol_us: time for a bit in microseconds
    :param blocks: of 4 KiB that it writes at a time for a 1
    :param sync: it calls fsync after each write
    """

    symbol_us: int
    blocks: int
    sync: bool


SENDERS = [Sender(*each) for each in itertools.product(SYMBOLS_US, BLOCKS, (False, True))]


def build(folder: Path = OUT / "covert") -> Path:
    """Compile the program, and return its path."""
    return simulated.build(folder / "covert", ["bench/covert/*.c"])


def run(program: Path, system: str, sender: Sender, seed: int) -> list[Symbol]:
    """Transmit once, and return what the receiver measured."""
    done = subprocess.run(
        [program, system, str(sender.symbol_us), str(sender.blocks), str(int(sender.sync)),
         str(TRAINING + DECODED[sender.symbol_us]), str(seed)],
        capture_output=True, text=True, check=True)
    return [Symbol(*map(int, line.split())) for line in done.stdout.splitlines()]


def best_decoding(symbols: list[Symbol]) -> Decoded:
    """Return the better one of what the mean and the longest request tell."""
    return min((decode(symbols, statistic) for statistic in (
        lambda symbol: symbol.mean, lambda symbol: symbol.longest)),
        key=lambda found: found.errors)


def measure(program: Path, system: str, sender: Sender) -> dict[str, Any]:
    """Return the medians of all seeds for one way to transmit."""
    seconds = sender.symbol_us / 1e6
    found = [best_decoding(run(program, system, sender, seed)) for seed in SEEDS]
    return {**sender._asdict(),
            "bits_per_s": round(statistics.median(capacity(each, seconds) for each in found), 1),
            "error_rate": round(statistics.median(each.error_rate for each in found), 4),
            "least_bits_per_s": round(least(DECODED[sender.symbol_us], seconds), 2)}


def main() -> None:
    """Measure, store and print."""
    program = build()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {system: [pool.submit(measure, program, system, sender) for sender in SENDERS]
                for system in SYSTEMS}
        tried = {system: [job.result() for job in found] for system, found in jobs.items()}
    best = {system: max(found, key=lambda each: each["bits_per_s"])
            for system, found in tried.items()}
    result = {"aim_bits_per_s": AIM, "seeds": list(SEEDS), "best": best, "tried": tried}
    (OUT / "covert.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'system':8} {'bit/s':>8} {'errors':>8}  with")
    for system, found in best.items():
        print(f"{system:8} {found['bits_per_s']:8.1f} {found['error_rate']:8.2%}  "
              f"{found['symbol_us'] / 1000:g} ms, {found['blocks']} blocks"
              f"{', fsync' if found['sync'] else ''}")
    reached = {system: "reached" if best[system]["bits_per_s"] < AIM else "missed"
               for system in ("tagged", "weighted")}
    print(f"build/bench/covert.json written; aim: below {AIM:g} bit/s with tags: "
          f"{reached['tagged']}; with tags that have weights: {reached['weighted']}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
