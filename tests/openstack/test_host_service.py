# SPDX-License-Identifier: Apache-2.0
"""vcache-host with an agent's socket, a bus in this process, and the real Placement."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import ANY

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging import conffixture
from oslo_messaging._drivers import common

from nova_vcache.host import conf as host_conf
from nova_vcache.host.keeper import Keeper
from nova_vcache.host.service import Endpoint, Host
from nova_vcache.host.view import HostView
from nova_vcache.placement import names
from nova_vcache.placement.reporter import Reporter
from nova_vcache.rpc import api_side, host_side
from nova_vcache.rpc.errors import (
    AgentUnavailable,
    BusDown,
    HostError,
    HostTimeout,
    InstanceNotHere,
    Refused,
    as_raised,
)
from nova_vcache.rpc.report import HostReport
from tests.box.steps import at_end
from tests.openstack.agents import FakeAgent, uuid_of
from tests.openstack.placements import Placement
from vcache_agent.admin_client import AgentNotRunning, ask


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


def host_of(agent: FakeAgent, told: list[HostReport], **options: float) -> Host:
    return Host("n1", agent.ask, told.append, **options)


class TestHost:
    def test_a_report_goes_out_when_it_is_due_or_something_has_changed(self, agent):
        told: list[HostReport] = []
        host = host_of(agent, told, report_interval=1000.0)
        host.look()
        host.tell()
        host.tell()
        assert len(told) == 1
        agent.answer["disks"] = []
        agent.add(1)
        agent.answer["disks"][0]["dirty_bytes"] = 5
        host.look()
        host.tell()
        assert [item.uuid for item in told[1].instances] == [uuid_of(1)]
        agent.answer["disks"][0]["dirty_bytes"] = 6
        host.look()
        host.tell()
        assert len(told) == 2, "figures wait"
        host.tell(always=True)
        assert told[2].instances[0].disks[0].dirty_bytes == 6 + 8192

    def test_most_periodic_reports_are_small(self, agent):
        told: list[HostReport] = []
        agent.add(1)
        host = host_of(agent, told, report_interval=0.0, details_interval=1000.0)
        host.look()
        for _ in range(3):
            host.tell()
        assert [item.details for item in told] == [True, False, False]
        assert [item.base for item in told] == [1, 1, 1]
        assert not told[1].instances and told[1].pools == told[0].pools
        assert told[1].dirty_bytes == told[0].dirty_bytes == 4096 + 8192
        assert told[1].summary.cache_mb == told[0].summary.cache_mb
        # An answer of a change goes to one process only.
        assert host.change({"op": "drain-set", "draining": True}).details
        assert (told[3].details, told[3].base) == (True, 4)
        host.tell()
        assert (told[4].details, told[4].base, told[4].sequence) == (False, 4, 6)
        host.tell(always=True)
        assert told[5].details
        host._details_due = 0.0
        host.tell()
        assert told[6].details and len(told[1].to_json()["instances"]) == 0
        all_of_them: list[HostReport] = []
        host = host_of(agent, all_of_them, report_interval=0.0, details_interval=0.0)
        host.look()
        for _ in range(3):
            host.tell()
        assert all(item.instances for item in all_of_them)

    def test_reports_are_numbered(self, agent):
        told: list[HostReport] = []
        host = host_of(agent, told, report_interval=0.0)
        began = time.time()
        host.tell()
        answer = host.change({"op": "drain-set", "draining": True})
        host.tell()
        assert [item.sequence for item in (told[0], told[1], answer, told[2])] == [1, 2, 3, 4]
        assert len({item.boot_id for item in (*told, answer)}) == 1
        assert all(item.sent_at and began <= item.sent_at <= time.time()
                   for item in (*told, answer))
        again: list[HostReport] = []
        host_of(agent, again).tell()
        assert again[0].boot_id not in ("", told[0].boot_id)

    def test_without_an_agent_what_was_known_gets_old(self, agent, monkeypatch):
        told: list[HostReport] = []
        host = host_of(agent, told)
        agent.error = "as in a test"
        assert host.look() is None
        assert (host.report().problem, host.report().summary.age_s) == ("as in a test", None)
        agent.error = ""
        host.look()
        agent.error = "gone"
        host.look()
        time.sleep(0.05)
        assert host.report().problem == "gone"
        age = host.report().summary.age_s
        assert age is not None and age >= 0.05
        assert host.report().summary.cache_mb == 9216

    def test_an_answer_that_is_not_understood(self, agent):
        host = host_of(agent, [])
        del agent.answer["disks"]
        assert host.look() is None
        assert "answer is invalid: KeyError('disks')" in host.report().problem

    def test_a_bus_that_is_down_is_told_once(self, agent, caplog):
        works = False

        def tell(_report: HostReport) -> None:
            if not works:
                raise messaging.MessageDeliveryFailure("as in a test")

        host = Host("n1", agent.ask, tell, report_interval=0.0)
        caplog.set_level("INFO")
        for _ in range(3):
            host.tell()
        assert caplog.text.count("is not reachable") == 1
        works = True
        host.tell()
        assert "is reachable again" in caplog.text

    @pytest.mark.parametrize(("kind", "error"), [
        ("not-here", InstanceNotHere), ("unfinished", AgentUnavailable), ("", Refused),
        ("of a newer agent", Refused)])
    def test_what_the_agent_refuses(self, agent, kind, error):
        agent.error, agent.kind = "as in a test", kind
        with pytest.raises(error, match="as in a test"):
            host_of(agent, []).change({"op": "instance-set"})

    def test_an_agent_that_does_not_run(self):
        def refuse(_request: dict, _seconds: float) -> dict:
            raise AgentNotRunning("/run/a: vcache-agent is not running")

        with pytest.raises(AgentUnavailable, match="is not running"):
            Host("n1", refuse, lambda _report: None).change({"op": "host"})

    def test_an_agent_on_a_socket(self, agent, tmp_path):
        server = agent.serve(tmp_path / "admin.sock")
        with at_end(server.stop):
            told: list[HostReport] = []
            host = Host("n1", lambda request, seconds: ask(
                tmp_path / "admin.sock", request, seconds), told.append)
            assert host.look() is not None
            agent.add(1)
            report = host.change({"op": "instance-set", "uuid": uuid_of(1),
                                  "values": {"weight": 7}, "replace": False})
            assert report.instances[0].override == {"weight": 7}
            assert told[-1].instances[0].specs["weight"] == 7
        assert host.look() is None
        assert "vcache-agent is not running" in host.report().problem


@pytest.fixture
def transport() -> Iterator[messaging.Transport]:
    conf = cfg.ConfigOpts()
    conf([], project="vcache", default_config_files=[])
    fixture = conffixture.ConfFixture(conf)
    fixture.setUp()
    made = messaging.get_rpc_transport(conf, "fake://", allowed_remote_exmods=host_side.EXMODS)
    yield made
    made.cleanup()
    fixture.cleanUp()


class TestBus:
    @pytest.fixture
    def client(self, transport) -> host_side.HostClient:
        made = host_side.HostClient(transport, 1.0)
        made.open(lambda: None)
        return made

    @pytest.fixture
    def host(self, transport, agent) -> Iterator[Host]:
        host = Host("n1", agent.ask, api_side.ApiClient(transport).report)
        server = messaging.get_rpc_server(
            transport, messaging.Target(topic=host_side.TOPIC, server="n1"), [Endpoint(host)])
        server.start()
        yield host
        server.stop()
        server.wait()

    def test_a_change_is_answered_by_a_report(self, client, host, agent):
        agent.add(1)
        report = client.instance_set({}, "n1", uuid_of(1), {"weight": 9}, replace=True)
        assert report.instances[0].specs["weight"] == 9
        assert client.host_set({}, "n1", {"draining": True, "policy": "static"}).draining
        assert agent.answer["policy"]["name"] == "static"
        (pool,) = client.pool_set({}, "n1", "pool", {"hot_percent": 7}).pools
        assert (pool.reads_percent, pool.hot_percent) == (75, 7)
        assert agent.requests[-2] == {"op": "pool-set", "pool": "pool",
                                      "values": {"hot_percent": 7}, "deadline": ANY}

    def test_errors_are_the_same_on_this_side(self, client, host, agent):
        with pytest.raises(InstanceNotHere, match="is not on this host"):
            client.instance_set({}, "n1", uuid_of(1), {"weight": 9}, replace=True)
        for values in ({}, {"colour": 5}):
            with pytest.raises(Refused, match="one of policy, draining"):
                client.host_set({}, "n1", values)
        agent.error, agent.kind = "the change is saved, but", "unfinished"
        with pytest.raises(AgentUnavailable, match="saved"):
            client.host_set({}, "n1", {"draining": True})

    @pytest.mark.parametrize("kind", [InstanceNotHere, AgentUnavailable, Refused])
    def test_what_a_real_bus_makes_of_an_error(self, kind):
        # The bus in memory passes it as it is.
        try:
            raise kind("why")
        except kind:
            sent = common.serialize_remote_exception(sys.exc_info())
        got = common.deserialize_remote_exception(sent, host_side.EXMODS)
        assert "Traceback" in str(got) and type(got) is not kind
        assert isinstance(got, HostError)
        found = as_raised(got)
        assert (type(found), str(found)) == (kind, "why")

    def test_nothing_is_changed_before_the_first_connection(self, transport, host, agent,
                                                            monkeypatch):
        monkeypatch.setattr(host_side, "_OPEN_WAIT", 0.1)
        client = host_side.HostClient(transport, 1.0)

        def fail() -> None:
            raise messaging.MessagingTimeout

        with pytest.raises(messaging.MessagingTimeout):
            client.open(fail)
        with pytest.raises(BusDown, match="not connected since the start of this process"):
            client.host_set({}, "n1", {"draining": True})
        assert not agent.answer.get("draining")
        client.open(lambda: None)
        assert client.host_set({}, "n1", {"draining": True}).draining

    def test_nobody_there(self, client):
        began = time.monotonic()
        with pytest.raises(HostTimeout, match="host n2: no answer to host_set in time"):
            client.host_set({}, "n2", {"draining": True})
        assert time.monotonic() - began < 5

    def test_no_change_succeeds_after_its_timeout(self, transport, client, agent, caplog):
        """The bus delivers the request late; the one in memory keeps it without a limit."""
        with pytest.raises(HostTimeout):
            client.host_set({}, "n1", {"draining": True, "policy": "static"})
        host = Host("n1", agent.ask, api_side.ApiClient(transport).report)
        server = messaging.get_rpc_server(
            transport, messaging.Target(topic=host_side.TOPIC, server="n1"), [Endpoint(host)])
        server.start()
        with at_end(server.wait), at_end(server.stop):
            assert client.host_set({}, "n1", {"policy": "hull"}).policy == "hull"
        assert [item for item in agent.requests if item["op"] != "host"] == [
            {"op": "policy-set", "policy": "hull", "deadline": ANY}]
        assert not agent.answer["draining"]

    def test_the_agent_gets_less_time_than_the_api_waits(self, transport, agent):
        given: list[tuple[float, float]] = []

        def ask_agent(request: dict, seconds: float) -> dict:
            if request["op"] != "host":
                given.append((request["deadline"] - time.monotonic(), seconds))
            return agent.ask(request)

        endpoint = Endpoint(Host("n1", ask_agent, lambda _report: None))
        for context, most in (
                ({"deadline": time.time() + 7, "seconds": 7.0}, 7), ({}, 20),
                # Clocks that differ: never longer than the API waits.
                ({"deadline": time.time() + 9999, "seconds": 7.0}, 7)):
            endpoint.host_set(context, {"draining": True})
            assert all(0 < left <= most for left in given.pop())
        with pytest.raises(messaging.ExpectedException):
            endpoint.pool_set({"deadline": time.time() - 1, "seconds": 7.0}, "pool", {})
        assert not given

    def test_a_pinned_version(self, transport):
        client = host_side.HostClient(transport, 1.0, "1.0")
        assert client.can("1.0") and not client.can("1.1") and not client.can("2.0")
        with pytest.raises(HostError, match="cannot be changed while rpc_host_cap"):
            client.pool_set({}, "n1", "pool", {"hot_percent": 7})

    def test_reports_on_demand_go_to_every_process_of_the_api(self, transport, client, host):
        got: list[str] = []

        class Api:
            target = messaging.Target(version=api_side.VERSION)

            def report(self, _context: dict, report: dict) -> None:
                got.append(HostReport.parse(report).node)

            def beat(self, _context: dict, report: dict) -> None:
                got.append(f"beat {HostReport.parse(report).node}")

        servers = [messaging.get_rpc_server(
            transport, messaging.Target(topic=api_side.TOPIC, server=name), [Api()])
            for name in ("a", "b")]
        for server in servers:
            server.start()
        client.report_now({})
        wait_for(lambda: got == ["n1", "n1"])
        client.report_now({}, "n1")
        wait_for(lambda: got == ["n1"] * 4)
        sender = api_side.ApiClient(transport)
        sender.report(host.report().without_details())
        wait_for(lambda: got[4:] == ["beat n1"] * 2)
        assert sender.can_beat() and not api_side.ApiClient(transport, "1.1").can_beat()
        for server in servers:
            server.stop()
            server.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


class TestKeeper:
    @pytest.fixture
    def root(self, placement) -> str:
        return placement.make_node("n1")

    def keeper(self, placement: Placement, close_after: float = 100.0) -> Keeper:
        return Keeper(Reporter(placement.client, "n1"), interval=60.0, close_after=close_after)

    def look(self, agent: FakeAgent) -> HostView:
        return HostView("n1", agent.ask({"op": "host"}))

    def test_the_picture_follows_instances_and_allocations(self, agent, placement, root):
        keeper = self.keeper(placement)
        keeper.seen(self.look(agent))
        keeper.report()
        child = names.provider_uuid(root)
        agent.add(1, min_mb=500)
        keeper.seen(self.look(agent))
        keeper.report()
        inventories, _ = placement.client.inventories(child)
        assert inventories[names.TAG]["reserved"] == 1
        assert inventories[names.CACHE_MB]["reserved"] == 500
        placement.allocate(child, {names.TAG: 1, names.CACHE_MB: 500}, uuid_of(1))
        keeper.report()
        inventories, _ = placement.client.inventories(child)
        assert inventories[names.TAG]["reserved"] == 0
        assert inventories[names.CACHE_MB]["reserved"] == 0

    def test_a_change_is_told_at_once_and_nothing_else(self, agent, placement, root):
        keeper = self.keeper(placement)
        assert not keeper._asked
        keeper.seen(self.look(agent))
        assert keeper._asked
        keeper.report()
        for change, asked in ((lambda: None, False), (lambda: agent.add(1), True),
                              (lambda: agent.answer.update(draining=True), True),
                              (lambda: agent.answer.update(flush_p99_us=5.0), False)):
            keeper._asked = False
            change()
            keeper.seen(self.look(agent))
            assert keeper._asked is asked
            keeper.report()

    def test_a_host_whose_agent_is_gone_is_closed_and_opened_again(self, agent, placement, root):
        keeper = self.keeper(placement)
        keeper.report()
        child = names.provider_uuid(root)
        assert placement.client.provider(child) is None, "nothing is known yet"
        keeper.seen(self.look(agent))
        keeper.report()
        keeper.seen(None)
        keeper.report()
        assert placement.client.inventories(child)[0], "it may come back"
        keeper._close_after = 0.0
        agent.answer["agent"]["problem"] = "load the module"
        keeper._asked = False
        keeper.seen(self.look(agent))
        assert keeper._asked
        keeper.report()
        assert placement.client.inventories(child)[0] == {}
        assert placement.client.traits(child)[0] == {names.OWNER}
        agent.answer["agent"]["problem"] = ""
        keeper._close_after = 100.0
        keeper.seen(self.look(agent))
        keeper.report()
        assert set(placement.client.inventories(child)[0]) == set(names.RESOURCE_CLASSES)

    def test_only_a_host_that_has_too_little_gives_an_alarm(self, agent, placement, root, caplog):
        keeper = self.keeper(placement)
        uuid = agent.add(1, min_mb=4000)
        keeper.seen(self.look(agent))
        keeper.report()
        placement.allocate(names.provider_uuid(root), {names.TAG: 1, names.CACHE_MB: 4000}, uuid)
        agent.answer["draining"] = True
        keeper.seen(self.look(agent))
        keeper.report()
        agent.answer["draining"] = False
        keeper._close_after = 0.0
        keeper.report()
        assert "promised" not in caplog.text
        keeper._close_after = 100.0
        agent.answer["pools"][0]["size_bytes"] = 2 << 30
        keeper.seen(self.look(agent))
        keeper.report()
        assert f"the host has: 2157 of {names.CACHE_MB}; guarantees are reduced" in caplog.text

    def test_it_heals_what_somebody_deleted(self, agent, placement, root):
        keeper = self.keeper(placement)
        keeper.seen(self.look(agent))
        keeper.report()
        for uuid in (names.provider_uuid(root), root):
            assert placement.http.delete(f"/resource_providers/{uuid}").status_code == 204
        again = placement.make_node("n1")
        keeper.report()
        assert placement.client.provider(names.provider_uuid(again)) is not None

    def test_the_thread_tries_again(self, agent, placement, caplog):
        import threading

        keeper = self.keeper(placement)
        stopping = threading.Event()
        thread = threading.Thread(target=keeper.run, args=(stopping,))
        keeper.seen(self.look(agent))
        thread.start()
        with at_end(thread.join, 10), at_end(keeper.wake), at_end(stopping.set):
            wait_for(lambda: "Placement has no provider 'n1'" in caplog.text)
            root = placement.make_node("n1")
            wait_for(lambda: placement.client.provider(names.provider_uuid(root)) is not None)
        assert not thread.is_alive()


def test_the_name_of_the_node(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "h")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "h.example", ())])
    assert host_conf.hostname() == "h.example"
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "localhost", ())])
    assert host_conf.hostname() == "h"
    monkeypatch.setattr("socket.gethostname", lambda: "h.other")
    assert host_conf.hostname() == "h.other"


def test_the_options(tmp_path: Path):
    conf = cfg.ConfigOpts()
    host_conf.register(conf)
    path = tmp_path / "c.conf"
    path.write_text("[host]\nnode = n7\n[placement]\nauth_type = none\n"
                    "endpoint_override = http://placement.invalid\n")
    conf([], default_config_files=[str(path)])
    assert host_conf.node_name(conf) == "n7"
    assert host_conf.load_placement(conf).service_type == "placement"
    assert conf.placement.timeout == 10


def test_without_credentials_for_placement_it_says_what_is_missing(tmp_path: Path):
    """In a process of its own: the command reads the global configuration."""
    path = tmp_path / "vcache-host.conf"
    path.write_text("[DEFAULT]\ntransport_url = fake://\n[host]\nrelay_socket =\n")
    done = subprocess.run(
        [sys.executable, "-m", "nova_vcache.cmd.host", "--config-file", str(path)],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "section [placement] has no credentials; set auth_type" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
