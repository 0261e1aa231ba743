# SPDX-License-Identifier: Apache-2.0
"""Questions about migrations between hosts, on a bus in this process."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging import conffixture

from nova_vcache.host import relay as relay_module
from nova_vcache.host.relay import Relay
from nova_vcache.host.service import Endpoint
from nova_vcache.rpc import host_side
from tests.box.steps import at_end
from tests.openstack.agents import uuid_of
from vcache_agent.admin_client import KINDS, AdminError, AgentNotRunning
from vcache_agent.migration.messages import (
    MESSAGE_BYTES,
    Answer,
    Question,
    encode_answer,
    encode_question,
    parse_answer,
)
from vcache_agent.migration.relay import NoAnswer, ask
from vcache_agent.unix_server import UnixServer

VM = uuid_of(1)
PATIENCE = 20.0
NOT_ANSWERS: tuple[object, ...] = (None, [], "x")


class Agent:
    """The agent of a host, which has some instances."""

    def __init__(self, *instances: str) -> None:
        self.instances = set(instances)
        self.requests: list[tuple[dict[str, Any], float]] = []
        self.error: AdminError | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.requests.append((request, seconds))
        if self.error:
            raise self.error
        if request["domain"] not in self.instances:
            raise KINDS["not-here"]("it does not run here")
        return {"ok": True, "answer": encode_answer(Answer(request["domain"], True))}


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


@pytest.fixture
def hosts(transport: Any) -> Iterator[Callable[..., Relay]]:
    servers = []

    def make(node: str, agent: Agent) -> Relay:
        peers = host_side.PeerClient(transport)
        made = Relay(node, agent.ask, peers.ask, peers.answer)
        server = messaging.get_rpc_server(
            transport, messaging.Target(topic=host_side.TOPIC, server=node),
            [Endpoint(None, made)])  # type: ignore[arg-type]
        server.start()
        servers.append(server)
        return made

    yield make
    for server in servers:
        server.stop()
        server.wait()


def question(seconds: float = PATIENCE, domain: str = VM) -> bytes:
    return json.dumps(encode_question(Question(domain, seconds))).encode()


def test_the_host_of_the_instance_answers_the_one_that_asks(hosts: Any, tmp_path: Path) -> None:
    agents = [Agent(), Agent(VM), Agent(uuid_of(2))]
    first, *_ = [hosts(f"n{number}", agent) for number, agent in enumerate(agents)]
    server = UnixServer(tmp_path / "relay", first.handle, request_bytes=MESSAGE_BYTES,
                        seconds=relay_module.SECONDS)
    server.start()
    with at_end(server.stop):
        assert ask(tmp_path / "relay", Question(VM, PATIENCE)) == Answer(VM, True)
        # The instance's new host would answer, too, if it were asked.
        assert not agents[0].requests
        (request, seconds), = agents[1].requests
        assert request["op"] == "migration" and request["seconds"] == PATIENCE * 0.75
        assert seconds < PATIENCE
        with pytest.raises(NoAnswer, match="no other host has answered"):
            ask(tmp_path / "relay", Question(uuid_of(9), 2.0))


def test_an_agent_with_a_problem_does_not_hide_the_answer(hosts: Any) -> None:
    broken, good = Agent(VM), Agent(VM)
    broken.error = AgentNotRunning("vcache-agent is not running")
    asking = hosts("a", Agent())
    hosts("b", broken)
    assert "no other host" in json.loads(asking.handle(question(0.3)))["error"]
    hosts("c", good)
    answer = json.loads(asking.handle(question()))
    assert parse_answer(answer["answer"], VM).ready


def test_a_bus_that_is_down() -> None:
    def fail(*_: object) -> None:
        raise messaging.MessageDeliveryFailure("down")

    answer = json.loads(Relay("a", Agent().ask, fail, fail).handle(question()))
    assert answer == {"ok": False, "error": "the message bus is not reachable: down"}
    Relay("a", Agent(VM).ask, fail, fail).ask("b", "1", json.loads(question()))


@pytest.mark.parametrize("request_", [b"", b"[]", b"[" * 60000, b"\xff", b'{"version": 1}'])
def test_a_bad_question_of_the_agent(request_: bytes) -> None:
    sent: list[object] = []
    answer = json.loads(Relay("a", Agent().ask, lambda *one: sent.append(one),
                              lambda *one: sent.append(one)).handle(request_))
    assert answer["ok"] is False and not sent


@pytest.mark.parametrize(("node", "number", "asked"), [
    ("b", "1", []), ("b", "1", {"version": 1, "domain": "x", "seconds": 1}),
    (None, "1", {}), ("b", 5, {}), ("b" * 256, "1", {}), ("", "1", {}), ("b", "1" * 256, {})])
def test_a_bad_question_of_another_host(node: object, number: object, asked: object) -> None:
    agent, sent = Agent(VM), []
    good = json.loads(question())
    made = Relay("a", agent.ask, lambda *one: sent.append(one), lambda *one: sent.append(one))
    made.ask(node, number, asked or good)
    assert (not agent.requests and not sent) or asked == []
    made.ask("a", "1", good)
    assert len(agent.requests) <= 1, "its own question is not for this host"


def test_answers_to_no_question_and_second_answers() -> None:
    numbers: list[str] = []

    def answered(_node: str, number: str, _question: object) -> None:
        numbers.append(number)
        for answer in NOT_ANSWERS:
            made.answer(number, answer)
        made.answer("other", {"version": 1})
        made.answer(["x"], {"version": 1})
        made.answer(number, {"first": 1})
        made.answer(number, {"second": 1})

    made = Relay("a", Agent().ask, answered, answered)
    assert json.loads(made.handle(question()))["answer"] == {"first": 1}
    made.answer(numbers[0], {"late": 1})
    assert not made._waiting


def test_only_so_many_questions_wait() -> None:
    ended = threading.Event()

    def slow(*_: object) -> None:
        ended.wait(PATIENCE)

    made = Relay("a", Agent().ask, slow, lambda *_: None)
    threads = [threading.Thread(target=made.handle, args=(question(0.1),)) for _ in range(64)]
    for thread in threads:
        thread.start()
    while len(made._waiting) < 64:
        pass
    assert "64 questions" in json.loads(made.handle(question()))["error"]
    ended.set()
    for thread in threads:
        thread.join()
    assert not made._waiting
