# SPDX-License-Identifier: Apache-2.0
"""In the first machine: run the load, migrate, and write the samples to a file."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.box.inside import progress
from tests.box.limits import limit
from tests.host.lab import eventually
from tests.pair.host import VOLUME, Host, Remote

NAME = "etcd"
# A small write and an fdatasync, and 5 ms of other work: etcd writes its log so.
LOAD = ("run dev=/dev/vda size=16777216 bs=4096 fsync=1 think_us=5000 ramp_ms=0 time_ms=1000 "
        "tail_ms=0 seed={seed}")
SECONDS = 10


class Load:
    """Runs the load a second at a time, on the host that has the guest."""

    def __init__(self, source: Host, target: Remote) -> None:
        self._hosts: list[Any] = [source, target]
        self._at = 0
        self._began = time.monotonic()
        self.samples: list[dict[str, Any]] = []
        self.lost = 0

    def now(self) -> float:
        """Return the seconds since the begin."""
        return time.monotonic() - self._began

    def step(self) -> None:
        """Run it for a second, and record the latency of its flushes."""
        began = self.now()
        self._hosts[self._at].send(NAME, LOAD.format(seed=len(self.samples) + 1))
        reply = self._reply()
        if reply is None:
            self.lost += 1
            return
        found, tag = reply["sync"]["lat_ns"], self._hosts[self._at].tag()
        self.samples.append({
            "at_s": round(began, 2), "until_s": round(self.now(), 2), "host": self._at + 1,
            "mode": tag.mode.name,
            "count": found["N"], "p50_ms": found["percentile"]["50.000000"] / 1e6,
            "p99_ms": found["percentile"]["99.000000"] / 1e6, "max_ms": found["max"] / 1e6})

    def _reply(self) -> dict[str, Any] | None:
        """Return the reply; None: the guest wrote it while it moved, to no console as a whole."""
        end = time.monotonic() + limit(60)
        while time.monotonic() < end:
            for host in self._hosts[:self._at + 1]:
                found: dict[str, Any] | None = host.poll(NAME)
                if found is not None:
                    return found
            # Cheap: a program that asks libvirt would take the only processor from the guest.
            if self._at == 0 and self._hosts[0].vm.pid(NAME) is None:
                self._at = 1
            time.sleep(0.1)
        assert self._at == 1 and not self.lost, "the guest does not answer"
        return None


def measure(source: Host, target: Remote, mode: str) -> dict[str, Any]:
    """Migrate one guest in a mode of its flavor; return the samples."""
    source.start(NAME, str(VOLUME), {"mode": mode})
    eventually(lambda: source.tag().mode.name.lower().replace("_", "-") == mode, "its mode")
    load = Load(source, target)
    while load.now() < SECONDS:
        load.step()
    began = load.now()
    progress("the migration begins")
    source.begin_migration(NAME)
    while source.migrating():
        load.step()
    error = source.end_migration()
    progress(f"the migration has ended: {error or 'good'}")
    assert error == "", error
    ended = load.now()
    while load.now() < ended + SECONDS:
        load.step()
    target.end(NAME)
    source.end(NAME)
    for host in (source, target):
        eventually(lambda host=host: host.moves() == [], "all is over")  # type: ignore[misc]
    hooks = [item[2] for item in target.hooks(NAME) if item[0] in ("migrate", "prepare")]
    return {"mode": mode, "migration_s": [round(began, 2), round(ended, 2)],
            "hooks_s": [round(seconds, 3) for seconds in hooks[-2:]], "lost": load.lost,
            "samples": load.samples}


def main() -> int:
    """Measure; the arguments are the file to write, and the modes."""
    source = Host(1, int(os.environ["VCACHE_WRITE_MS"]))
    with source.lasting():
        target = Remote(2)
        target.connect()
        runs = []
        for mode in sys.argv[2:]:
            progress(f"mode {mode}")
            runs.append(measure(source, target, mode))
        target.close()
    Path(sys.argv[1]).write_text(json.dumps(runs, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
