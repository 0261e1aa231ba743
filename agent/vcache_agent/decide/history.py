# SPDX-License-Identifier: Apache-2.0
"""What decisions remember of the periods before."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vcache_agent.decide.rates import Rates
from vcache_agent.decide.restraint import Restraints
from vcache_agent.decide.slo import State
from vcache_agent.decide.tenant import Times
from vcache_agent.model import Curve, DeviceNumber, Tag
from vcache_agent.observe.sample import Sample, TagKey

if TYPE_CHECKING:
    from vcache_agent.decide.blame import Verdict


#: Mean number of requests in flight from which a tag's IOPS can be judged.
BUSY = 0.5


@dataclasses.dataclass(frozen=True)
class Load:
    """The activity of a tag in the last period; rates are per second.

    :param blocks: blocks of 4 KiB read and written
    :param requests: reads and writes
    :param flushes: flushes
    :param depth: mean number of its requests in flight
    :param missed: part of its read bytes that came from the origin; None: no reads
    :param read_p99: seconds; None: no reads
    :param flush_p99: seconds; None: no flushes
    :param flush_wait: what its flushes waited for longest, of ``model.FLUSH_CAUSES``, or empty
    :param flush_wait_part: part of their time of waiting for this
    :param waited: mean number of its writes that waited for buffer space
    :param written: bytes written
    :param fetched: bytes read from the origin
    :param destaged: bytes written from the buffer to the cache or the origin
    """

    blocks: float = 0.0
    requests: float = 0.0
    flushes: float = 0.0
    depth: float = 0.0
    missed: float | None = None
    read_p99: float | None = None
    flush_p99: float | None = None
    flush_wait: str = ""
    flush_wait_part: float = 0.0
    waited: float = 0.0
    written: float = 0.0
    fetched: float = 0.0
    destaged: float = 0.0

    @property
    def idle(self) -> bool:
        """True if there were no requests."""
        return not self.requests and not self.flushes


_NONE, _START = Load(), State()


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known about a tag.

    :param curve: its last curve; None: none yet
    :param rates: its misses per second by size, of the last periods; None: unknown
    :param recent: its misses per second by size, of the last period alone; None: unknown
    :param load: its activity in the last period
    :param usual: its activity in the periods before, a moving average; None: unknown
    :param cached: bytes that it had
    :param quiet: it had no accesses in the last period
    :param correction: see throughput.py
    :param slo: the state of its controller
    :param quota: bytes of its last quota
    :param lanes: number of dedicated lanes that Algorithm 1 granted last
    :param wanted: number of lanes that it would grant now
    :param stable: periods in a row for which it would have granted `wanted`
    """

    curve: Curve | None = None
    rates: Rates | None = None
    recent: Rates | None = None
    load: Load = _NONE
    usual: Load | None = None
    cached: int = 0
    quiet: bool = False
    correction: float = 1.0
    slo: State = _START
    quota: int = 0
    lanes: int = 0
    wanted: int = 0
    stable: int = 0


@dataclasses.dataclass(frozen=True)
class History:
    """The result of all periods before.

    :param sample: the last survey; None: there was none
    :param tags: what is known about the tags
    :param times: times of the devices
    :param usual: times of the devices before the last period
    :param missed: why objectives were missed in the last period
    :param united: pools that are one LRU list now, because quotas would gain too little
    :param restraints: the neighbours that are limited, see restrain.py
    """

    sample: Sample | None = None
    tags: Mapping[TagKey, Known] = dataclasses.field(default_factory=dict)
    times: Mapping[DeviceNumber, Times] = dataclasses.field(default_factory=dict)
    usual: Mapping[DeviceNumber, Times] = dataclasses.field(default_factory=dict)
    missed: Mapping[TagKey, tuple["Verdict", ...]] = dataclasses.field(default_factory=dict)
    united: frozenset[str] = frozenset()
    restraints: Restraints = dataclasses.field(default_factory=Restraints)


def seeded(tags: Iterable[Tag]) -> History:
    """Return the history of an agent that has just started: quotas are the kernel's minima.

    :param tags: the kernel's tags
    """
    return History(tags={(tag.device, tag.id): Known(quota=tag.cache_min_bytes) for tag in tags})
