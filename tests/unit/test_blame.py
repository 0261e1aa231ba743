# SPDX-License-Identifier: Apache-2.0
"""Twenty staged faults with known causes: the named cause is always right."""

from collections.abc import Callable

import pytest

from tests.unit.decide_model import MIB
from tests.unit.host_model import ELSEWHERE, FIRST, HOST, SECOND, VICTIM, Host
from vcache_agent.decide.blame import Cause, Evidence, Verdict, verdicts
from vcache_agent.decide.history import Known, Load
from vcache_agent.decide.tenant import Tenant
from vcache_agent.model import DeviceNumber
from vcache_agent.observe.claim import Claim
from vcache_agent.observe.sample import TagKey

Fault = Callable[[Host], None]


def change(*keys: tuple[DeviceNumber, int], **values: float) -> Fault:
    """Return a fault that changes the load of tags."""
    def apply(host: Host) -> None:
        for key in keys:
            host.tenants[key].ask(**values)
    return apply


def both(*faults: Fault) -> Fault:
    """Return several faults at once."""
    def apply(host: Host) -> None:
        for fault in faults:
            fault(host)
    return apply


def slow(**times: float) -> Fault:
    """Return a fault of a device."""
    def apply(host: Host) -> None:
        for name, value in times.items():
            setattr(host, name, value)
    return apply


#: A miss takes 5 ms and more, a hit 0.1 ms, a flush 1 ms and more.
READ_HITS, READ_MISSES, FLUSH, IOPS = (
    {"read_s": 0.002}, {"read_s": 0.009}, {"flush_s": 0.0025}, {"iops": 180.0})
MISSES = change(VICTIM, cached=90 * MIB)
NOTHING: Fault = lambda host: None  # noqa: E731

#: (objective, state before, fault, cause, tag)
FAULTS = {
    "it stops": (IOPS, NOTHING, change(VICTIM, reads=0, written=0, flushes=0),
                 Cause.NO_LOAD, None),
    "it has little to do": (IOPS, NOTHING, change(VICTIM, reads=20, written=1000),
                            Cause.NO_LOAD, None),
    "it writes much": (FLUSH, NOTHING, change(VICTIM, written=60e6), Cause.OWN_BURST, None),
    "its buffer is full": (FLUSH, NOTHING, change(VICTIM, written=50e6, waited=3),
                           Cause.OWN_BURST, None),
    "it writes and its reads wait": (READ_MISSES, MISSES, change(VICTIM, written=60e6),
                                     Cause.OWN_BURST, None),
    "it reads much more": (READ_MISSES, MISSES, change(VICTIM, reads=9000, cached=60 * MIB),
                           Cause.OWN_BURST, None),
    "its working set grows": (READ_HITS, NOTHING, change(VICTIM, working_set=300 * MIB),
                              Cause.OWN_SHARE, None),
    "its cache was taken": (READ_HITS, NOTHING, change(VICTIM, cached=20 * MIB),
                            Cause.OWN_SHARE, None),
    "its cache was taken by a neighbour that scans": (
        READ_HITS, NOTHING, both(change(VICTIM, cached=20 * MIB),
                                 change(FIRST, reads=2000, working_set=3000 * MIB)),
        Cause.OWN_SHARE, None),
    "it always had too little": (READ_HITS, change(VICTIM, cached=50 * MIB), NOTHING,
                                 Cause.OWN_SHARE, None),
    "a neighbour reads its whole disk": (
        READ_MISSES, MISSES, change(FIRST, reads=3000, working_set=50_000 * MIB),
        Cause.NEIGHBOUR, FIRST),
    "another neighbour writes": (READ_MISSES, MISSES, change(SECOND, written=50e6),
                                 Cause.NEIGHBOUR, SECOND),
    "two neighbours, one more": (
        READ_MISSES, MISSES, both(change(FIRST, written=8e6), change(SECOND, written=45e6)),
        Cause.NEIGHBOUR, SECOND),
    "a neighbour's writes delay its flushes": (FLUSH, NOTHING, change(FIRST, written=60e6),
                                               Cause.NEIGHBOUR, FIRST),
    "a neighbour on another origin fills the cache's queue": (
        FLUSH, NOTHING, change(ELSEWHERE, written=340e6), Cause.NEIGHBOUR, ELSEWHERE),
    "the host makes a backup": (
        READ_MISSES, MISSES, change(HOST, reads=2500, working_set=90_000 * MIB),
        Cause.HOST, None),
    "the host writes": (FLUSH, NOTHING, change(HOST, written=60e6), Cause.HOST, None),
    "the origin is rebuilt": (READ_MISSES, MISSES, slow(miss=0.04), Cause.DEVICE, None),
    "the cache is slow": (READ_HITS, NOTHING, slow(hit=0.004), Cause.DEVICE, None),
    "flushes of the device are slow": (FLUSH, NOTHING, slow(flush=0.02), Cause.DEVICE, None),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_named_cause_is_right(name: str, seed: int) -> None:
    objective, before, fault, cause, guilty = FAULTS[name]
    host = Host(seed, **objective)
    before(host)
    for _ in range(8):
        found = host.period()
    if fault is not NOTHING:
        assert VICTIM not in found.missed, found.missed
    fault(host)
    for _ in range(2):
        found = host.period()
        (verdict,) = found.missed[VICTIM]
        assert (verdict.cause, verdict.tag) == (cause, guilty), verdict.text


def test_a_neighbour_is_blamed_for_as_long_as_it_disturbs() -> None:
    host = Host(1, **READ_MISSES)
    MISSES(host)
    for _ in range(8):
        host.period()
    change(SECOND, written=50e6)(host)
    for _ in range(60):
        (verdict,) = host.period().missed[VICTIM]
        assert (verdict.cause, verdict.tag) == (Cause.NEIGHBOUR, SECOND)
    change(SECOND, written=400_000.0)(host)
    assert VICTIM not in host.period().missed


def test_a_neighbour_that_is_limited_as_far_as_possible_hides_no_other() -> None:
    def named(load: float, spent: frozenset[TagKey]) -> TagKey | None:
        others = {key: Known(load=Load(fetched=rate), usual=Load())
                  for key, rate in ((FIRST, 9e6), (SECOND, load))}
        claim = Claim(*VICTIM, "254:2", flush_s=0.001)
        known = Known(load=Load(flush_p99=0.1))
        (verdict,) = verdicts(Evidence(claim, known, Tenant(100), 1 << 30, others, spent))
        return verdict.tag

    assert named(8e6, frozenset()) == FIRST
    assert named(8e6, frozenset({FIRST})) == SECOND
    # The other one disturbs nobody.
    assert named(5e5, frozenset({FIRST})) == FIRST


def test_there_are_twenty_faults_and_each_cause_has_some() -> None:
    assert len(FAULTS) == 20
    assert {fault[3] for fault in FAULTS.values()} == set(Cause)


def test_the_texts() -> None:
    read = Verdict("read", Cause.NEIGHBOUR, 0.0123, 0.002, FIRST)
    assert read.text == ("the p99 of its reads is 12.3 ms, the objective 2 ms: much more traffic "
                         "than usual comes from tag 2 on device 254:3")
    assert Verdict("iops", Cause.NO_LOAD, 20.0, 180.0).text == (
        "20 of 180 requests a second: it does not ask for more")
