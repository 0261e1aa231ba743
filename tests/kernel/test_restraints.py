# SPDX-License-Identifier: Apache-2.0
"""Neighbours are limited by the real ``io.max`` and the real destage rate, and released.

The agent's own parts observe, decide and apply, with the module in between. The periods last 15 s
by the clock of the samples, so that rates do not depend on the machine. The victim has an
objective that it always misses.
"""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nova_vcache.extra_specs import ExtraSpecs, Mode
from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped
from vcache_agent import pools, restraints
from vcache_agent.decide.blame import Cause
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History
from vcache_agent.decide.restraint import Means
from vcache_agent.dm import Dm
from vcache_agent.kernel import Executor
from vcache_agent.model import DiskSource, DiskState, Domain, Location
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.observe.sample import take
from vcache_agent.observe.survey import Surveyor
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Observed
from vcache_agent.restraints import InForce, Restrainer
from vcache_agent.store import Store

PERIOD = 15.0
#: MiB of the neighbour's writes in a period: 8.5 MiB/s, twice what everybody may have.
BURST = 128
DATA = pattern(1, 2048)
VICTIM, NEIGHBOUR = 7, 8


@dataclasses.dataclass
class Host:
    """Two instances with a volume each, on one pool: the victim and its neighbour."""

    client: Client
    devices: tuple[Mapped, Mapped]
    group: Cgroup
    store: Store
    means: tuple[Means, ...]
    history: History = dataclasses.field(default_factory=History)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.decoder, self.surveyor, self.executor = TagDecoder(), Surveyor(0.0), Executor()
        self.restrainer = Restrainer(self.store)

    @property
    def neighbour(self) -> Mapped:
        """The neighbour's volume."""
        return self.devices[1]

    def write(self, mebibytes: int) -> None:
        """Let the neighbour write."""
        def work() -> None:
            with Disk(self.neighbour.path) as disk:
                for at in range(mebibytes):
                    disk.write(at % 32 * 2048, DATA)

        self.group.run(work)

    def period(self, mebibytes: int = 0, own: int = 0) -> tuple[InForce, ...]:
        """Let both write; then observe, decide and apply, as the agent does.

        :param own: what the victim writes beside some flushed blocks, in MiB
        """
        with Disk(self.devices[0].path) as disk:
            for at in range(5):
                disk.write(8 * at, DATA[:4096])
                disk.flush()
            for at in range(own):
                disk.write(at % 32 * 2048, DATA)
        if mebibytes:
            self.write(mebibytes)
        self.now += PERIOD
        sample = dataclasses.replace(take(self.client, self.decoder), monotonic=self.now)
        survey = self.surveyor.survey(self.client, sample)
        devices = tuple(self.client.devices())
        with Dm() as dm:
            found = pools.by_number(dm, {device.pool for device in devices})
        plan = decide(Observed(
            tuple(self._disk(number) for number in (VICTIM, NEIGHBOUR)), devices,
            tuple(self.client.tags()), now=time.time(), survey=survey, history=self.history,
            settings=Settings(means=self.means),
            pools={at: pool.chunks * pool.chunk_bytes for at, pool in found.items()}))
        self.history = plan.pools.history
        self.executor.apply(self.client, plan.actions)
        assert not self.executor.errors
        paths = {plan.disks[1].state.domain.uuid:
                 "/" + str(self.group.path.relative_to("/sys/fs/cgroup"))}
        return self.restrainer.step(restraints.wanted(
            self.history.restraints.active, plan.disks, devices, paths))

    def _disk(self, number: int) -> DiskState:
        device = self.devices[number - VICTIM]
        domain = Domain(f"{number:08d}-0000-4000-8000-000000000000", f"vm{number}", {}, ())
        specs = ExtraSpecs(Mode.WRITEBACK, slo_flush_ms=0.001, slo_iops=1e6) \
            if number == VICTIM else ExtraSpecs(Mode.WRITEBACK)
        return DiskState(domain, DiskSource("vda", "block", device.path), specs,
                         Location(f"volume:{device.name}", device.number),
                         cgroup=self.group.id if number == NEIGHBOUR else None)

    def causes(self) -> dict[str, tuple[Cause, int | None]]:
        """Return why the victim missed its objectives in the last period."""
        return {verdict.objective: (verdict.cause, verdict.tag[1] if verdict.tag else None)
                for verdict in self.history.missed[self.devices[0].number, VICTIM]}

    def limits(self) -> str:
        """Return what the kernel has in ``io.max``."""
        return (self.group.path / "io.max").read_text().strip()

    def rate(self) -> int:
        """Return the destage rate of the neighbour's volume in MiB/s; 0: no limit."""
        words = self.neighbour.table().split()
        return int(words[words.index("destage_mib") + 1]) if "destage_mib" in words else 0


