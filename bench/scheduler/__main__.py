# SPDX-License-Identifier: Apache-2.0
"""Measure the time of a request in filters and weighers: ``python -m bench.scheduler``.

Our and Nova's classes run alternately on the same hosts in one run, so that the load of
the machine affects all of them equally. Every host passes every filter, which is the
most expensive case. Writes build/bench/scheduler.json.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Nova's own switch, set before Nova is imported.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova import objects
from nova.scheduler import weights
from nova.scheduler.filters import compute_capabilities_filter, numa_topology_filter
from nova.scheduler.weights import cpu, disk, io_ops, ram

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import names
from nova_vcache.scheduler import snapshot
from nova_vcache.scheduler.filter import CONF, VCacheFilter
from nova_vcache.scheduler.weigher import VCacheWeigher
from nova_vcache.summary import HostSummary, Summary
from tests.openstack.hosts import host_state, request

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench" / "scheduler.json"
RUNS = 15
# Number of measurements of slow classes.
_SLOW_MS, _SLOW_RUNS = 300, 3

FLAVOR = {
    "vcache:mode": "writeback", "vcache:min_mb": "1024", "vcache:weight": "300",
    "vcache:slo_flush_ms": "5", "vcache:required": "true",
    "resources:CUSTOM_VCACHE_MB": "1024", "resources:CUSTOM_VCACHE_VTAG": "1",
    "trait:CUSTOM_VCACHE_WRITEBACK": "required", "hw:cpu_policy": "shared",
    "capabilities:hypervisor_type": "QEMU"}


def hosts(count: int) -> list[Any]:
    """Return hosts as in the scheduler."""
    topology = objects.NUMATopology(cells=[objects.NUMACell(
        id=cell, cpuset=set(range(32)), pcpuset=set(), memory=65536, cpu_usage=0, memory_usage=0,
        pinned_cpus=set(), siblings=[{cpu} for cpu in range(32)],
        mempages=[objects.NUMAPagesTopology(size_kb=4, total=1 << 24, used=0)])
        for cell in range(2)])
    found = []
    for number in range(count):
        host = host_state(f"node{number}", {names.TAG: 1, names.CACHE_MB: 1024})
        host.hypervisor_type, host.stats = "QEMU", {}
        host.free_ram_mb, host.vcpus_total, host.vcpus_used = 65536 - number, 64, number % 64
        host.free_disk_mb, host.num_io_ops = 10**6 - number, number % 9
        host.numa_topology = topology
        host.ram_allocation_ratio = host.cpu_allocation_ratio = 1.0
        found.append(host)
    return found


def document(count: int) -> Any:
    """Return the summary of as many hosts."""
    modes = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY})
    return json.loads(json.dumps(Summary({f"node{n}": HostSummary(
        f"node{n}", age_s=n % 5, modes=modes, flush_isolation=True, tags_free=60000,
        cache_mb=900000, cache_free_mb=400000 - n, largest_free_mb=200000, weight=100 * (n % 40),
        idle_mb=n % 1000, loss_per_gb=float(n % 77), flush_p99_ms=n % 40 / 10, slo_tags=5,
        slo_missed=n % 3) for n in range(count)}).to_json()))


def measured(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median milliseconds of each, called alternately."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for run in range(RUNS + 1):
        for name, action in actions.items():
            if run > _SLOW_RUNS and taken[name][-1] > _SLOW_MS:
                continue
            start = time.perf_counter()
            action()
            if run:  # the first call fills caches
                taken[name].append((time.perf_counter() - start) * 1000)
    return {f"{name}_ms": round(statistics.median(times), 3) for name, times in taken.items()}


def compare(count: int) -> dict[str, float]:
    """Measure everything with a number of hosts."""
    found, spec = hosts(count), request(
        FLAVOR, image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        pci_requests=objects.InstancePCIRequests(requests=[]), numa_topology=None)
    numa = spec.obj_clone()
    numa.numa_topology = objects.InstanceNUMATopology(cells=[objects.InstanceNUMACell(
        id=0, cpuset={0, 1}, pcpuset=set(), memory=512, pagesize=None, cpu_policy=None,
        cpu_thread_policy=None, cpuset_reserved=None, cpu_pinning_raw=None)])
    answer = document(count)
    start = time.perf_counter()
    summary = Summary.parse(answer)
    parse_ms = (time.perf_counter() - start) * 1000
    cache = snapshot.SummaryCache(lambda: answer, 3600, 3600)
    snapshot.replace_shared(cache)
    while not cache.view().hosts:
        time.sleep(0.01)
    assert len(summary.hosts) == count

    def filters(kind: Any, asked: Any) -> Callable[[], object]:
        def action() -> None:
            passed = len(list(kind.filter_all(found, asked)))
            assert passed == count, f"{type(kind).__name__}: {passed} of {count} hosts pass"
        return action

    def weighs(kind: Any) -> Callable[[], object]:
        # Including Nova's work for each weigher: normalizing, multipliers, sorting.
        return lambda: weights.HostWeightHandler().get_weighed_objects([kind], found, spec)

    result = measured({
        "vcache_filter": filters(VCacheFilter(), spec),
        "compute_capabilities_filter": filters(
            compute_capabilities_filter.ComputeCapabilitiesFilter(), spec),
        "numa_topology_filter": filters(numa_topology_filter.NUMATopologyFilter(), spec),
        "numa_topology_filter_asked": filters(numa_topology_filter.NUMATopologyFilter(), numa),
        "vcache_weigher": weighs(VCacheWeigher()), "ram_weigher": weighs(ram.RAMWeigher()),
        "cpu_weigher": weighs(cpu.CPUWeigher()), "disk_weigher": weighs(disk.DiskWeigher()),
        "io_ops_weigher": weighs(io_ops.IoOpsWeigher())})
    snapshot.replace_shared(None)
    return result | {"summary_parse_background_ms": round(parse_ms, 3)}


def main() -> int:
    """Measure and report."""
    argparse.ArgumentParser(prog="python -m bench.scheduler", description=__doc__).parse_args()
    CONF([], default_config_files=[])
    found = {}
    for count in (1000, 10000):
        found[str(count)] = one = compare(count)
        print(f"{count} hosts")
        for name, value in one.items():
            print(f"  {name:36}{value:10.3f}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({
        "hosts": found,
        "method": f"median of {RUNS} requests in turn, all hosts pass; weighers with Nova's "
                  "normalizing and sorting; logging at its default level"}, indent=1) + "\n")
    print("bench-scheduler: build/bench/scheduler.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
