# SPDX-License-Identifier: Apache-2.0
"""Relay the question of an agent about a migration to the host where the instance runs.

The agent of the destination does not know the source: libvirt does not tell its hook. So the
question goes to all hosts, and only the one on which the instance runs answers, to the host
that asked. A question costs each host a message and a request on a local socket::

    agent ─► relay_socket ─► migration_ask, fanout ═► all hosts ─► their agents
    agent ◄─ relay_socket ◄─ migration_answer, cast ◄═ the host of the instance

Both messages are casts. A call would need a queue for its reply, and oslo.messaging
does not limit the time to create that.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging

from vcache_agent.admin_client import AdminError, NotHere
from vcache_agent.migration.messages import (
    MOST_SECONDS,
    BadMessage,
    Question,
    encode_question,
    parse_question,
)

LOG = logging.getLogger(__name__)

# Most questions of this host that wait at the same time.
_MOST = 64
# Parts of the time of a question: the source may use the first one, and without an answer the
# agent is told so after the second one. The rest is for the messages.
_PART, _WAIT_PART = 0.75, 0.9
_MOST_NAME = 255


class Relay:
    """Both ends of the relay on one host. Thread-safe.

    :param node: name of this host's RPC server
    :param ask_agent: sends a request to this host's agent, with a time limit in seconds
    :param ask_all: sends a question to all hosts: name of this host, number of the question,
        question; may raise MessagingException
    :param answer_one: sends an answer to a host: its name, number of the question, answer;
        may raise MessagingException
    """

    def __init__(self, node: str, ask_agent: Callable[[dict[str, Any], float], dict[str, Any]],
                 ask_all: Callable[[str, str, dict[str, Any]], None],
                 answer_one: Callable[[str, str, dict[str, Any]], None]) -> None:
        self._node = node
        self._ask_agent = ask_agent
        self._ask_all = ask_all
        self._answer_one = answer_one
        self._answered = threading.Condition()
        self._waiting: dict[str, dict[str, Any] | None] = {}

    def handle(self, request: bytes) -> bytes:
        """Answer a question of this host's agent, both as JSON."""
        try:
            question = parse_question(json.loads(request))
            answer = self._asked_here(question)
        except (BadMessage, ValueError, RecursionError) as error:
            return _error(f"vcache-host: {error}")
        except messaging.MessagingException as error:
            return _error(f"the message bus is not reachable: {error}")
        except TimeoutError as error:
            return _error(str(error))
        if "problem" in answer:
            return _error(f"the source host: {answer['problem']}")
        return json.dumps({"ok": True, "answer": answer}).encode()

    def ask(self, node: object, number: object, question: object) -> None:
        """Answer a question of another host, if the instance runs on this one."""
        try:
            _check_names(node, number)
            found = parse_question(question)
        except BadMessage as error:
            LOG.warning("a question about a migration is not valid: %s", error)
            return
        if node == self._node:
            return
        try:
            answer = self._ask_agent({"op": "migration", **encode_question(found)},
                                     found.seconds + 1.0)["answer"]
        except NotHere:
            return
        except AdminError as error:
            # The instance may run here. If it does not, the host that has it answers, too.
            LOG.warning("a host asks whether an instance runs here: %s", error)
            return
        try:
            self._answer_one(str(node), str(number), answer)
        except messaging.MessagingException as error:
            LOG.warning("cannot answer host %s: %s", node, error)

    def answer(self, number: object, answer: object) -> None:
        """Take the answer of another host; the first one counts."""
        with self._answered:
            if isinstance(number, str) and isinstance(answer, dict) \
                    and number in self._waiting and self._waiting[number] is None:
                self._waiting[number] = answer
                self._answered.notify_all()

    def _asked_here(self, question: Question) -> dict[str, Any]:
        """Send a question to all hosts; return the answer.

        :raises TimeoutError: if there is none in time
        """
        deadline = time.monotonic() + question.seconds * _WAIT_PART
        number = secrets.token_hex(16)
        with self._answered:
            if len(self._waiting) >= _MOST:
                raise TimeoutError(f"vcache-host: {_MOST} questions about migrations wait already")
            self._waiting[number] = None
        try:
            self._ask_all(self._node, number, encode_question(
                Question(question.domain, question.seconds * _PART)))
            with self._answered:
                self._answered.wait_for(lambda: self._waiting[number] is not None,
                                        max(0.0, deadline - time.monotonic()))
                found = self._waiting[number]
        finally:
            with self._answered:
                del self._waiting[number]
        if found is None:
            raise TimeoutError("no other host has answered that the instance runs there")
        return found


#: Longest time in seconds for which a connection of the agent may be open.
SECONDS = MOST_SECONDS + 5.0


def _check_names(node: object, number: object) -> None:
    for name in (node, number):
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME:
            raise BadMessage(f"{repr(name)[:40]} must be a text of 1 to {_MOST_NAME} characters")


def _error(text: str) -> bytes:
    return json.dumps({"ok": False, "error": text[:500]}).encode()
