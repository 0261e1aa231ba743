# SPDX-License-Identifier: Apache-2.0
"""Record scenarios under a kernel, replay them on the host, mount crash images."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.box.machine import Disk
from tests.powercut import judge, mount, pools, record
from tests.powercut.crash import Cut
from tests.powercut.files import FileOracle
from tests.powercut.judge import Recording, Verdict
from tests.powercut.kernel import Kernel
from tests.powercut.scenario import Scenario
from tests.powercut.stamps import SECTOR

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = REPO / "build" / "powercut"

# Maximum number of logs per box, each a disk: a PC has few slots.
_DISKS = 10
# Sufficient for half a minute of load; the file is sparse.
_LOG_BYTES = 1 << 30
# Time limits: the box boots and starts Python once; each recording mounts, fills and runs.
_BASE_SECONDS = 120
_RECORD_SECONDS = 180
_MOUNT_SECONDS = 60


class PowercutError(Exception):
    """The harness itself failed."""


def build_load() -> Path:
    """Compile the load generator for the box, statically linked."""
    BUILD.mkdir(parents=True, exist_ok=True)
    load = BUILD / "load"
    sources = sorted(str(path) for path in (HERE / "load").glob("*.c"))
    # Write to a temporary name and rename: another run may be using the program.
    fresh = BUILD / f"load.{os.getpid()}"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-static", "-Wall",
                    "-Wextra", "-Werror", "-o", str(fresh), *sources], check=True)
    fresh.replace(load)
    return load


def module(kernel: Kernel) -> str:
    """Return the path of the target's module."""
    path = kernel.module()
    if not path.exists():
        raise PowercutError(f"{path} does not exist: run `make module` first")
    return str(path)


def record_all(kernel: Kernel, batch: str, scenarios: Sequence[Scenario]) -> dict[str, Path]:
    """Record scenarios, one after another.

    :param kernel: kernel that runs the loads
    :param batch: folder below build/powercut
    :return: the folders of the recordings, by the names of the scenarios
    :raises PowercutError: if that failed
    """
    shutil.rmtree(BUILD / batch, ignore_errors=True)
    folders: dict[str, Path] = {}
    for first in range(0, len(scenarios), _DISKS):
        folders |= _record(kernel, BUILD / batch, scenarios[first:first + _DISKS])
    return folders


def _record(kernel: Kernel, batch: Path, scenarios: Sequence[Scenario]) -> dict[str, Path]:
    folders = {}
    disks = []
    for number, s in enumerate(scenarios):
        folder = batch / s.name
        folder.mkdir(parents=True)
        s.save(folder / "scenario.json")
        with open(folder / judge.LOG, "wb") as log:
            log.truncate(_LOG_BYTES)
        folders[s.name] = folder
        disks.append(Disk(folder / judge.LOG, record.LOG_DISK.format(number)))
    command = [sys.executable, "-m", "tests.powercut.record", str(build_load()),
               *map(str, folders.values())]
    result = kernel.machine("3G", disks, record.KERNEL_ARGS).run(
        command, timeout=_BASE_SECONDS + _RECORD_SECONDS * len(scenarios))
    if result.status:
        raise PowercutError(f"{batch.name}: the recording failed in the box")
    return folders


def _sample(cuts: Sequence[Cut], seed: int, count: int) -> list[Cut]:
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    return sorted(draw.sample(cuts, min(count, len(cuts))))


class Mounted:
    """Crash images of recordings, to be mounted in one box. Those of pools are recovered there.

    :param kernel: kernel that mounts them
    :param folder: folder for the images and the results
    """

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self._kernel = kernel
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._wanted: list[tuple[Recording, Cut]] = []
        self._images: list[dict[str, object]] = []
        # The required content of the volume, for an image of a pool.
        self._checksums: list[int | None] = []
        self._sectors = 0
        (folder / "images").touch()

    def add(self, recording: Recording, cuts: Sequence[Cut]) -> None:
        """Create the images of some cuts."""
        replay = recording.replay()
        with open(self._folder / "images", "r+b") as disk:
            for cut in sorted(cuts):
                replay.advance(cut.time)
                start = self._sectors
                self._sectors += recording.scenario.recorded_sectors
                disk.truncate(self._sectors * SECTOR)
                image = replay.image(cut)
                for sector, data in recording.bytes_of(image):
                    os.pwrite(disk.fileno(), data, (start + sector) * SECTOR)
                self._wanted.append((recording, cut))
                self._checksums.append(recording.checksum(image))
                self._images.append({"scenario": str(recording.folder / "scenario.json"),
                                     "start": start})

    def examine(self) -> Iterator[tuple[Recording, Cut, list[str]]]:
        """Mount all images in a box; yield the violations of each."""
        (self._folder / "images.json").write_text(json.dumps(self._images))
        command = [sys.executable, "-m", "tests.powercut.mount", str(build_load()),
                   str(self._folder)]
        result = self._kernel.machine(
            "2G", [Disk(self._folder / "images", mount.IMAGES_DISK)]).run(
            command, timeout=_BASE_SECONDS + _MOUNT_SECONDS * len(self._images))
        if result.status:
            raise PowercutError("the crash images could not be examined in the box")
        oracles: dict[Path, FileOracle] = {}
        for number, (recording, cut) in enumerate(self._wanted):
            oracle = oracles.setdefault(
                recording.folder, FileOracle(recording.scenario, recording.journal))
            yield recording, cut, self._judged(number, oracle)
        (self._folder / "images").unlink()

    def _judged(self, number: int, oracle: FileOracle) -> list[str]:
        recording, cut = self._wanted[number]
        error, dump, crc = (self._folder / f"{number}.{kind}" for kind in ("error", "dump", "crc"))
        wrong = [error.read_text()] if error.exists() else []
        if crc.exists() and int(crc.read_text()) != self._checksums[number]:
            wrong.append("the kernel's recovery gives another content than recover/ does")
        if dump.exists():
            wrong += oracle.check(cut.time, dump.read_bytes())
        elif not wrong and (recording.scenario.fs or not crc.exists()):
            raise PowercutError(f"image {number} was not examined")
        return wrong


