# SPDX-License-Identifier: Apache-2.0
"""Surveys: samples with curves, once in a period."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_vcache.extra_specs import Isolation
from tests.unit import fake_kernel
from tests.unit.fake_kernel import AT, Kernel, device, tag
from tests.unit.test_observe import sample, until
from vcache_agent.cmd import cli, record_cli
from vcache_agent.model import Curve, Stats
from vcache_agent.netlink import client
from vcache_agent.netlink.errors import NetlinkTimeout
from vcache_agent.observe import codec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.describe import claims_of
from vcache_agent.observe.observer import Observer
from vcache_agent.observe.recording import read_samples
from vcache_agent.observe.sample import Sample
from vcache_agent.observe.survey import Surveyor

CURVE = Curve(1 << 20, 4 << 20, 100, 10, (100, 40, 10), (10, 3, 1))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel((device(),), (tag(0), tag(9), tag(10)))
    made.curves = {9: CURVE, 10: CURVE}
    monkeypatch.setattr(client, "socket", fake_kernel.install(made))
    return made


@pytest.fixture
def connected(kernel: Kernel) -> Iterator[client.Client]:
    with client.Client() as made:
        yield made


def at(now: float, kernel: Kernel) -> Sample:
    return sample(now, *kernel.tags.values(), devices=kernel.devices)


def test_a_survey_has_the_curves_and_comes_once_in_a_period(
        kernel: Kernel, connected: client.Client) -> None:
    surveyor = Surveyor(15.0)
    found = surveyor.survey(connected, at(1.0, kernel))
    # The host tag has no sample in this kernel.
    assert found is not None
    assert {(one.id, one.curve) for one in found.curves} == {(9, CURVE), (10, CURVE)}
    assert surveyor.survey(connected, at(15.9, kernel)) is None
    assert surveyor.survey(connected, at(16.1, kernel)) is not None


def test_a_tag_without_requests_is_not_asked_again(
        kernel: Kernel, connected: client.Client) -> None:
    surveyor = Surveyor(1.0)
    first = surveyor.survey(connected, at(1.0, kernel))
    kernel.change(9, stats=Stats(reads=7))
    kernel.asked.clear()
    second = surveyor.survey(connected, at(2.0, kernel))
    assert first is not None and second is not None
    assert kernel.asked == [0, 9]
    assert {one.id for one in second.curves} == {9, 10}


@pytest.mark.parametrize("old", [False, True])
def test_many_curves_come_in_one_dump(kernel: Kernel, connected: client.Client,
                                      old: bool) -> None:
    """Unless the module is too old for that."""
    kernel.tags = {(AT, number): tag(number) for number in range(20)}
    kernel.curves = dict.fromkeys(range(1, 30), CURVE)
    kernel.old = old
    found = Surveyor(1.0).survey(connected, at(1.0, kernel))
    assert found is not None
    assert {(one.device, one.id) for one in found.curves} == {(AT, at) for at in range(1, 20)}
    assert {one.curve for one in found.curves} == {CURVE}
    assert kernel.asked == ([-1, *range(20)] if old else [-1])


def test_a_device_without_a_pool_has_no_curves(kernel: Kernel, connected: client.Client) -> None:
    kernel.devices = (device(pool=""),)
    found = Surveyor(1.0).survey(connected, at(1.0, kernel))
    assert found is not None
    assert (found.curves, kernel.asked) == ((), [])


def test_a_kernel_that_does_not_answer_is_a_gap(kernel: Kernel) -> None:
    with client.Client(0.05) as made:
        kernel.silent = True
        with pytest.raises(NetlinkTimeout):
            Surveyor(1.0).survey(made, at(1.0, kernel))



def test_the_observer_keeps_the_newest_survey_and_no_curves_in_its_ring(kernel: Kernel) -> None:
    heard: list[Sample] = []
    observer = Observer(60.0, heard.append, interval=0.01, survey_period=0.3)
    observer.start()
    try:
        until(lambda: sum(bool(one.curves) for one in heard) > 2
              and any(not one.curves for one in heard))
        assert observer.survey is not None and observer.survey.curves
        assert not any(one.curves for one in observer.ring.samples())
    finally:
        observer.stop()


def test_a_recording_without_an_agent_has_the_kernels_claims(
        kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "r"
    assert cli.main(["--socket", str(tmp_path / "none"), "record", str(path),
                     "--seconds", "1"]) == 0
    first = next(read_samples(path))
    assert {one.id for one in first.curves} == {9, 10}
    assert first.claims == claims_of(at(1.0, kernel))
    one = first.claims[0]
    assert (one.key, one.pool, one.weight, one.writeback) == ((AT, 9), "254:2", 250, True)
    assert (one.lanes, one.fixed) == (0b110, True)


def test_a_recording_with_an_agent_has_what_flavors_request(
        kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim(AT, 9, "254:2", 70, 5 << 20, read_s=0.002, isolation=Isolation.AUTO)
    pool = PoolSize("254:2", 1 << 30, (1 << 29, 1 << 29), hosts=(100,))
    monkeypatch.setattr(record_cli, "ask", lambda _socket, request: json.loads(json.dumps(
        {"ok": True, "claims": [codec.encode_part(claim)], "pools": [codec.encode_part(pool)]}))
        if request == {"op": "claims"} else None)
    path = tmp_path / "r"
    assert cli.main(["record", str(path), "--seconds", "1"]) == 0
    first = next(read_samples(path))
    assert (first.claims, first.pools) == ((claim,), (pool,))
