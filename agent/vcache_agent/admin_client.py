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
            raise AdminError(f"{path}: no answer of the agent: {error}") from None
    if not answer.get("ok"):
        raise AdminError(str(answer.get("error")))
    return dict(answer)
