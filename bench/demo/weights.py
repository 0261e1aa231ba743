# SPDX-License-Identifier: Apache-2.0
"""Two VMs with weights 1:3 share a cache, until one is given a maximum under load.

Set up as in slow_disk.py. Each VM reads and writes at random in a working set of
its own and checks all that it reads (tests/box/guest/mix.c). What each has of the
cache, and how often it finds there what it reads, is read from the kernel.
"""

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree

from bench.demo import pair, slow_disk, vcache
from bench.demo.findings import Findings
from bench.demo.settings import Settings
from bench.demo.vm import Instance
from tests.box import inside as box
from tests.box.steps import at_end, step
from vcache_agent.netlink.client import Client
from vcache_agent.tags import HOST_TAG

SMALL, LARGE, HOST = "small", "large", "host"
#: What the instances of the pair are here, by their weights.
ROLES = {pair.QUIET: SMALL, pair.SYNCER: LARGE}

_NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"

# The cache counts as full at this: a tenth of a pool is kept free for those below
# their share, and beside it up to two chunks for each tag; see native/dm/reclaim/space.c.
_FULL = 0.75
_SAMPLE_SECONDS = 0.5
_FILL_SECONDS = 150
_SETTLE_SECONDS = 150
_DEFLATE_SECONDS = 60
_ANSWER_SECONDS = 60
_VERIFY_SECONDS = 120

# Longer than all of it takes; the command to verify ends it.
_MIX_MS = 600_000


def set_maximum(vm: Instance, most_mb: int) -> None:
    """Give a running instance a maximum, as its flavor would.

    ``vcache tag set`` knows weight and mode only; the maximum is the flavor's, which
    is in the domain's metadata. libvirt tells the agent when it changes.
    """
    text = box.run("virsh", "-q", "metadata", vm.name, _NOVA)
    root = ElementTree.fromstring(text)  # noqa: S314 our own text
    specs = root.find(".//{*}extraSpecs")
    if specs is None:
        raise box.InsideError(f"{vm.role}: no extraSpecs in its metadata: {text}")
    name = specs[0].tag
    ElementTree.SubElement(specs, name, name="vcache:max_mb").text = str(most_mb)
    box.run("virsh", "-q", "metadata", vm.name, _NOVA, "--key", "nova", "--live", "--config",
            "--set", ElementTree.tostring(root, encoding="unicode"))


