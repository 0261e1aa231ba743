# SPDX-License-Identifier: Apache-2.0
"""Recordings of samples: what is read equals what was written; damage is named."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import fake_kernel
from tests.unit.fake_kernel import Kernel, device, lane, tag
from tests.unit.test_observe import sample, until
from vcache_agent.cmd import cli
from vcache_agent.model import Curve, Device, DeviceNumber, Lane, Stats, Tag
from vcache_agent.netlink import client, spec
from vcache_agent.observe import recorder, recording
from vcache_agent.observe.recorder import Recorder
from vcache_agent.observe.recording import RecordingError, Writer, read_samples
from vcache_agent.observe.sample import Sample, TagCurve

NUMBERS = st.integers(0, 2**64 - 1)
DEVICE_NUMBERS = st.builds(DeviceNumber, st.integers(0, 4095), st.integers(0, 1 << 20))
HISTOGRAMS = st.lists(NUMBERS, max_size=3).map(tuple)
STATS = st.builds(Stats, reads=NUMBERS, flush_hist=HISTOGRAMS, read_hist=HISTOGRAMS)
TAGS = st.builds(
    Tag, device=DEVICE_NUMBERS, id=st.integers(0, spec.TAG_MAX), name=st.text(max_size=8),
    cgroups=st.frozensets(NUMBERS, max_size=3), broken=st.booleans(),
    mode=st.sampled_from(spec.Mode), stats=STATS, cached_bytes=NUMBERS)
DEVICES = st.builds(
    Device, number=DEVICE_NUMBERS, name=st.text(max_size=8), mode=st.sampled_from(spec.Mode),
    scope=st.sampled_from(spec.Scope), isolation=st.sampled_from(spec.Isolation),
    sectors=NUMBERS, origin=st.text(max_size=8), suspended=st.booleans())
TIMES = st.floats(0, 1e12, allow_nan=False)
SAMPLES = st.builds(Sample, TIMES, TIMES, st.lists(DEVICES, max_size=2).map(tuple),
                    st.lists(TAGS, max_size=2).map(tuple))

FULL = sample(12.25, tag(0), tag(9), devices=(device(suspended=True), device(name="b")))


def write(path: Path, *samples: Sample) -> Path:
    with Writer(path) as writer:
        for one in samples:
            writer.write(one)
    return path


@settings(deadline=None, max_examples=60)
@given(st.lists(SAMPLES, max_size=3))
def test_what_is_read_is_what_was_written(
        tmp_path_factory: pytest.TempPathFactory, samples: list[Sample]) -> None:
    path = write(tmp_path_factory.mktemp("r") / "file", *samples)
    assert list(read_samples(path)) == samples


def test_every_field_is_recorded(tmp_path: Path) -> None:
    """A new field of the model needs no change in the codec."""
    def filled(kind: type) -> dict[str, Any]:
        return {field.name: 77 for field in dataclasses.fields(kind)
                if field.type in ("int", int)}

    stats = Stats(**filled(Stats), flush_hist=(1, 2), read_hist=(3,), write_hist=(4,))
    one = dataclasses.replace(
        sample(1.0, dataclasses.replace(tag(9), **filled(Tag), stats=stats),
               devices=(dataclasses.replace(device(), **filled(Device)),)),
        lanes=(dataclasses.replace(lane(), **filled(Lane)),))
    assert list(read_samples(write(tmp_path / "f", one))) == [one]
    line = json.loads((tmp_path / "f").read_text().splitlines()[1])
    assert set(line["tags"][0]["stats"]) == {field.name for field in dataclasses.fields(Stats)}
    assert set(line["lanes"][0]) == {field.name for field in dataclasses.fields(Lane)}


def test_a_field_with_its_default_may_be_missing(tmp_path: Path) -> None:
    """So a later version of the agent, with more fields, reads this version's recordings."""
    path = write(tmp_path / "f", sample(1.0, Tag(fake_kernel.AT, 9)))
    assert json.loads(path.read_text().splitlines()[1])["tags"] == [{"device": "254:3", "id": 9}]


