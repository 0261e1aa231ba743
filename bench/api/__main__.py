# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of vcache-api with many hosts: ``python -m bench.api``.

Keystone, Placement, RabbitMQ and vcache-api run as in tests/openstack_api, with default
intervals. fleet.py provides the hosts. Lists are requested alternately from vcache-api and
from Placement, with the same number of providers. Writes build/bench/api.json.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from bench.api.fleet import INSTANCES, instance_number, node_name
from nova_vcache.placement import names
from nova_vcache.rpc import api_side
from tests.box.steps import Stack, each, explained, on_error, step
from tests.cloud.memory import pss_mib
from tests.cloud.processes import wait_for
from tests.openstack.agents import PROJECT, uuid_of
from tests.openstack_api.cloud import Cloud

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench" / "api.json"
STEPS = (10, 100, 1000)
FLEET = 250  # hosts per process
LISTS, CHANGES = 100, 50
STEADY_SECONDS, FLOOD_SECONDS = 30, 10


class DefaultCloud(Cloud):
    """vcache-api with its default configuration."""

    api_options = ""


class Fleet:
    """A process with hosts."""

    def __init__(self, bus: str, first: int, count: int, log: Path) -> None:
        self._log = log
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.api.fleet", "--bus", bus, "--first", str(first),
                 "--count", str(count)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=output, text=True)
        with on_error(self.close):
            self.answer()

    def tell(self, command: str) -> None:
        """Send a command."""
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the next answer."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process with hosts has exited; end of its log:\n"
                               + self._log.read_text(errors="replace")[-2000:])
        return json.loads(line)

    def close(self) -> None:
        """Stop the process."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has exited
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Bench:
    """The cloud and its hosts.

    :param cloud: the cloud, without hosts
    """

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.count = 0
        self.fleets: list[Fleet] = []

    def grow(self, count: int) -> None:
        """Start hosts until there are `count`; wait until all processes of the API know them."""
        for number in range(self.count, count):
            self._register(node_name(number))
        while self.count < count:
            size = min(FLEET, count - self.count)
            self.fleets.append(Fleet(self.cloud.rabbit.url, self.count, size,
                                     self.cloud.folder / f"fleet-{self.count}.log"))
            self.count += size
        self.await_all()

    def _register(self, node: str) -> None:
        """Create a host's providers in Placement: its root, and ours with our trait."""
        root = self.cloud.compute_node(node)
        ours = str(uuid.uuid4())
        self._placement("PUT", f"/traits/{names.OWNER}")
        self._placement("POST", "/resource_providers", json={
            "name": names.provider_name(node), "uuid": ours, "parent_provider_uuid": root})
        self._placement("PUT", f"/resource_providers/{ours}/traits", json={
            "traits": [names.OWNER], "resource_provider_generation": 0})

    def _placement(self, method: str, path: str, **options: Any) -> Any:
        answer = self.cloud.placement(method, path, **options)
        if answer.status_code >= 300:
            raise RuntimeError(f"Placement: {method} {path}: {answer.text}")
        return answer

    def get(self, path: str) -> Any:
        """Send a GET request to the API."""
        answer = self.cloud.ask("GET", path)
        if answer.status_code != 200:
            raise RuntimeError(f"vcache-api: GET {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def await_all(self, seconds: float = 600.0) -> None:
        """Wait until several responses in a row, so of all processes, show all hosts as up."""
        def all_up() -> bool:
            for _ in range(6):
                try:
                    found = self.get("/v1/hosts")["hosts"]
                except requests.RequestException:
                    return False  # it is starting, or busy
                if sum(item["state"] == "up" for item in found) != self.count:
                    return False
            return True

        wait_for(all_up, f"{self.count} hosts are up", seconds)

    def lists(self) -> dict[str, dict[str, float]]:
        """Return the milliseconds of lists, alternating with Placement's."""
        placement = f"/resource_providers?required={names.OWNER}"
        found = self._placement("GET", placement).json()["resource_providers"]
        if len(found) != self.count:
            raise RuntimeError(f"Placement lists {len(found)} providers of {self.count}")
        limit = min(self.count, 1000)
        return measured({
            "hosts": lambda: self._check("hosts", "/v1/hosts", limit),
            "hosts_summary": lambda: self._check("hosts", "/v1/hosts?view=summary", self.count),
            "instances_page_of_1000": lambda: self._check(
                "instances", "/v1/instances?all_projects=true",
                min(self.count * INSTANCES, 1000)),
            "placement_providers": lambda: self._placement("GET", placement)}, LISTS)

    def _check(self, name: str, path: str, wanted: int) -> None:
        found = len(self.get(path)[name])
        if found != wanted:
            raise RuntimeError(f"{path} has {found} items of {wanted}")

    def changes(self) -> dict[str, float]:
        """Return the milliseconds of a change of an instance: RPC to a host and back."""
        number = 0

        def change() -> None:
            nonlocal number
            number += 1
            host = number * 7 % self.count
            answer = self.cloud.ask(
                "PUT", f"/v1/instances/{uuid_of(instance_number(host, 0))}/override",
                json={"weight": number})
            if answer.status_code != 200:
                raise RuntimeError(f"override: {answer.status_code} {answer.text}")

        return measured({"override": change}, CHANGES)["override"]

    def casts(self) -> int:
        """Return the number of reports that all hosts have sent."""
        for fleet in self.fleets:
            fleet.tell("casts")
        return sum(fleet.answer() for fleet in self.fleets)

    def steady(self) -> dict[str, float]:
        """Return RabbitMQ's message rates and the processor time without requests."""
        casts, messages, busy, start = (self.casts(), self.messages(), self.cpu_seconds(),
                                        time.monotonic())
        time.sleep(STEADY_SECONDS)
        taken = time.monotonic() - start
        found = {"reports_per_second": (self.casts() - casts) / taken}
        for name, value in self.messages().items():
            found[f"messages_{name}_per_second"] = (value - messages[name]) / taken
        for name, seconds in self.cpu_seconds().items():
            found[f"{name}_cpu_percent"] = (seconds - busy[name]) / taken * 100
        return {name: round(value, 2) for name, value in found.items()}

    def flood(self) -> dict[str, float]:
        """Return the rate of reports that the API processes if hosts send without pause."""
        start = time.monotonic()
        for fleet in self.fleets:
            fleet.tell(f"flood {FLOOD_SECONDS}")
        sent = sum(fleet.answer() for fleet in self.fleets)
        sending = time.monotonic() - start
        wait_for(lambda: self.backlog() == 0, "RabbitMQ has handed over all", 600)
        taken = time.monotonic() - start
        return {"reports": sent, "sending_seconds": round(sending, 2),
                "until_taken_seconds": round(taken, 2),
                "reports_taken_per_second": round(sent / taken, 1)}

    def restart(self) -> float | None:
        """Return the seconds from the start of the API until it knows all hosts.

        None: not within five minutes. In this case, the machine cannot answer for all hosts
        at once.
        """
        self.cloud.api.stop()
        self.cloud.api.start()
        start = time.monotonic()
        try:
            self.await_all(300)
        except AssertionError:
            return None
        return round(time.monotonic() - start, 2)

    def messages(self) -> dict[str, int]:
        """Return RabbitMQ's counters of messages since its start."""
        text = self.cloud.rabbit.control("eval", "rabbit_global_counters:overview().")
        return {name: sum(int(value) for value in re.findall(rf"messages_{name}_total *=> *(\d+)",
                                                             text))
                for name in ("received", "delivered")}

    def backlog(self) -> int:
        """Return the number of messages that wait for processes of the API."""
        # Without notifications, which have no consumer here, and queues of stopped processes.
        text = self.cloud.rabbit.control("--quiet", "list_queues", "--no-table-headers",
                                         "name", "messages", "consumers")
        queues = [line.split() for line in text.splitlines()]
        return sum(int(messages) for name, messages, consumers in queues
                   if name.startswith(api_side.TOPIC) and consumers != "0")

    def processes(self) -> dict[str, list[int]]:
        """Return the process IDs of the API's workers and of the broker's virtual machine."""
        return {"api": children(self.cloud.api.pid),
                "rabbitmq": [pid for pid in everyone_below(self.cloud.rabbit.pid)
                             if "beam" in Path(f"/proc/{pid}/comm").read_text()]}

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor time of these processes."""
        def ticks(pid: int) -> int:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        return {name: sum(map(ticks, pids)) / os.sysconf("SC_CLK_TCK")
                for name, pids in self.processes().items()}

    def memory(self) -> dict[str, int]:
        """Return MiB of memory: of the larger process of the API, and of the broker."""
        found = {name: [pss_mib(pid) for pid in pids] for name, pids in self.processes().items()}
        return {"api_process_mib": max(found["api"]), "rabbitmq_mib": sum(found["rabbitmq"])}


def measured(actions: dict[str, Callable[[], object]], runs: int) -> dict[str, dict[str, float]]:
    """Return median and 99th percentile of the milliseconds of each, called alternately."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for run in range(runs + 4):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if run >= 4:  # the first calls of each process fill caches
                taken[name].append((time.perf_counter() - start) * 1000)
    return {name: {"p50_ms": round(statistics.median(times), 2),
                   "p99_ms": round(statistics.quantiles(times, n=100, method="inclusive")[98], 2)}
            for name, times in taken.items()}


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(found) for task in Path(f"/proc/{pid}/task").iterdir()
            for found in (task / "children").read_text().split()]


