# SPDX-License-Identifier: Apache-2.0
"""The agent's policies move shares of real tags under real load.

The agent's own parts observe, decide and apply, with the module in between: surveys, the planner
and the executor. Only the threads and libvirt are missing. Both origins are slow.
"""

import contextlib
import dataclasses
import random
import time
from collections.abc import Iterator

import pytest

from nova_vcache.extra_specs import ExtraSpecs, Mode
from tests.kernel import stack
from tests.kernel.disk import Disk
from tests.kernel.stack import Mapped
from vcache_agent import pools
from vcache_agent.decide.history import History
from vcache_agent.dm import Dm
from vcache_agent.kernel import Executor
from vcache_agent.model import DiskSource, DiskState, Domain, Location, Tag
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.observe.sample import take
from vcache_agent.observe.survey import Surveyor
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Observed, Plan

MIB = 1 << 20
# The reader's working set exceeds half of the pool; the scanner's never fits.
SET_MB, SCAN_MB, SCAN_STEP_MB = 40, 60, 12
READ_SECTORS = 128


@dataclasses.dataclass
class Host:
    """Two instances with a volume each, tags 7 and 8, on one pool of 62 MiB."""

    client: Client
    devices: tuple[Mapped, Mapped]
    disks: tuple[Disk, Disk]
    policy: str = "weighted"
    history: History = dataclasses.field(default_factory=History)
    rng: random.Random = dataclasses.field(default_factory=lambda: random.Random(7))  # noqa: S311
    scanned: int = 0

    def __post_init__(self) -> None:
        self.decoder, self.surveyor, self.executor = TagDecoder(), Surveyor(0.0), Executor()

    def tag(self, number: int) -> Tag:
        """Return a tag as the kernel reports it."""
        return self.client.tag(self.devices[number - 7].number, number)

    def load(self) -> float:
        """Read for a control period; return the reader's hit ratio."""
        before = self.tag(7).stats
        for _ in range(SET_MB * 2048 // READ_SECTORS):
            self.disks[0].read(self.rng.randrange(SET_MB * 2048 // READ_SECTORS) * READ_SECTORS,
                               READ_SECTORS)
        for _ in range(SCAN_STEP_MB * 2048 // READ_SECTORS):
            for _ in range(2):  # what is read once is not promoted
                self.disks[1].read(self.scanned, READ_SECTORS)
            self.scanned = (self.scanned + READ_SECTORS) % (SCAN_MB * 2048)
        after = self.tag(7).stats
        return (after.cache_hit_bytes - before.cache_hit_bytes) / (
            after.read_bytes - before.read_bytes)

    def period(self) -> Plan:
        """Observe, decide and apply, as the agent does."""
        survey = self.surveyor.survey(self.client, take(self.client, self.decoder))
        devices = tuple(self.client.devices())
        with Dm() as dm:
            found = pools.by_number(dm, {device.pool for device in devices})
        plan = decide(Observed(
            tuple(self._disk(number) for number in (7, 8)), devices, tuple(self.client.tags()),
            now=time.time(), policy=self.policy, survey=survey, history=self.history,
            pools={at: pool.chunks * pool.chunk_bytes for at, pool in found.items()}))
        self.history = plan.pools.history
        self.executor.apply(self.client, plan.actions)
        assert not self.executor.errors
        return plan

    def _disk(self, number: int) -> DiskState:
        device = self.devices[number - 7]
        domain = Domain(f"{number:08d}-0000-4000-8000-000000000000", f"vm{number}", {}, ())
        return DiskState(
            domain, DiskSource("vda", "block", device.path), ExtraSpecs(Mode.WRITEBACK),
            Location(f"volume:{device.name}", device.number))


@contextlib.contextmanager
def slow(origin: str, milliseconds: int = 2) -> Iterator[str]:
    """Make a disk whose reads take some time."""
    size = stack.sectors(origin)
    with stack.mapped(f"0 {size} delay {origin} 0 {milliseconds} {origin} 0 0") as device:
        yield device.path


@pytest.fixture
def host(origin: str, client: Client) -> Iterator[Host]:
    """Provide the two instances."""
    with (stack.null_blk(discard=True) as cache, stack.null_blk() as second,
          slow(origin) as one, slow(second) as two, stack.pool(cache) as pool,
          stack.cached(one, pool) as reader, stack.cached(two, pool, 2, "volume 8") as scanner,
          Disk(reader.path) as first, Disk(scanner.path) as other):
        yield Host(client, (reader, scanner), (first, other))


def test_mrc_moves_the_share_to_the_tag_that_gains_by_it(host: Host) -> None:
    for _ in range(4):
        by_weight = host.load()
        host.period()
    assert host.tag(7).cache_min_bytes == host.tag(8).cache_min_bytes == 0
    host.policy = "mrc"
    for _ in range(14):
        by_curves = host.load()
        plan = host.period()
    reader, scanner = host.tag(7), host.tag(8)
    assert 34 * MIB <= reader.cache_min_bytes <= 44 * MIB
    assert scanner.cache_min_bytes <= 20 * MIB
    assert reader.cache_share_bytes > scanner.cache_share_bytes
    assert reader.cached_bytes >= 34 * MIB
    assert by_curves > by_weight
    share = plan.pools.shares[host.devices[0].number, 7]
    assert any("least weighted time" in text for text in share.reasons)
    # The load changes: the reader stops, and lends its share.
    for _ in range(8):
        host.disks[1].read(0, READ_SECTORS)
        host.period()
    assert host.tag(7).cache_min_bytes == 0