def test_an_incomplete_last_line_is_skipped_with_a_message(tmp_path: Path) -> None:
    path = write(tmp_path / "f", FULL, FULL)
    path.write_bytes(path.read_bytes()[:-20])
    said: list[str] = []
    assert list(read_samples(path, said.append)) == [FULL]
    assert said == [f"{path}: line 3: incomplete, skipped"]
    # Cut exactly before the end of the line: nothing is missing.
    path = write(tmp_path / "g", FULL, FULL)
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_samples(path, said.append)) == [FULL, FULL]
    assert len(said) == 1


@pytest.mark.parametrize(("change", "text"), [
    (lambda line: line.replace('"id":9', '"id":"9"'),
     r"line 2: tags\[1\].id must be an integer of at least 0, is '9'"),
    (lambda line: line.replace('"id":9', '"id":true'), r"tags\[1\].id must be an integer"),
    (lambda line: line.replace('"id":9', '"id":-9'), r"tags\[1\].id must be .* is -9"),
    (lambda line: line.replace('"id":9,', ""), r"line 2: tags\[1\].id is missing"),
    (lambda line: line.replace('"id":9', '"id":9,"new":1'), r"tags\[1\].new is unknown, must be"),
    (lambda line: line.replace('"reads":100', '"reads":1.5'), r"tags\[0\].stats.reads must be"),
    (lambda line: line.replace("[11,12]", "[11,null]"), r"tags\[1\].cgroups\[1\] must be"),
    (lambda line: line.replace("[11,12]", "{}"), r"tags\[1\].cgroups must be a list"),
    (lambda line: line.replace('"FILESYSTEM"', '"NONE"'),
     r"devices\[0\].scope must be one of VOLUME, FILESYSTEM, is 'NONE'"),
    (lambda line: line.replace('"number":"254:3"', '"number":"254"'),
     r"devices\[0\].number must be a device number such as '254:0', is '254'"),
    (lambda line: line.replace('"wall":1012.25', '"wall":"x"'), "wall must be a finite number"),
    (lambda line: line.replace('"wall":1012.25', '"wall":NaN'), "line 2: not JSON: NaN"),
    (lambda line: line.replace('"wall":1012.25', '"wall":1e999'), "wall must be a finite number"),
    (lambda line: "[]", "line 2: a sample must be an object"),
    (lambda line: "{", "line 2: not JSON"),
    (lambda line: "[" * 100_000, "line 2: not JSON"),
    (lambda line: "", "line 2: not JSON")])
def test_damage_is_named_by_line_and_field(tmp_path: Path, change: object, text: str) -> None:
    path = write(tmp_path / "f", FULL, FULL)
    header, line, last = path.read_text().splitlines()
    changed = change(line)  # type: ignore[operator]
    assert changed != line
    path.write_text(f"{header}\n{changed}\n{last}\n")
    with pytest.raises(RecordingError, match=text):
        list(read_samples(path))


@pytest.mark.parametrize(("header", "text"), [
    ("", "line 1: not the header"), ("{", "line 1: not the header"),
    ("[]", "line 1: not the header"), ('{"format": "x", "version": 1}', "line 1: not the header"),
    ('{"format": "vcache-samples"}', "version None is not supported, must be 1"),
    ('{"format": "vcache-samples", "version": 2}', "version 2 is not supported, must be 1"),
    ('{"format": "vcache-samples", "version": true}', "version True is not supported")])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, header: str, text: str) -> None:
    path = tmp_path / "f"
    path.write_text(header + "\n")
    with pytest.raises(RecordingError, match=text):
        list(read_samples(path))


def test_full_files_are_rotated_and_their_number_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with Writer(path, limit=1) as writer:
        for second in range(8):
            writer.write(sample(float(second)))
    # The first sample goes behind the header, which already exceeds the limit.
    kept = [path.with_name(f"f.{number}") for number in range(recording.KEPT, 0, -1)]
    times = [one.monotonic for file in [*kept, path] for one in read_samples(file)]
    assert times == sorted(times)
    assert times[-1] == 7.0
    assert {file.name for file in tmp_path.iterdir()} == {"f", "f.1", "f.2", "f.3", "f.4"}