def everyone_below(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    return [pid, *(found for child in children(pid) for found in everyone_below(child))]


def measure(bench: Bench, count: int) -> dict[str, Any]:
    """Measure everything with a number of hosts, and print the results."""
    start = time.monotonic()
    bench.grow(count)
    print(f"{count} hosts, after {time.monotonic() - start:.0f} s", flush=True)
    found: dict[str, Any] = {}
    for name, work in (
            ("lists", bench.lists), ("change", bench.changes), ("steady", bench.steady),
            ("memory", bench.memory), ("flood", bench.flood), ("restart_seconds", bench.restart)):
        with step(f"{count} hosts, {name}"):
            found[name] = work()
        print(f"  {name}: {json.dumps(found[name])}", flush=True)
    placement = found["lists"]["placement_providers"]
    for part in ("p50", "p99"):
        found[f"hosts_{part}_of_placement"] = round(
            found["lists"]["hosts"][f"{part}_ms"] / placement[f"{part}_ms"], 3)
    return found


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=STEPS, metavar="N")
    steps = sorted(parser.parse_args().hosts)
    for name in [name for name in os.environ if name.startswith("OS_")]:
        del os.environ[name]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stop all processes
    # A broker without enough file descriptors makes its clients wait.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 4 * steps[-1]:
        print(f"bench-api: {steps[-1]} hosts need {4 * steps[-1]} open files, the limit is {hard}",
              file=sys.stderr)
        return 1
    with explained("bench-api"), Stack() as stack:
        folder = tempfile.TemporaryDirectory()
        stack.callback(folder.cleanup)
        os.chmod(folder.name, 0o755)  # noqa: S103 - the broker may run as another user
        cloud = DefaultCloud(Path(folder.name))
        stack.callback(cloud.close)
        bench = Bench(cloud)
        stack.callback(lambda: each(Fleet.close, bench.fleets))
        found = {"hosts": {str(count): measure(bench, count) for count in steps}}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found | {
        "instances_per_host": INSTANCES, "project": PROJECT,
        "method": f"{LISTS} lists of each kind in turn, {CHANGES} changes, one at a time; two "
                  "processes of the API; default intervals; hosts in processes of "
                  f"{FLEET} on the same machine"}, indent=1) + "\n")
    print("bench-api: build/bench/api.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
