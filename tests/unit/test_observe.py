# SPDX-License-Identifier: Apache-2.0
"""The observer: samples, gaps, the ring, and the activity between samples."""

import dataclasses
import errno
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import fake_kernel
from tests.unit.fake_kernel import AT, Kernel, counts, device, lane, tag
from vcache_agent.model import Device, Stats, Tag
from vcache_agent.netlink import bulk, client
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.observe import activity
from vcache_agent.observe.observer import Observer
from vcache_agent.observe.ring import Ring
from vcache_agent.observe.sample import Sample, take


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel((device(), device(name="other", broken=True)), (tag(0), tag(9)))
    monkeypatch.setattr(client, "socket", fake_kernel.install(made))
    return made


@pytest.fixture
def observer(kernel: Kernel) -> Iterator[Observer]:
    made = Observer(60.0, interval=0.01)
    made.start()
    yield made
    made.stop()


def until(probe: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.005)


def sample(now: float, *tags: Tag, devices: tuple[Device, ...] = ()) -> Sample:
    return Sample(1000.0 + now, now, devices, tags)


def test_the_fast_decoder_returns_what_pyroute2_does(kernel: Kernel) -> None:
    def filled(item: Any, first: int) -> Any:
        """Return the item with a value of its own in each field that is a number."""
        names = [field.name for field in dataclasses.fields(item)
                 if type(getattr(item, field.name)) is int]
        return dataclasses.replace(item, **{name: first + at for at, name in enumerate(names)})

    one = filled(tag(9), 100)
    kernel.tags[AT, one.id] = dataclasses.replace(one, stats=filled(one.stats, 200), broken=True)
    kernel.devices += (filled(device(suspended=True, cache_broken=True), 300),)
    with client.Client() as connected:
        devices, tags = connected.snapshot(bulk.TagDecoder())
        assert devices == tuple(connected.devices()) == kernel.devices
        assert tags == tuple(connected.tags()) == tuple(kernel.tags.values())


def test_lanes_are_read(kernel: Kernel) -> None:
    kernel.lanes = (lane(), lane(1, volume=3, tag=7))
    with client.Client() as connected:
        assert connected.lanes() == kernel.lanes
        assert take(connected, bulk.TagDecoder()).lanes == kernel.lanes
        kernel.old = True
        assert connected.lanes() == ()
        kernel.error = errno.EPERM
        with pytest.raises(NetlinkError):
            connected.lanes()


def test_counters_of_a_volume_begin_again_without_the_others() -> None:
    old = Stats(reads=5, ssd_data_bytes=100, evicted_bytes=7, write_hist=(1, 2))
    new = Stats(reads=8, ssd_data_bytes=30, evicted_bytes=9, write_hist=(1, 5))
    grown = activity.difference(new, old)
    assert grown == Stats(reads=3, ssd_data_bytes=30, evicted_bytes=2, write_hist=(0, 3))
    assert activity.difference(dataclasses.replace(new, reads=4), old).reads == 4, "recreated"


def test_a_tag_that_did_not_change_is_the_same_object(kernel: Kernel) -> None:
    decoder = bulk.TagDecoder()
    with client.Client() as connected:
        _, (host, busy) = connected.snapshot(decoder)
        kernel.change(9, dirty_bytes=1)
        _, (host_then, busy_then) = connected.snapshot(decoder)
    assert host_then is host
    assert busy_then == dataclasses.replace(busy, dirty_bytes=1)
    assert busy_then.stats.flush_hist is busy.stats.flush_hist


@pytest.mark.parametrize(("data", "text"), [
    (b"\3\0\1\0", "malformed attribute at offset 0"),
    (b"\x09\0\1\0" + b"\0" * 4, "malformed attribute at offset 0"),
    (struct.pack("=HHH", 6, 1, 0), "attribute major has 2 bytes"),
    (struct.pack("=HHI", 8, 1, 254), "a tag lacks an attribute: 'minor'"),
    (b"", "a tag lacks an attribute")])
def test_a_malformed_message_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        bulk.TagDecoder().tags([b"\0" * 20 + data])


@given(st.binary(max_size=200))
def test_any_message_is_decoded_or_refused(data: bytes) -> None:
    for decode in (bulk.device, bulk.lane, lambda message: bulk.TagDecoder().tags([message])):
        try:
            decode(b"\0" * 20 + data)
        except ValueError as error:
            assert str(error)


def test_samples_are_taken(kernel: Kernel, observer: Observer) -> None:
    until(lambda: len(observer.ring.samples()) > 2)
    first, second, *_ = observer.ring.samples()
    assert first.devices == kernel.devices
    assert first.tags == tuple(kernel.tags.values())
    assert second.monotonic > first.monotonic
    assert abs(first.wall - time.time()) < 120
    assert observer.gaps == 0
    assert observer.seconds > 0


