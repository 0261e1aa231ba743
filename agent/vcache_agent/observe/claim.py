# SPDX-License-Identifier: Apache-2.0
"""What tags may claim of a pool, and what there is: the configuration that policies see.

It is plain data that can be recorded beside samples, so that a decision can be replayed.
"""

import dataclasses

from nova_vcache.extra_specs import Isolation
from vcache_agent.model import DeviceNumber


@dataclasses.dataclass(frozen=True)
class Claim:
    """The claim of one tag on its pool.

    :param pool: device number of the pool
    :param weight: 1 to 1000
    :param least: guaranteed bytes
    :param most: upper bound of its cached data in bytes; 0: no limit
    :param cached: its mode uses the cache
    :param writeback: its writes stay in the cache
    :param isolation: which lanes it may use
    :param lanes: bit mask of the lanes that it has, or that an operator has set
    :param fixed: an operator has set its lanes
    :param read_s: objective for the p99 of its reads in seconds; 0: none
    :param flush_s: objective for the p99 of its flushes in seconds; 0: none
    :param iops: objective for its requests per second; 0: none
    """

    device: DeviceNumber
    id: int
    pool: str
    weight: int = 100
    least: int = 0
    most: int = 0
    cached: bool = True
    writeback: bool = True
    isolation: Isolation = Isolation.SHARED
    lanes: int = 0
    fixed: bool = False
    read_s: float = 0.0
    flush_s: float = 0.0
    iops: float = 0.0

    @property
    def key(self) -> tuple[DeviceNumber, int]:
        """Device and number."""
        return self.device, self.id

    @property
    def objective(self) -> bool:
        """True if it has a service-level objective."""
        return bool(self.read_s or self.flush_s or self.iops)


@dataclasses.dataclass(frozen=True)
class PoolSize:
    """A pool.

    :param number: its device number
    :param size: bytes; 0: unknown
    :param lanes: bytes of each lane, from lane 0 on; empty: unknown
    :param taken: bit mask of the lanes that belong to other tags than those with a claim
    :param hosts: weights of the host tags that have data in it
    """

    number: str
    size: int = 0
    lanes: tuple[int, ...] = ()
    taken: int = 0
    hosts: tuple[int, ...] = ()