def test_a_restart_keeps_the_older_file_unless_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with Writer(path, limit=1 << 20) as writer:
        writer.write(FULL)
    for _ in range(3):
        Writer(path, limit=1 << 20).close()
    assert list(read_samples(tmp_path / "f.1")) == [FULL]
    assert not (tmp_path / "f.2").exists()
    with pytest.raises(FileExistsError):
        Writer(path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    writer = Writer(path)
    writer.write(FULL)
    real = writer._file

    class Full:
        def write(self, data: bytes) -> int:
            return real.write(data[:100])

        tell, truncate, seek = real.tell, real.truncate, real.seek

    monkeypatch.setattr(writer, "_file", Full())
    with pytest.raises(OSError, match="No space left"):
        writer.write(FULL)
    assert path.read_bytes().endswith(b"\n")
    monkeypatch.setattr(writer, "_file", real)
    writer.write(FULL)
    assert list(read_samples(path)) == [FULL, FULL]


def test_the_recorder_writes_what_it_is_given(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "f", 1 << 20)
    made.start()
    for second in range(5):
        made.add(sample(float(second)))
    made.stop()
    assert [one.monotonic for one in read_samples(tmp_path / "f")] == [0, 1, 2, 3, 4]
    assert made.dropped == 0


def test_the_recorder_never_blocks_its_caller(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    class Hanging(Writer):
        def write(self, sample: Sample) -> None:
            go.wait(60)
            super().write(sample)

    monkeypatch.setattr(recorder, "Writer", Hanging)
    made = Recorder(tmp_path / "f", 1 << 20)
    made.start()
    for second in range(100):
        made.add(sample(float(second)))
    assert made.dropped >= 60
    go.set()
    until(lambda: (tmp_path / "f").exists() and len(list(read_samples(tmp_path / "f")))
          == 100 - made.dropped)
    made.stop()


def test_a_failing_recorder_logs_once_and_tries_again(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Recorder(tmp_path / "no" / "f", 1 << 20)
    made.start()
    made.add(FULL)
    made.add(FULL)
    until(lambda: made.dropped == 2)
    (tmp_path / "no").mkdir()
    made.add(FULL)
    made.stop()
    assert list(read_samples(tmp_path / "no" / "f")) == [FULL]
    assert caplog.text.count("No such file or directory; trying again") == 1


def test_vcache_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                       capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel((device(),), (tag(0), tag(9)), fake_kernel.grow)
    monkeypatch.setattr(client, "socket", fake_kernel.install(kernel))
    path = tmp_path / "f"
    assert cli.main(["record", str(path), "--seconds", "2"]) == 0
    samples = list(read_samples(path))
    assert capsys.readouterr().out == f"{len(samples)} samples\n"
    # One a second; fewer only on a busy machine.
    assert 1 <= len(samples) <= 2
    assert [one.tags[1].stats.reads for one in samples] == [200, 300][:len(samples)]
    assert cli.main(["record", str(path)]) == 1
    assert "File exists" in capsys.readouterr().err
    kernel.silent = True
    monkeypatch.setattr("vcache_agent.netlink.connect", lambda: client.Client(0.1))
    monkeypatch.setattr("vcache_agent.cmd.record_cli.connect", lambda: client.Client(0.1))
    assert cli.main(["record", str(tmp_path / "g")]) == 1
    assert "kernel: no answer" in capsys.readouterr().err


def test_a_curve_is_recorded_up_to_where_it_is_constant(tmp_path: Path) -> None:
    curves = (Curve(4096, 0, 9, 5, (9, 7, 3, 3, 3), (5, 5, 5)), Curve(4096, 0, 0, 0, (), (3, 4, 3)))
    sample = Sample(1.0, 2.0, (), (), tuple(
        TagCurve(DeviceNumber(254, 3), number, curve) for number, curve in enumerate(curves)))
    with Writer(tmp_path / "r") as writer:
        writer.write(sample)
    (found,) = read_samples(tmp_path / "r")
    assert [one.curve for one in found.curves] == [
        Curve(4096, 0, 9, 5, (9, 7, 3), (5,)), curves[1]]
    for size in range(0, 9 * 4096, 1000):
        assert found.curves[0].curve.misses(size) == curves[0].misses(size)
