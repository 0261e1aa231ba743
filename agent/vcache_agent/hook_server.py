# SPDX-License-Identifier: Apache-2.0
"""Answer the requests of libvirt's qemu hook.

A request has these fields, separated by zero bytes: the protocol's version
``1``, the domain's name, the operation, the sub-operation, the extra argument,
and the domain's XML. The answer is a status and a text, separated by a zero byte:

``accept``
    continue; the text is a note for libvirt's log
``refuse``
    the instance must not start (only for `prepare`)
``error``
    the agent cannot decide; the hook behaves as without an agent

libvirtd waits for the answer, so this module never calls libvirt and never blocks.
"""

import dataclasses
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

_STARTING = frozenset({"prepare"})
_RUNNING = frozenset({"started", "reconnect"})
_ENDED = frozenset({"stopped", "release"})


class Refused(Exception):
    """The domain must not start; the text says why."""


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Functions that the server calls.

    :param prepare: checks a domain that is about to start; returns a note, or raises Refused
    :param running: called for a domain that runs
    :param ended: called for a domain that has stopped
    """

    prepare: Callable[[Domain], str]
    running: Callable[[Domain], None]
    ended: Callable[[Domain], None]


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
    if operation not in _STARTING | _RUNNING | _ENDED:
        return ""
    domain = domain_xml.parse(fields[5])
    LOG.info("hook: %s %s (%s)", operation, domain.name, domain.uuid)
    if operation in _STARTING:
        return callbacks.prepare(domain)
    if operation in _RUNNING:
        callbacks.running(domain)
    else:
        callbacks.ended(domain)
    return ""