def test_a_failure_is_a_gap_and_is_logged_once(
        kernel: Kernel, observer: Observer, caplog: pytest.LogCaptureFixture) -> None:
    until(lambda: observer.ring.newest is not None)
    kernel.error = errno.EIO
    until(lambda: observer.gaps >= 2)
    before = observer.ring.newest
    kernel.error = 0
    until(lambda: observer.ring.newest is not before)
    assert caplog.text.count("sampling the kernel failed: Input/output error") == 1
    assert caplog.text.count("sampling the kernel works again") == 1


def test_a_kernel_that_does_not_answer_is_a_gap(kernel: Kernel) -> None:
    kernel.silent = True
    observer = Observer(0.05, interval=0.01)
    observer.start()
    until(lambda: observer.gaps >= 2)
    observer.stop()
    assert observer.ring.newest is None


def test_without_the_module_there_are_only_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    kernel.loaded = False
    monkeypatch.setattr(client, "socket", fake_kernel.install(kernel))
    observer = Observer(0.2, interval=0.01)
    observer.start()
    until(lambda: observer.gaps >= 3)
    observer.stop()
    assert observer.ring.newest is None


def test_the_listener_gets_each_sample(kernel: Kernel) -> None:
    got: list[Sample] = []
    enough = threading.Event()

    def listen(one: Sample) -> None:
        got.append(one)
        if len(got) == 3:
            enough.set()

    observer = Observer(60.0, listen, interval=0.01)
    observer.start()
    assert enough.wait(60)
    observer.stop()
    assert tuple(got) == observer.ring.samples()


def test_the_ring_thins_out_and_forgets() -> None:
    ring = Ring(seconds=100.0, fine=10.0, step=5.0)
    for second in range(201):
        ring.append(sample(float(second)))
    times = [one.monotonic for one in ring.samples()]
    assert times[-11:] == [float(second) for second in range(190, 201)], "all of the last 10 s"
    older = times[:-11]
    assert older == [float(second) for second in range(100, 190, 5)]
    assert ring.newest is not None
    assert ring.newest.monotonic == 200.0


def test_the_start_of_a_period() -> None:
    ring = Ring()
    assert ring.start_of(60.0, 5.0) is None
    for second in range(0, 100, 10):
        ring.append(sample(float(second)))

    def start(seconds: float, now: float) -> float | None:
        found = ring.start_of(seconds, now)
        return found.monotonic if found else None

    assert start(60.0, 90.0) == 30.0
    assert start(55.0, 90.0) == 30.0
    assert start(600.0, 90.0) == 0.0, "the oldest, if none is old enough"
    assert start(0.0, 90.0) == 90.0


def test_activity() -> None:
    old = tag(9, stats=Stats(reads=10, read_bytes=1000, cache_hit_bytes=100, flushes=5,
                             flush_hist=counts(b10=5)))
    new = tag(9, stats=Stats(reads=30, read_bytes=5000, cache_hit_bytes=2100, read_hit_bytes=1000,
                             writes=4, write_bytes=800, flushes=7,
                             flush_hist=counts(b10=5, b100=2)))
    (found,) = activity.between(sample(10.0, old), sample(12.0, new))
    assert (found.reads, found.writes, found.iops, found.flushes) == (10, 2, 12, 1)
    assert (found.read_bytes, found.write_bytes, found.hit_ratio) == (2000, 400, 0.75)
    assert found.flush_p50_ns is not None
    assert 4 << 24 <= found.flush_p50_ns <= 5 << 24, "only the flushes since the first sample"
    assert found.read_p99_ns is None


def test_a_tag_that_was_recreated_counts_from_its_start() -> None:
    old = tag(9, stats=Stats(reads=10, flush_hist=counts(b10=5)))
    new = tag(9, stats=Stats(reads=20, flush_hist=counts(b10=4)))
    (found,) = activity.between(sample(10.0, old), sample(12.0, new))
    assert found.reads == 10, "a smaller histogram proves it"
    (found,) = activity.between(sample(10.0), sample(12.0, new))
    assert found.reads == 10
    assert found.hit_ratio is None
    with pytest.raises(ValueError, match="not later"):
        activity.between(sample(12.0), sample(12.0))


def test_the_key_of_a_tag() -> None:
    one = sample(1.0, tag(9), devices=(device(),))
    assert one.by_key == {(AT, 9): tag(9)}
    assert one.device_names == {AT: "images"}
