# SPDX-License-Identifier: Apache-2.0
"""In the box: the agent's process on a host with 250 domains, see host.py.

``python -m bench.agent.process FILE [PROFILE]`` writes the figures as JSON. With a second
argument, it also writes the profile of the agent's worker to that file.
"""

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.agent.host import DISKS, EXTENTS, Slow, Vm, domains, images, slow
from bench.agent.speed import work_ms
from tests.box.inside import load_module, run
from tests.box.machine import REPO
from vcache_agent.admin_client import AdminError, ask
from vcache_agent.framing import receive, send
from vcache_agent.model import Tag
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client

_RUN = Path("/run/bench-agent")
_ADMIN, _HOOK_CONF = _RUN / "admin.sock", Path("/etc/vcache/hook.conf")
_LOG = _RUN / "agent.log"
_METRICS = "http://127.0.0.1:9587/metrics"
_TICKS = os.sysconf("SC_CLK_TCK")

# Time after the first pass until the agent is quiet, and for which it is measured, in seconds.
# Files whose last change is less than a minute ago may be read again.
_SETTLE_S, _QUIET_S = 62.0, 40.0
# Least number of passes whose time is measured. With a profile, passes take longer.
_PASSES = 8
# Seconds between two looks whether something is complete: a look takes time of the processor
# that the agent has.
_LOOK_S = 0.2
_HOOKS = 20
_OPERATIONS = ("prepare", "start", "started", "stopped", "release")
_PATIENCE_S = 600.0


def _file(pid: int, name: str) -> str:
    """Return a file of a process; it is empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


class Agent:
    """The agent's process."""

    def __init__(self, uri: str, profile: str | None = None) -> None:
        _RUN.mkdir(exist_ok=True)
        conf = _RUN / "agent.conf"
        conf.write_text(f"[agent]\nstate_path = {_RUN}/agent.sqlite\n"
                        f"hook_socket = {_RUN}/hook.sock\nadmin_socket = {_ADMIN}\n"
                        f"[libvirt]\nuri = {uri}\n")
        module = ["bench.agent.profiled", profile] if profile else ["vcache_agent.cmd.agent"]
        with open(_LOG, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *module, "--config-file", str(conf)], cwd=REPO,
                # As in vcache-agent.service.
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_PATIENCE_S)

    def _all(self) -> list[int]:
        """Return the numbers of its processes, the helpers included."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True,
                                  text=True, check=False).stdout.split()
        return [self.process.pid, *map(int, children)]

    def cpu_s(self) -> tuple[float, float]:
        """Return the processor time in seconds of the agent, and of its present helpers."""
        def taken(pid: int) -> float:
            # The name of the program may contain spaces; utime is 11 fields after the state.
            fields = _file(pid, "stat").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0

        main, *helpers = map(taken, self._all())
        return main, sum(helpers)

    def memory_mb(self) -> tuple[float, float]:
        """Return the resident memory in MB (10^6 bytes) of the agent, and of its helpers."""
        def used(pid: int) -> float:
            return sum(int(line.split()[1]) * 1024 / 1e6
                       for line in _file(pid, "status").splitlines() if line.startswith("VmRSS"))

        main, *helpers = map(used, self._all())
        return main, sum(helpers)

    def passes(self) -> tuple[float, float]:
        """Return the number of its passes and their processor time in seconds."""
        with urllib.request.urlopen(_METRICS, timeout=_PATIENCE_S) as answer:  # noqa: S310
            text = answer.read().decode()
        samples = [one for family in text_string_to_metric_families(text)
                   for one in family.samples]
        return (sum(one.value for one in samples
                    if one.name == "vcache_agent_reconcile_passes_total"),
                next(one.value for one in samples
                     if one.name == "vcache_agent_reconcile_cpu_seconds_total"))


def until(probe: Callable[[], object], what: str) -> None:
    """Wait until a probe returns a true value."""
    limit = time.monotonic() + _PATIENCE_S
    while not probe():
        if time.monotonic() > limit:
            raise SystemExit(f"bench.agent: not within {_PATIENCE_S:g} s: {what}\n"
                             + _LOG.read_text(errors="replace")[-3000:])
        time.sleep(_LOOK_S)


def tags() -> list[Tag]:
    """Return the kernel's tags of disks."""
    with Client(60) as client:
        return [tag for tag in client.snapshot(TagDecoder())[1] if tag.id]


def complete() -> bool:
    """Return whether the kernel has all extents and cgroups of all disks."""
    found = tags()
    return len(found) == DISKS and all(
        tag.extents_count == EXTENTS and tag.cgroups for tag in found)


def state() -> dict[str, Any]:
    """Return the agent's state, or nothing while it does not answer."""
    try:
        return ask(_ADMIN, {"op": "state"}, _PATIENCE_S)
    except AdminError:
        return {}


def reconciled() -> bool:
    """Return whether the agent has completed a pass, and all disks have their tag."""
    found = state()
    return bool(found) and not found["agent"]["problem"] and len(found["disks"]) == DISKS and all(
        disk["state"] == "isolated" for disk in found["disks"])


