# SPDX-License-Identifier: Apache-2.0
"""Answers libvirt's qemu hook.

The hook sends, separated by zero bytes: the protocol's version ``1``, the
domain's name, the operation, the sub-operation, the extra argument, and the
domain's XML. The answer is a status and a text, separated by a zero byte:

``accept``
    go on; the text is a note for libvirt's log
``refuse``
    the instance must not start (only `prepare` can be refused)
``error``
    the agent could not decide; the hook decides as if there were no agent

libvirtd waits meanwhile, so nothing here asks libvirt or waits for anything.
"""

import dataclasses
from collections.abc import Callable

from oslo_log import log as logging

from vcache_agent import domain_xml
from vcache_agent.model import Domain

LOG = logging.getLogger(__name__)

_VERSION = b"1"
#: XML and the arguments before it.
REQUEST_BYTES = domain_xml.MAX_BYTES + (64 << 10)
#: Seconds for a request to arrive; the hook itself waits no longer.
SECONDS = 5.0

_STARTING = frozenset({"prepare"})
_RUNNING = frozenset({"started", "reconnect"})
_ENDED = frozenset({"stopped", "release"})


class Refused(Exception):
    """The domain must not start; the text says why."""


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """What is done about a domain.

    :param prepare: checks a domain that is about to start, returns a note
    :param running: a domain runs
    :param ended: a domain has ended
    """

    prepare: Callable[[Domain], str]
    running: Callable[[Domain], None]
    ended: Callable[[Domain], None]


def handle(request: bytes, callbacks: Callbacks) -> bytes:
    """Answer one request."""
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
    # Not in the handlers above: there, oslo.log adds the exception once more.
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
