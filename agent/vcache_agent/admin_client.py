# SPDX-License-Identifier: Apache-2.0
"""Ask the agent something; see admin_server.py for what."""

import json
import socket
import time
from pathlib import Path
from typing import Any

from vcache_agent.framing import ProtocolError, receive, send

_ANSWER_BYTES = 64 << 20


class AdminError(Exception):
    """A request cannot be done; the text says why."""


class AdminDenied(AdminError):
    """Only root may ask."""


class AgentNotRunning(AdminError):
    """Nobody answers on the socket."""


class NotHere(AdminError):
    """What the request is about is not on this host."""


class Unfinished(AdminError):
    """It has not been done yet, or it is not known whether it has; the request was fine."""


#: By the ``kind`` of an answer; one of no kind is refused for what it asks.
KINDS: dict[str, type[AdminError]] = {"not-here": NotHere, "unfinished": Unfinished}


def ask(path: Path, request: dict[str, Any], seconds: float = 30.0) -> dict[str, Any]:
    """Ask the agent; return its answer.

    :raises AgentNotRunning: if nobody answers
    :raises AdminError: if the request cannot be done
    """
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            raise AgentNotRunning(f"{path}: vcache-agent is not running") from None
        except PermissionError:
            raise AdminDenied(f"{path}: permission denied, run as root") from None
        except OSError as error:
            raise AgentNotRunning(f"{path}: {error.strerror or error}") from None
        try:
            send(connection, json.dumps(request).encode(), deadline)
            answer = json.loads(receive(connection, _ANSWER_BYTES, deadline))
        except (OSError, ProtocolError, ValueError) as error:
            raise Unfinished(f"{path}: no answer of the agent: {error}") from None
    if not answer.get("ok"):
        raise KINDS.get(answer.get("kind"), AdminError)(str(answer.get("error")))
    return dict(answer)
