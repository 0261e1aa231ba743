# SPDX-License-Identifier: Apache-2.0
"""The pair of VMs on an HDD-like disk: by itself, then with a cache on an SSD.

The set-up is an operator's: a mapped device with the instances' file system,
`vcache pool create` and `vcache attach` before it is mounted, `vcache detach`
at the end. What a VM gets of the cache says its flavor, to agent and hook.
"""

import contextlib
import time
from collections.abc import Iterator

from bench.demo import pair, vcache
from bench.demo.findings import Findings
from bench.demo.settings import SLOW_INTERVALS, Settings
from bench.demo.vm import Instance
from tests.box import inside as box
from tests.box.disks import settle
from tests.box.steps import at_end, step

# As logical volumes are mapped devices, so is this one.
NAME = "slow-instances"
_POOL = "fast"

# A drain has the slow disk write all that only the cache has.
_DRAIN_SECONDS = 180


def operator(*words: str, timeout: float = 120) -> str:
    """Run the operator's command; return what it says."""
    return box.run("vcache", *words, timeout=timeout).strip()


@contextlib.contextmanager
def pool(fast: str, *options: str) -> Iterator[vcache.Mapped]:
    """Make a pool on the SSD, take it out of use at the end."""
    pair.say(operator("pool", "create", _POOL, fast, *options))
    with at_end(lambda: pair.say(operator("pool", "remove", _POOL))):
        settle()
        yield vcache.Mapped(_POOL)


@contextlib.contextmanager
def attached() -> Iterator[vcache.Mapped]:
    """Put the cache under the device; at the end have all of it written to the disk."""
    vcache.STATE.mkdir(parents=True, exist_ok=True)
    pair.say(operator("attach", NAME, "--pool", _POOL, "--filesystem"))
    with at_end(_detach):
        yield vcache.Mapped(NAME)


def _detach() -> None:
    pair.say(operator("detach", NAME, timeout=_DRAIN_SECONDS).splitlines()[-1])


def slow_half(found: Findings, vms: list[Instance], settings: Settings) -> None:
    """Measure on the disk by itself."""
    with step("slow half"):
        pair.measure_all(found, {"slow": "vda"}, vms, settings, settings.slow_rounds,
                         SLOW_INTERVALS)


def cached_half(found: Findings, fast: str, vms: list[Instance], agent: vcache.Agent,
                settings: Settings) -> None:
    """Put a cache under the running instances, measure the same, and take it away again.

    :param fast: the SSD
    """
    with step("cached half"), pool(fast) as cache:
        with attached() as device:
            with step("waiting for the agent's tags"):
                tags = vcache.wait_for_tags(device, vms, settings.image_mb << 11, tagged=False,
                                            agent=agent)
            for tag in tags:
                pair.say(f"cached: agent assigned tag {tag['id']} to {tag['role']} "
                         f"({tag['name']}), mode {tag['mode']}, weight {tag['weight']}")
            if settings.kill_agent:
                pair.say("cached: killing the agent, as --kill-agent asks")
                agent.process.kill()
            pair.measure_all(found, {"cached": "vda"}, vms, settings, settings.slow_rounds,
                             SLOW_INTERVALS, check=agent.check)
            for key, value in (("tags", vcache.tags(device, vms)), ("table", device.table),
                               ("status", device.status), ("pool_table", cache.table),
                               ("pool_status", cache.status)):
                found.put("cached", key, value=value)
            pair.say(f"cached: {found.data['cached']['status']}")
            pair.say(f"cached: pool: {found.data['cached']['pool_status']}; detaching")
            start = time.monotonic()
        found.put("cached", "detach_seconds", value=round(time.monotonic() - start, 1))
