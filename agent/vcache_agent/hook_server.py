# SPDX-License-Identifier: Apache-2.0
"""Answer the requests of libvirt's qemu hook.

A request has these fields, separated by zero bytes: the protocol's version
``1``, the domain's name, the operation, the sub-operation, the extra argument,
and the domain's XML. Behind the extra argument, a hook may add `` at=`` and the time at
which libvirt started it, in nanoseconds of CLOCK_MONOTONIC. libvirt runs the hooks of a
domain one after another, so this is their order. An agent that does not know it ignores
it, because it ignores the extra argument. The time needs no boot ID: neither the socket
nor the agent's memory of the domains survives a reboot.

The answer is a status and a text, separated by a zero byte:

``accept``
    continue; the text is a note for libvirt's log
``refuse``
    the instance must not start here (only for `prepare`)
``error``
    the agent cannot decide; the hook behaves as without an agent

libvirtd waits for the answer, so this module never calls libvirt and never blocks.
"""

import dataclasses
import re
from collections.abc import Callable

from oslo_log import log as logging

from vcache_agent import domain_xml
from vcache_agent.model import Domain

LOG = logging.getLogger(__name__)

_VERSION = b"1"
#: Largest request in bytes: the XML, and the fields before it.
REQUEST_BYTES = domain_xml.MAX_BYTES + (64 << 10)
#: Time limit in seconds to receive a request, and to send the answer.
SECONDS = 5.0

_ARRIVING = frozenset({"migrate"})
_STARTING = frozenset({"prepare"})
_RUNNING = frozenset({"started", "reconnect"})
_ENDED = frozenset({"stopped", "release"})
_AT = re.compile(rb".* at=([0-9]{1,19})", re.DOTALL)


class Refused(Exception):
    """The domain must not start; the text says why."""


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Functions that the server calls, with the domain and the time of the operation.

    The time is monotonic, in seconds; None: an older hook, which does not send it.

    :param prepare: checks a domain that is about to start; returns a note, or raises Refused
    :param running: called for a domain that runs
    :param ended: called for a domain that has stopped
    :param arriving: called for a domain that is about to come from another host, before
        `prepare`
    """

    prepare: Callable[[Domain, float | None], str]
    running: Callable[[Domain, float | None], None]
    ended: Callable[[Domain, float | None], None]
    arriving: Callable[[Domain, float | None], None] = lambda _domain, _at: None


def handle(request: bytes, callbacks: Callbacks) -> bytes:
    """Process one request and return its answer."""
    status, text = "error", ""
    try:
        text = _dispatch(request, callbacks)
        status = "accept"
    except Refused as error:
        status, text = "refuse", str(error)
    except domain_xml.DomainXmlError as error:
        text = str(error)
    except Exception as error:
        text = f"internal error of the agent: {error!r}"
        LOG.exception("hook request failed")
    # Log outside of the exception handlers, where oslo.log would add the exception again.
    if status != "accept":
        LOG.warning("hook: %s: %s", status, text)
    elif text:
        LOG.warning("hook: %s", text)
    return f"{status}\0{text}".encode()


def _dispatch(request: bytes, callbacks: Callbacks) -> str:
    fields = request.split(b"\0", 5)
    if len(fields) != 6 or fields[0] != _VERSION:
        raise domain_xml.DomainXmlError("hook: the request is not of protocol version 1")
    operation = fields[2].decode("utf-8", "replace")
    if operation not in _ARRIVING | _STARTING | _RUNNING | _ENDED:
        return ""
    domain = domain_xml.parse(fields[5])
    given = _AT.fullmatch(fields[4])
    at = int(given[1]) / 1e9 if given else None
    LOG.info("hook: %s %s (%s)", operation, domain.name, domain.uuid)
    if operation in _STARTING:
        return callbacks.prepare(domain, at)
    if operation in _ARRIVING:
        callbacks.arriving(domain, at)
    elif operation in _RUNNING:
        callbacks.running(domain, at)
    else:
        callbacks.ended(domain, at)
    return ""