class Watch:
    """Looks at the tags of the instances and the host's, again and again.

    :param device: the device they are on
    :param vms: the instances; they answer nothing as long as all is well
    :param tags: the instances' tags
    :param check: called at each look; raises if something else that is needed has ended
    """

    def __init__(self, client: Client, device: vcache.Mapped, vms: list[Instance],
                 tags: list[dict[str, Any]], check: Callable[[], None]) -> None:
        self.samples: list[dict[str, Any]] = []
        self._client = client
        self._device = device
        self._vms = vms
        self._check = check
        self._roles = {HOST_TAG: HOST, **{tag["id"]: ROLES[tag["role"]] for tag in tags}}
        self._start = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the watch began."""
        return round(time.monotonic() - self._start, 3)

    def look(self) -> dict[str, Any]:
        """Take a sample of the tags; return it.

        :raises InsideError: if an instance has ended its load, or a tag has gone
        """
        self._check()
        for vm in self._vms:
            reply = vm.poll()
            if reply is not None:
                raise box.InsideError(f"{vm.role}: does not read and write any more: {reply}")
        sample: dict[str, Any] = {"t": self.now()}
        for tag in self._client.tags(self._device.number):
            role = self._roles.get(tag.id)
            if role is not None:
                sample[role] = {
                    "cached_bytes": tag.cached_bytes, "share_bytes": tag.cache_share_bytes,
                    "most_bytes": tag.cache_max_bytes, "dirty_bytes": tag.cache_dirty_bytes,
                    "read_bytes": tag.stats.read_bytes,
                    "hit_bytes": tag.stats.read_hit_bytes + tag.stats.cache_hit_bytes}
        missing = set(self._roles.values()) - sample.keys()
        if missing:
            raise box.InsideError(f"the tags of these have gone: {', '.join(sorted(missing))}")
        self.samples.append(sample)
        return sample

    def until(self, done: Callable[[dict[str, Any]], bool], seconds: float, what: str) -> float:
        """Look until a sample is as it should be; return when that was.

        :raises InsideError: if none is in time
        """
        limit = time.monotonic() + seconds
        while not done(sample := self.look()):
            if time.monotonic() > limit:
                raise box.InsideError(f"{what}: not within {seconds:g} s; last seen: {sample}")
            time.sleep(_SAMPLE_SECONDS)
        return float(sample["t"])

    def settle(self, size: int, after: str) -> None:
        """Look until both instances together have read so many bytes more."""
        start = _read(self.samples[-1])
        self.until(lambda sample: _read(sample) >= start + size, _SETTLE_SECONDS,
                   f"both read {size >> 20} MiB {after}")


def _sum(sample: dict[str, Any], key: str, roles: Iterable[str]) -> int:
    return sum(int(sample[role][key]) for role in roles)


def _read(sample: dict[str, Any]) -> int:
    return _sum(sample, "read_bytes", ROLES.values())


def _sizes(sample: dict[str, Any]) -> int:
    return _sum(sample, "cached_bytes", (*ROLES.values(), HOST))


def _deflate(watch: Watch, vm: Instance, most_mb: int) -> dict[str, Any]:
    """Give an instance a maximum, and look until it is kept; return when what was."""
    def has() -> str:
        return f"{watch.samples[-1][LARGE]['cached_bytes'] / 2**20:.1f} MiB"

    most = most_mb << 20
    asked = watch.now()
    pair.say(f"weights: a maximum of {most_mb} MiB for {LARGE}, which has {has()}")
    with ThreadPoolExecutor() as beside:
        done = beside.submit(set_maximum, vm, most_mb)
        watch.until(lambda _: done.done(), _DEFLATE_SECONDS, "libvirt has the maximum")
        done.result()
    told = watch.until(lambda sample: sample[LARGE]["most_bytes"] == most, _DEFLATE_SECONDS,
                       "the agent tells the kernel the maximum")
    fell = watch.until(lambda sample: sample[LARGE]["cached_bytes"] <= most, _DEFLATE_SECONDS,
                       f"{LARGE} has its maximum at most")
    pair.say(f"weights: {LARGE} has {has()}, {fell - asked:.1f} s after it was asked for")
    return {"asked": asked, "told": told, "fell": fell, "most_bytes": most}


def _course(watch: Watch, vms: list[Instance], size: int, settings: Settings) -> dict[str, Any]:
    """Let both fill the cache, give one a maximum, let both go on; return when what was."""
    full = watch.until(lambda sample: _sizes(sample) >= _FULL * size, _FILL_SECONDS,
                       f"{_FULL:.0%} of the cache's {size >> 20} MiB are used")
    pair.say(f"weights: the cache is full after {full:.0f} s")
    watch.settle(settings.mix_settle_mb << 20, "once it was full")
    fall = _deflate(watch, next(vm for vm in vms if ROLES[vm.role] == LARGE), settings.mix_most_mb)
    refilled = watch.until(lambda sample: _sizes(sample) >= _FULL * size, _FILL_SECONDS,
                           f"{SMALL} fills what {LARGE} has left")
    pair.say(f"weights: {SMALL} has {watch.samples[-1][SMALL]['cached_bytes'] / 2**20:.1f} MiB")
    watch.settle(settings.mix_settle_mb << 20, "once it was full again")
    return {"full": full, **fall, "refilled": refilled}


def _load(vms: list[Instance], settings: Settings,
          during: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Have both VMs read and write meanwhile, then read back all that they wrote."""
    areas = {SMALL: settings.mix_small_mb << 20, LARGE: settings.mix_large_mb << 20}
    common = {"dev": "/dev/vda", "bs": settings.mix_kb << 10}
    for number, vm in enumerate(vms, 1):
        vm.send("mix", **common, size=areas[ROLES[vm.role]], reads=settings.mix_reads_pct,
                think_us=settings.mix_think_us, time_ms=_MIX_MS, seed=number)
    moments = during()
    for vm in vms:
        vm.send("verify", **common, size=areas[ROLES[vm.role]])
    checked = {ROLES[vm.role]: {"area_bytes": areas[ROLES[vm.role]], **vm.receive(_ANSWER_SECONDS),
                         **vm.receive(_VERIFY_SECONDS)} for vm in vms}
    pair.say(f"weights: both have read back all that they wrote: {checked}")
    return {"moments": moments, "checked": checked}


def _clear(vms: list[Instance], settings: Settings) -> None:
    """Have the VMs overwrite what other parts have left on their disks; mix begins with zeroes."""
    for vm in vms:
        vm.send("fill", dev="/dev/vda", size=settings.image_mb << 20)
    for vm in vms:
        vm.receive(_VERIFY_SECONDS)


def measure(found: Findings, fast: str, vms: list[Instance], agent: vcache.Agent,
            settings: Settings) -> None:
    """Run both on a cache that they share; leave the disk without it.

    :param fast: the SSD
    """
    with step("clearing the disks of the instances"):
        _clear(vms, settings)
    with (slow_disk.pool(fast, "--chunk-kib", str(settings.mix_chunk_kb)) as cache,
          slow_disk.attached() as device, Client() as client):
        with step("waiting for the agent's tags"):
            tags = vcache.wait_for_tags(device, vms, settings.image_mb << 11, tagged=False,
                                        agent=agent)
        policy = json.loads(slow_disk.operator("policy", "show", "--json"))
        words = cache.status.split()
        chunk, size = int(words[4]) * 512, int(words[4]) * 512 * int(words[5])
        for tag in tags:
            pair.say(f"weights: agent assigned tag {tag['id']} to {ROLES[tag['role']]} "
                     f"({tag['role']}), weight {tag['weight']}, policy {policy['policy']}")
        watch = Watch(client, device, vms, tags, agent.check)
        with at_end(lambda: found.put("samples", value=watch.samples)):
            result = _load(vms, settings, lambda: _course(watch, vms, size, settings))
        tags = [{**tag, "role": ROLES[tag["role"]]} for tag in vcache.tags(device, vms)]
        for key, value in {**result, "policy": policy["policy"], "chunk_bytes": chunk,
                           "size_bytes": size, "tags": tags, "status": device.status,
                           "pool_status": cache.status}.items():
            found.put(key, value=value)
