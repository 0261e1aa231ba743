# SPDX-License-Identifier: Apache-2.0
"""What an operator sees and changes of the destage of a device: limits, pause, progress.

They are messages to the target. A limit belongs to the device's table: it stays when the mode
changes, and is gone when the device is detached or the host is shut down.
"""

import dataclasses

from vcache_agent import pools
from vcache_agent.dm import Dm, DmError, Info, KernelWords
from vcache_agent.pools import LIMITS, PoolError

#: Longest pause in s.
PAUSE_MAX = 86400


@dataclasses.dataclass(frozen=True)
class Progress:
    """The destage of a device now; sizes in bytes.

    :param state: as in :class:`pools.CacheState`
    :param destaged: written to the origin since the volume was loaded
    :param paused: for how long destage is paused, in s
    :param limits: by name, from :data:`pools.LIMITS`
    """

    name: str
    state: str
    dirty: int
    destaged: int
    paused: int
    limits: dict[str, int]


def progress(dm: Dm, device: str) -> Progress:
    """Return how far the destage of a device is.

    :raises PoolError: if it has no cache, or the loaded module is too old
    """
    info = pools.find(dm, device)
    mapping = pools.mapping_of(dm, info)
    cache = pools.cache_state(dm, info) if mapping else None
    if mapping is None or cache is None:
        raise PoolError(f"{info.name} has no cache, it must be an attached device")
    if cache.paused is None:
        raise PoolError(f"{info.name}: the loaded kernel module is too old, its destage has "
                        "no limits")
    return Progress(info.name, cache.state, cache.dirty, cache.destaged, cache.paused,
                    LIMITS | dict(mapping.limits))


def change(dm: Dm, device: str, limits: dict[str, int], pause: int | None = None) -> None:
    """Change the limits of a device, or pause its destage.

    :param limits: new values by name, from :data:`pools.LIMITS`
    :param pause: in s, 0 to :data:`PAUSE_MAX`; 0 ends a pause; None: leave it
    :raises PoolError: if that is not possible; then nothing is changed
    """
    before = progress(dm, device)
    after = before.limits | limits
    if after["destage_low"] > after["destage_high"]:
        raise PoolError(f"{before.name}: the low part of a share, {after['destage_low']} %, must "
                        f"not be greater than the high one, {after['destage_high']} %")
    info = pools.find(dm, device)
    # The kernel checks each message: the two parts must fit together in between, too.
    grows = after["destage_high"] >= before.limits["destage_high"]
    for name in sorted(limits, reverse=not grows):
        _tell(dm, info, f"{name} {limits[name]}")
    if pause is not None:
        _tell(dm, info, f"pause {pause}")


def _tell(dm: Dm, info: Info, text: str) -> None:
    words = KernelWords()
    try:
        dm.message(info.name, text)
    except DmError as error:
        raise PoolError(f"{info.name}: {words.last() or error.strerror}") from None
    finally:
        words.close()
