# SPDX-License-Identifier: Apache-2.0
"""Run many hosts in one process: ``python -m bench.api.fleet --bus URL --first N --count N``.

Each host has a real :class:`nova_vcache.host.service.Host` and a real RPC server with its own
connection to RabbitMQ. Only its agent is replaced: it answers from memory. The hosts do not
report to Placement. One thread polls all of them, at the interval that each would use.

Commands are lines on standard input, answers are lines of JSON on standard output:

``casts``
    number of reports sent
``flood SECONDS``
    send reports without pause; number of reports sent
"""

import argparse
import json
import os
import random
import sys
import threading
import time

import oslo_messaging as messaging
from oslo_config import cfg

from nova_vcache.host import conf as host_conf
from nova_vcache.host.service import Endpoint, Host
from nova_vcache.rpc import host_side
from nova_vcache.rpc.api_side import ApiClient
from nova_vcache.rpc.report import HostReport
from tests.openstack.agents import PROJECT, FakeAgent

INSTANCES = 20
_FLOODERS = 4


def node_name(number: int) -> str:
    """Return a host's name."""
    return f"node{number:04d}"


def instance_number(host: int, number: int) -> int:
    """Return the number from which an instance's UUID is derived."""
    return host * 1000 + number + 1


class Fleet:
    """The hosts of this process.

    :param bus: URL of RabbitMQ
    :param numbers: numbers of the hosts
    """

    def __init__(self, bus: str, numbers: range) -> None:
        conf = cfg.CONF
        host_conf.register(conf)
        conf([], default_config_files=[])
        transport = messaging.get_rpc_transport(
            conf, url=bus, allowed_remote_exmods=host_side.EXMODS)
        self._interval = conf[host_conf.GROUP].look_interval
        self._client = ApiClient(transport)
        self._count = 0
        self._lock = threading.Lock()
        self._hosts = [self._host(number) for number in numbers]
        self._servers = [messaging.get_rpc_server(
            transport, messaging.Target(topic=host_side.TOPIC, server=host.node),
            [Endpoint(host)]) for host in self._hosts]
        # Real hosts would not all poll at the same moment.
        self._due = [(time.monotonic() + random.uniform(0, self._interval), host)
                     for host in self._hosts]

    def _host(self, number: int) -> Host:
        agent = FakeAgent()
        for item in range(INSTANCES):
            agent.add(instance_number(number, item), PROJECT, slo_flush_ms=5.0)
        return Host(node_name(number), agent.ask, self._tell,
                    report_interval=cfg.CONF[host_conf.GROUP].report_interval)

    def _tell(self, report: HostReport) -> None:
        self._client.report(report)
        with self._lock:
            self._count += 1

    def start(self) -> None:
        """Start all hosts."""
        for server in self._servers:
            server.start()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self._due.sort(key=lambda item: item[0])
            for index, (due, host) in enumerate(self._due):
                time.sleep(max(0.0, due - time.monotonic()))
                host.look()
                host.tell()
                self._due[index] = (time.monotonic() + self._interval, host)

    @property
    def casts(self) -> int:
        """Return the number of reports sent."""
        with self._lock:
            return self._count

    def flood(self, seconds: float) -> int:
        """Send reports without pause; return their number."""
        before, end = self.casts, time.monotonic() + seconds

        def work(part: list[Host]) -> None:
            while time.monotonic() < end:
                for host in part:
                    host.tell(always=True)

        threads = [threading.Thread(target=work, args=(self._hosts[first::_FLOODERS],))
                   for first in range(_FLOODERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.casts - before


def main() -> None:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.api.fleet", description=__doc__)
    parser.add_argument("--bus", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    arguments = parser.parse_args()
    fleet = Fleet(arguments.bus, range(arguments.first, arguments.first + arguments.count))
    fleet.start()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        words = line.split()
        answer = fleet.flood(float(words[1])) if words[0] == "flood" else fleet.casts
        print(json.dumps(answer), flush=True)
    # Stopping a thousand servers would take long, and they have no state to lose.
    os._exit(0)


if __name__ == "__main__":
    main()
