# SPDX-License-Identifier: Apache-2.0
"""Client of the relay, which takes a question to the agent that has the domain.

The relay is a service on a Unix socket of this host; vcache-host is one. It has a
connection to the other hosts, so the agent needs neither a port nor keys of its own. A
request is a question (messages.py) as JSON, the answer ``{"ok": true, "answer": {...}}`` or
``{"ok": false, "error": TEXT}``; framing.py has the format on the socket.
"""

import json
import socket
import time
from pathlib import Path

from vcache_agent.framing import ProtocolError, receive, send
from vcache_agent.migration.messages import (
    MESSAGE_BYTES,
    Answer,
    BadMessage,
    Question,
    encode_question,
    parse_answer,
)


class NoAnswer(Exception):
    """There is no answer; the text says why."""


def ask(path: Path, question: Question) -> Answer:
    """Ask the agent of the host where a domain runs.

    :param path: the relay's socket
    :raises NoAnswer: if there is no valid answer within the time limit of the question
    """
    deadline = time.monotonic() + question.seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(max(0.01, question.seconds))
            connection.connect(str(path))
            send(connection, json.dumps(encode_question(question)).encode(), deadline)
            data = json.loads(receive(connection, MESSAGE_BYTES, deadline))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoAnswer(f"{path}: vcache-host is not running") from None
        except ProtocolError as error:
            raise NoAnswer(f"no answer from the source host: {error}") from None
        except OSError as error:
            raise NoAnswer(f"{path}: {error.strerror or error}") from None
        except (ValueError, RecursionError):
            raise NoAnswer(f"{path}: the answer is not JSON") from None
    if not isinstance(data, dict) or data.get("ok") is not True:
        text = str(data.get("error"))[:500] if isinstance(data, dict) else "the answer is invalid"
        raise NoAnswer(text)
    try:
        return parse_answer(data.get("answer"), question.domain)
    except BadMessage as error:
        raise NoAnswer(f"the source host's answer is not valid: {error}") from None