def reproduce(folder: Path, cut: Cut | None, mounted: bool = False) -> str:
    """Return the command that replays one cut."""
    line = f"python -m tests.powercut --replay {folder.relative_to(REPO)}"
    if cut:
        line += f" --cut {cut.time}:{cut.survives}:{cut.seed}"
    return line + (" --mount" if mounted else "")


def report(name: str, verdict: Verdict, folder: Path, mounted: bool = False,
           cut: bool = True) -> None:
    """Print a verdict, and the command that shows each violation again.

    :param cut: whether violations are shown by their cut, or by the whole recording
    """
    print(f"powercut: {name}: {verdict.cuts} cuts, {verdict.violations} violations", flush=True)
    for finding in verdict.findings[:5]:
        print(f"  {finding.count} wrong, first: {finding.violations[0]}")
        print(f"    {reproduce(folder, finding.cut if cut else None, mounted)}", flush=True)


def judge_all(folders: Mapping[str, Path], count: int | None, enough: int | None = None,
              every_write: str = "") -> Iterator[tuple[Recording, Verdict]]:
    """Replay recordings with `count` cuts each (None: at all moments).

    :param enough: violations after which to stop
    :param every_write: name of one that is cut at every write instead
    """
    for name, folder in folders.items():
        recording = Recording(folder)
        if name == every_write:
            cuts = judge.every_write(recording.journal, recording.scenario.seed)
        else:
            cuts = judge.choose(recording.journal, recording.scenario.seed, count,
                                _times(recording))
        verdict = judge.judge(recording, cuts, enough=enough)
        report(name, verdict, folder)
        yield recording, verdict


def _times(recording: Recording) -> list[int]:
    """Return moments of a recording that need additional cuts."""
    return [write.submit for write in pools.in_place(recording)]


def more_of_pool(recording: Recording, count: int) -> Verdict:
    """Cut the power during recoveries, and during writes that overwrite data in place.

    :param count: number of recoveries; five times as many of these writes
    """
    name, seed = recording.scenario.name, recording.scenario.seed
    cuts = _sample(judge.choose(recording.journal, seed, 20 * count, _times(recording)),
                   seed, count)
    verdict = pools.judge_recovery(recording, cuts)
    report(f"{name}, cut in the recovery", verdict, recording.folder, cut=False)
    in_place = pools.judge_in_place(recording, 5 * count)
    report(f"{name}, cut in a write in place", in_place, recording.folder, cut=False)
    verdict.cuts += in_place.cuts
    verdict.findings += in_place.findings
    return verdict


def mount_some(kernel: Kernel, recordings: Mapping[Recording, int]) -> dict[str, Verdict]:
    """Mount crash images, in one box.

    :param kernel: kernel that mounts them
    :param recordings: recordings, with the number of cuts of each
    :return: the verdicts, by the names of the scenarios
    """
    images = Mounted(kernel, BUILD / "mounted")
    for recording, count in recordings.items():
        seed = recording.scenario.seed
        images.add(recording, _sample(judge.choose(recording.journal, seed, 20 * count),
                                      seed, count))
    verdicts = {recording.scenario.name: Verdict() for recording in recordings}
    folders = {}
    for recording, cut, wrong in images.examine():
        verdicts[recording.scenario.name].add(cut, wrong)
        folders[recording.scenario.name] = recording.folder
    for name, verdict in verdicts.items():
        report(f"{name}, mounted", verdict, folders[name], mounted=True)
    return verdicts