@contextlib.contextmanager
def started(origin: str, client: Client, group: Cgroup, store: Store,
            *means: Means) -> Iterator[Host]:
    """Provide the two instances after some quiet periods."""
    with (stack.null_blk(discard=True) as cache, stack.null_blk() as second,
          stack.pool(cache) as pool, stack.cached(origin, pool) as one,
          stack.cached(second, pool, 2, "volume 8") as other):
        host = Host(client, (one, other), group, store, means)
        try:
            for _ in range(4):
                assert host.period() == ()
            yield host
        finally:
            host.restrainer.release()


@pytest.fixture(name="group")
def fixture_group(cgroup: Callable[[str], Cgroup]) -> Cgroup:
    assert "io" in Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split()
    return cgroup("neighbour")


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.sqlite")
    yield store
    store.close()


def test_the_causes_of_faults_with_the_kernels_counters(
        origin: str, client: Client, group: Cgroup, store: Store) -> None:
    with started(origin, client, group, store) as host:
        assert host.causes() == {"flush": (Cause.DEVICE, None), "iops": (Cause.NO_LOAD, None)}
        for _ in range(3):
            assert host.period(BURST) == ()  # without means, nobody is limited
            assert host.causes()["flush"] == (Cause.NEIGHBOUR, NEIGHBOUR)
        host.period()
        assert host.causes()["flush"] == (Cause.DEVICE, None)
        host.period(own=BURST)
        assert host.causes()["flush"] == (Cause.OWN_BURST, None)
        # Its own burst comes first.
        host.period(BURST, BURST)
        assert host.causes()["flush"] == (Cause.OWN_BURST, None)
        assert host.limits() == ""


def test_io_max_limits_the_neighbour_and_releases_it(
        origin: str, client: Client, group: Cgroup, store: Store) -> None:
    with started(origin, client, group, store, Means.IO) as host:
        assert host.period(BURST) == ()
        (found,) = host.period(BURST)
        assert (found.neighbour, found.means, found.problem) == (
            (host.neighbour.number, NEIGHBOUR), Means.IO, "")
        rate = int(0.7 * BURST * (1 << 20) / PERIOD)
        assert host.limits() == \
            f"{host.neighbour.number} rbps=max wbps={rate} riops=max wiops=max"
        # A busy machine makes it slower, and nothing makes it faster.
        began = time.monotonic()
        host.write(24)
        assert time.monotonic() - began > 0.6 * 24 * (1 << 20) / rate
        assert VICTIM in {tag for _, tag in host.history.missed}
        # The burst is over.
        for _ in range(8):
            found_now = host.period()
        assert found_now == ()
        assert host.limits() == ""
        assert store.limits() is None


def test_the_destage_of_the_neighbour_is_limited_and_released(
        origin: str, client: Client, group: Cgroup, store: Store) -> None:
    with started(origin, client, group, store, Means.DESTAGE, Means.IO) as host:
        host.neighbour.message("destage_mib 900")
        host.period(BURST)
        (found,) = host.period(BURST)
        assert found.means is Means.DESTAGE
        assert host.rate() == round(0.7 * BURST / PERIOD)
        assert host.limits() == ""
        while host.period(BURST)[-1].means is Means.DESTAGE:
            assert host.rate() >= 4
        # At its bound, io.max is added.
        assert host.rate() == 4
        assert " wbps=" in host.limits()
        for _ in range(8):
            found_now = host.period()
        assert found_now == ()
        assert (host.rate(), host.limits(), store.limits()) == (900, "", None)


def test_after_a_kill_the_next_agent_releases_the_neighbour(
        origin: str, client: Client, group: Cgroup, store: Store, tmp_path: Path) -> None:
    with started(origin, client, group, store, Means.DESTAGE, Means.IO) as host:
        def die() -> None:
            host.store = Store(tmp_path / "s.sqlite")
            host.restrainer = Restrainer(host.store)
            while len(host.period(BURST)) < 2:
                pass
            os.kill(os.getpid(), signal.SIGKILL)

        child = os.fork()
        if not child:
            try:
                die()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert host.rate() == 4
        assert " wbps=" in host.limits()
        Restrainer(store).step(())
        assert (host.rate(), host.limits(), store.limits()) == (0, "", None)


def test_a_removed_cgroup_is_no_problem(
        origin: str, client: Client, group: Cgroup, store: Store) -> None:
    with started(origin, client, group.child("vm"), store, Means.IO) as host:
        # Its parent has no controller for it.
        host.period(BURST)
        (found,) = host.period(BURST)
        assert found.problem.endswith("its parent must have 'io' in cgroup.subtree_control")
        assert store.limits() is None
        (group.path / "cgroup.subtree_control").write_text("+io")
        assert host.period(BURST)[0].problem == ""
        assert store.limits() is not None
        host.group.remove()
        assert host.restrainer.step(()) == ()
        assert host.restrainer.problems == []
        assert store.limits() is None
