# SPDX-License-Identifier: Apache-2.0
"""Client of the agent's admin socket; see admin_server.py for the requests."""

import json
import socket
import time
from pathlib import Path
from typing import Any

from vcache_agent.framing import ProtocolError, receive, send

_ANSWER_BYTES = 64 << 20


class AdminError(Exception):
    """The agent rejected a request; the text says why."""


class AdminDenied(AdminError):
    """The caller may not use the socket; only root may."""


class AgentNotRunning(AdminError):
    """No agent serves the socket."""


class NotHere(AdminError):
    """The object of the request is not on this host."""


class Unfinished(AdminError):
    """The request was valid, but it is not completed, or its result is unknown."""


#: Exceptions by the ``kind`` of an answer; without a kind the request was invalid.
KINDS: dict[str, type[AdminError]] = {"not-here": NotHere, "unfinished": Unfinished}


def ask(path: Path, request: dict[str, Any], seconds: float = 30.0) -> dict[str, Any]:
    """Send a request to the agent and return its answer.

    :param path: the admin socket
    :param seconds: time limit of the whole exchange
    :raises AgentNotRunning: if no agent serves the socket
    :raises AdminDenied: if the caller may not use the socket
    :raises Unfinished: if there is no answer within the time limit
    :raises AdminError: if the agent rejects the request
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
            raise Unfinished(f"{path}: no answer from the agent: {error}") from None
    if not answer.get("ok"):
        raise KINDS.get(answer.get("kind"), AdminError)(str(answer.get("error")))
    return dict(answer)