def times(agent: Agent) -> list[float]:
    """Return the processor times in seconds of some passes."""
    found: list[float] = []
    before = agent.passes()
    limit = time.monotonic() + _PATIENCE_S
    while len(found) < _PASSES:
        if time.monotonic() > limit:
            raise SystemExit(f"bench.agent: {len(found)} passes within {_PATIENCE_S:g} s")
        time.sleep(1.0)  # passes are five seconds apart
        after = agent.passes()
        if after[0] > before[0]:
            found.append((after[1] - before[1]) / (after[0] - before[0]))
            before = after
    return found


def quiet(agent: Agent) -> dict[str, float]:
    """Measure the agent while nothing changes."""
    time.sleep(_SETTLE_S)
    speed = work_ms()
    passes, began, cpu = agent.passes(), time.monotonic(), agent.cpu_s()
    time.sleep(_QUIET_S)
    after, ended, used = agent.passes(), time.monotonic(), agent.cpu_s()
    main, helpers = ((new - old) / (ended - began) for new, old in zip(used, cpu, strict=True))
    memory = agent.memory_mb()
    periods = [1000 * seconds for seconds in times(agent)]
    return {
        "work_ms": (speed + work_ms()) / 2,
        "period_ms": statistics.median(periods), "period_ms_mean": statistics.mean(periods),
        "passes_per_min": 60 * (after[0] - passes[0]) / (ended - began),
        "agent_cpu_ms_per_s": 1000 * main, "helpers_cpu_ms_per_s": 1000 * helpers,
        "rss_mb": sum(memory), "agent_rss_mb": memory[0], "helpers_rss_mb": memory[1]}


def process(vm: Vm, operation: str) -> None:
    """Run libvirt's hook for a domain."""
    subprocess.run([REPO / "libvirt_hooks" / "qemu", vm.name, operation, "begin", "-"],
                   input=vm.xml("kvm").encode(), check=True, capture_output=True)


def request(vm: Vm, operation: str) -> None:
    """Send the hook's request for a domain, and wait for the agent's answer."""
    fields = [b"1", vm.name.encode(), operation.encode(), b"begin", b"-", vm.xml("kvm").encode()]
    deadline = time.monotonic() + _PATIENCE_S
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{_RUN}/hook.sock")
        send(connection, b"\0".join(fields), deadline)
        answer = receive(connection, 1 << 16, deadline)
    # With a text, the disk could not be checked within prepare_timeout.
    if not answer.startswith(b"accept\0"):
        raise SystemExit(f"bench.agent: hook {operation} of {vm.name}: {answer!r}")


def empty(_vm: Vm, _operation: str) -> None:
    """Run an interpreter as the hook's, which does nothing."""
    subprocess.run(["/usr/bin/python3", "-IS", "-c", ""], check=True)


def hooks(target: Path) -> dict[str, float]:
    """Measure the hook while a path hangs, for domains that start and stop."""
    _HOOK_CONF.parent.mkdir(exist_ok=True)
    _HOOK_CONF.write_text(f"socket = {_RUN}/hook.sock\ntimeout = 5\n")
    found: dict[str, float] = {}
    for name, do in (("hook", request), ("hook_process", process), ("empty_process", empty)):
        taken = []
        for number in range(_HOOKS):
            vm = Vm(f"{name}{number}", target)
            for operation in _OPERATIONS:
                began = time.perf_counter()
                do(vm, operation)
                taken.append(1000 * (time.perf_counter() - began))
        found |= {f"{name}_ms_p99": sorted(taken)[-max(1, len(taken) // 100)],
                  f"{name}_ms_median": statistics.median(taken)}
    return found


@contextlib.contextmanager
def hanging(device: Slow, vm: Vm) -> Iterator[None]:
    """Let the path of a domain's disk hang, and wait until the agent has noticed."""
    device.hang()

    def noticed() -> bool:
        device.forget()
        note = next(disk["note"] for disk in state()["disks"] if disk["uuid"] == vm.uuid)
        return "does not answer" in note

    until(noticed, "the path hangs")
    yield
    device.go_on()


def measure(uri: str, vms: list[Vm], device: Slow, profile: str | None) -> dict[str, float]:
    """Measure all figures."""
    began = time.monotonic()
    agent = Agent(uri)
    until(complete, "all disks have their tag")
    found = {"first_reconcile_s": time.monotonic() - began,
             "first_reconcile_cpu_s": sum(agent.cpu_s())}
    until(reconciled, "a pass is complete")
    agent.stop()
    began = time.monotonic()
    agent = Agent(uri, profile)
    until(reconciled, "a pass is complete after a restart")
    found |= {"restart_reconcile_s": time.monotonic() - began,
              "restart_reconcile_cpu_s": sum(agent.cpu_s())}
    print(found, flush=True)
    found |= quiet(agent)
    print(found, flush=True)
    with hanging(device, vms[0]):
        found |= hooks(vms[1].disk)
    agent.stop()
    return found


def main() -> int:
    """Measure, and write the figures."""
    run("modprobe", "null_blk", "nr_devices=0")
    load_module()
    with images(DISKS) as paths, slow() as device:
        device.link(paths[0])
        vms = [Vm(f"vm{number}", device.path if number == 0 else path)
               for number, path in enumerate(paths)]
        print(f"{len(vms)} images", flush=True)
        with domains(vms) as uri:
            found = measure(uri, vms, device, sys.argv[2] if len(sys.argv) > 2 else None)
    print(found, flush=True)
    Path(sys.argv[1]).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
