# SPDX-License-Identifier: Apache-2.0
"""Calls over a message bus that stops."""

import threading

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging import conffixture

from nova_vcache.rpc import host_side
from nova_vcache.rpc.bounded import Bounded
from nova_vcache.rpc.errors import BusDown
from tests.cloud.processes import wait_for


class Stuck(Exception):
    """Ends the calls of a bus that is stopped, so that no thread remains."""


@pytest.fixture
def transport(monkeypatch):
    """Return a transport whose driver waits, as that of RabbitMQ does without a server."""
    conf = cfg.ConfigOpts()
    conf([], project="vcache", default_config_files=[])
    fixture = conffixture.ConfFixture(conf)
    fixture.setUp()
    made = messaging.get_rpc_transport(conf, "fake://", allowed_remote_exmods=host_side.EXMODS)
    back = threading.Event()

    def wait(*_args, **_options):
        back.wait(120)
        raise Stuck

    monkeypatch.setattr(made._driver, "send", wait)
    yield made
    back.set()
    made.cleanup()
    fixture.cleanUp()


def test_calls_and_casts_end(transport, monkeypatch):
    monkeypatch.setattr(host_side, "_SEND", 0.1)
    client = host_side.HostClient(transport, 0.2)
    client.open(lambda: None)
    for attempt in (lambda: client.host_set({}, "n1", {"draining": True}),
                    lambda: client.instance_why({}, "n1", "uuid"),
                    lambda: client.report_now({})):
        with pytest.raises(BusDown, match=r"no progress within 0\.[13] s"):
            attempt()


def test_threads_are_limited_and_come_back():
    bounded, go = Bounded(2), threading.Event()
    for _ in range(2):
        with pytest.raises(BusDown, match="no progress"):
            bounded.call(0.01, lambda: go.wait(60))
    with pytest.raises(BusDown, match="2 calls wait"):
        bounded.call(60, lambda: 1)
    go.set()

    def works():
        try:
            return bounded.call(60, lambda: 1) == 1
        except BusDown:
            return False

    wait_for(works, "the threads are free again")


def test_results_and_errors_are_those_of_the_function():
    def fail():
        raise Stuck("why")

    assert Bounded().call(60, lambda: "answer") == "answer"
    with pytest.raises(Stuck, match="why"):
        Bounded().call(60, fail)
