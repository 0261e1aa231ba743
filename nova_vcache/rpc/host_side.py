# SPDX-License-Identifier: Apache-2.0
"""The RPC interface of a host (vcache-host), and its client for vcache-api.

The topic is ``vcache-host``. The name of the server is that of the compute node.

=======  =====================================================================
version  changes
=======  =====================================================================
1.0      ``report_now()`` cast; ``instance_set(uuid, values, replace)``,
         ``host_set(values)`` called, both return a report (see report.py)
1.1      ``pool_set(pool, values)`` called, returns a report
1.2      between hosts: ``migration_ask(node, number, question)`` fanout,
         ``migration_answer(number, answer)`` cast (vcache_agent/migration/messages.py)
1.3      ``instance_curves(uuid)``, ``instance_why(uuid)`` called, return a list
=======  =====================================================================

A new method or argument increments the minor version. Before its use, a client must
check with :meth:`HostClient.can` that the pinned version has it. A host supports all
minor versions up to its own.

The context of a call has ``deadline``, a time of day in seconds since 1970, and ``seconds``, the
seconds from the call to the deadline. The host changes nothing after the deadline. So no change
succeeds after vcache-api has answered 504. An older host ignores both.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import oslo_messaging as messaging

from nova_vcache.rpc.bounded import Bounded
from nova_vcache.rpc.errors import BusDown, HostError, HostTimeout, as_raised
from nova_vcache.rpc.report import BadReport, HostReport

TOPIC = "vcache-host"
VERSION = "1.3"

# Part of the timeout of a call in which a host may begin and apply a change. The rest is for
# its answer, and for the query of the new state.
_CHANGE_PART = 0.7

# Longest time in seconds for which a call waits for the first connection to the bus.
_OPEN_WAIT = 5.0

# What a call may take in seconds in addition to its timeout, to send the message.
_SEND = 5.0

#: Modules of the exceptions that a host may raise.
EXMODS = ["nova_vcache.rpc.errors"]


class PeerClient:
    """RPC client of a host for the other hosts.

    :param transport: transport of oslo.messaging
    """

    def __init__(self, transport: messaging.Transport) -> None:
        # Do not retry: a hook waits for the answer.
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=TOPIC, version="1.2"), retry=0)

    def ask(self, node: str, number: str, question: Mapping[str, Any]) -> None:
        """Send a question about a migration to all hosts.

        :param node: this host, for the answer
        :param number: of the question, for the answer
        :raises oslo_messaging.MessagingException: if the message bus is not reachable
        """
        self._client.prepare(fanout=True).cast({}, "migration_ask", node=node, number=number,
                                               question=dict(question))

    def answer(self, node: str, number: str, answer: Mapping[str, Any]) -> None:
        """Send the answer to a host.

        :raises oslo_messaging.MessagingException: if the message bus is not reachable
        """
        self._client.prepare(server=node).cast({}, "migration_answer", number=number,
                                               answer=dict(answer))


class HostClient:
    """RPC client for hosts. Calls fail until :meth:`open` has returned.

    :param transport: transport of oslo.messaging
    :param timeout: timeout of a call in seconds
    :param cap: version that all hosts support, during an upgrade; None: the newest
    """

    def __init__(self, transport: messaging.Transport, timeout: float,
                 cap: str | None = None) -> None:
        # Retry only twice, in case a connection was just cut, because an HTTP request waits.
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=TOPIC, version="1.0"), timeout=timeout,
            version_cap=cap or VERSION, retry=2)
        self._timeout = timeout
        self._seconds = timeout * _CHANGE_PART
        self._bounded = Bounded()
        self._opened = threading.Event()

    def open(self, call: Callable[[], Any]) -> None:
        """Wait for the message bus, and allow calls.

        The first RPC call of a transport creates the queue for its replies. oslo.messaging
        does not limit the time for that: without a bus, this call and all later ones would
        wait for it. So the first call must not be that of an HTTP request.

        :param call: sends an RPC call by the same transport
        :raises oslo_messaging.MessagingException: if it failed; call this again
        """
        call()
        self._opened.set()

    def can(self, version: str) -> bool:
        """Return True if the pinned version includes a version."""
        return bool(self._client.can_send_version(version))

    def report_now(self, context: Mapping[str, Any], node: str | None = None) -> None:
        """Request a report with details.

        :param node: the host; None: all hosts
        :raises BusDown: if the message cannot be sent
        """
        target = {"fanout": True} if node is None else {"server": node}
        try:
            self._bounded.call(_SEND, lambda: self._client.prepare(**target).cast(
                dict(context), "report_now"))
        except messaging.MessagingException as error:
            raise BusDown(f"the message bus is not reachable: {error}") from error

    def instance_set(self, context: Mapping[str, Any], node: str, uuid: str,
                     values: Mapping[str, Any], *, replace: bool) -> HostReport:
        """Override values of an instance's flavor; see the agent's ``instance-set``.

        :param values: values by name of the key without prefix; None: the flavor's value
        :param replace: return all other values to those of the flavor
        :raises HostError: one of its subclasses
        """
        return self._call(context, node, "instance_set", uuid=uuid, values=dict(values),
                          replace=replace)

    def host_set(self, context: Mapping[str, Any], node: str,
                 values: Mapping[str, Any]) -> HostReport:
        """Set ``policy`` (a name, or None for the configured one) or ``draining`` of a host.

        :raises HostError: one of its subclasses
        """
        return self._call(context, node, "host_set", values=dict(values))

    def pool_set(self, context: Mapping[str, Any], node: str, pool: str,
                 values: Mapping[str, Any]) -> HostReport:
        """Set ``reads_percent`` or ``hot_percent`` of a pool, until it is activated again.

        :raises HostError: one of its subclasses
        """
        if not self.can("1.1"):
            raise HostError(f"host {node}: options of pools cannot be changed while rpc_host_cap "
                            "is below 1.1")
        return self._call(context, node, "pool_set", version="1.1", pool=pool,
                          values=dict(values))

    def instance_curves(self, context: Mapping[str, Any], node: str,
                        uuid: str) -> list[dict[str, Any]]:
        """Return the miss-ratio curves of an instance's disks.

        :raises HostError: one of its subclasses
        """
        return self._query(context, node, "instance_curves", uuid)

    def instance_why(self, context: Mapping[str, Any], node: str,
                     uuid: str) -> list[dict[str, Any]]:
        """Return the decisions about an instance's disks, with their reasons.

        :raises HostError: one of its subclasses
        """
        return self._query(context, node, "instance_why", uuid)

    def _query(self, context: Mapping[str, Any], node: str, method: str,
               uuid: str) -> list[dict[str, Any]]:
        if not self.can("1.3"):
            raise HostError(f"host {node}: {method} is not possible while rpc_host_cap is below "
                            "1.3")
        answer = self._send(context, node, method, version="1.3", uuid=uuid)
        if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
            raise HostError(f"host {node}: invalid answer to {method}: it is not a list of "
                            "objects")
        return answer

    def _call(self, context: Mapping[str, Any], node: str, method: str, *,
              version: str = "1.0", **arguments: Any) -> HostReport:
        limits = {"deadline": time.time() + self._seconds, "seconds": self._seconds}
        answer = self._send({**context, **limits}, node, method, version=version, **arguments)
        try:
            return HostReport.parse(answer)
        except BadReport as error:
            raise HostError(f"host {node}: invalid answer to {method}: {error}") from error

    def _send(self, context: Mapping[str, Any], node: str, method: str, *, version: str,
              **arguments: Any) -> Any:
        if not self._opened.wait(_OPEN_WAIT):
            raise BusDown("the message bus is not reachable: not connected since the start of "
                          "this process")
        try:
            return self._bounded.call(
                self._timeout + _SEND,
                lambda: self._client.prepare(server=node, version=version).call(
                    dict(context), method, **arguments))
        except BusDown:
            raise
        except HostError as error:
            raise as_raised(error) from None
        except messaging.MessagingTimeout:
            raise HostTimeout(f"host {node}: no answer to {method} in time; check that "
                              "vcache-host is running there") from None
        except (messaging.UnsupportedVersion, messaging.RemoteError) as error:
            # Which of the two depends on the driver.
            if getattr(error, "exc_type", "UnsupportedVersion") == "UnsupportedVersion":
                raise HostError(f"host {node}: its vcache-host is too old for {method}, upgrade "
                                "it") from error
            raise HostError(f"host {node}: {method}: {error.exc_type}: {error.value}") from error
        except messaging.MessagingException as error:
            raise BusDown(f"the message bus is not reachable: {error}") from error
