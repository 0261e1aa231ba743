# SPDX-License-Identifier: Apache-2.0
"""The RPC interface of a host (vcache-host), and its client for vcache-api.

Topic ``vcache-host``, the server's name is the compute node's.

=======  =====================================================================
version  what was new
=======  =====================================================================
1.0      ``report_now()`` cast; ``instance_set(uuid, values, replace)``,
         ``host_set(values)`` called, both return a report (see report.py)
1.1      ``pool_set(pool, values)`` called, returns a report
=======  =====================================================================

A method or an argument that is added raises the minor version; its client has to ask
:meth:`HostClient.can` whether the pinned version has it. A host answers all minor
versions up to its own.
"""

from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging

from nova_vcache.rpc.errors import BusDown, HostError, HostTimeout, as_raised
from nova_vcache.rpc.report import BadReport, HostReport

TOPIC = "vcache-host"
VERSION = "1.1"

#: Where exceptions may come from that a host raises.
EXMODS = ["nova_vcache.rpc.errors"]


class HostClient:
    """Asks hosts.

    :param transport: oslo.messaging's
    :param timeout: seconds that a host may take to answer
    :param cap: the version that all hosts understand, during an upgrade; None: the newest
    """

    def __init__(self, transport: messaging.Transport, timeout: float,
                 cap: str | None = None) -> None:
        # A retry or two over a connection that has just been cut, no more: who waits
        # is a request.
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=TOPIC, version="1.0"), timeout=timeout,
            version_cap=cap or VERSION, retry=2)

    def can(self, version: str) -> bool:
        """Tell whether hosts understand a version."""
        return bool(self._client.can_send_version(version))

    def report_now(self, context: Mapping[str, Any]) -> None:
        """Have all hosts report at once.

        :raises BusDown: if the message cannot be sent
        """
        try:
            self._client.prepare(fanout=True).cast(dict(context), "report_now")
        except messaging.MessagingException as error:
            raise BusDown(f"the message bus cannot be reached: {error}") from error

    def instance_set(self, context: Mapping[str, Any], node: str, uuid: str,
                     values: Mapping[str, Any], *, replace: bool) -> HostReport:
        """Set what holds of an instance instead of its flavor's; see the agent's instance-set.

        :raises HostError: one of its kinds
        """
        return self._call(context, node, "instance_set", uuid=uuid, values=dict(values),
                          replace=replace)

    def host_set(self, context: Mapping[str, Any], node: str,
                 values: Mapping[str, Any]) -> HostReport:
        """Set ``policy`` (a name, or None for the configured one) or ``draining`` of a host.

        :raises HostError: one of its kinds
        """
        return self._call(context, node, "host_set", values=dict(values))

    def pool_set(self, context: Mapping[str, Any], node: str, pool: str,
                 values: Mapping[str, Any]) -> HostReport:
        """Set ``reads_percent`` or ``hot_percent`` of a pool, until it is made again.

        :raises HostError: one of its kinds
        """
        if not self.can("1.1"):
            raise HostError(f"host {node}: pools cannot be set while rpc_host_cap keeps to what "
                            "older hosts understand")
        return self._call(context, node, "pool_set", version="1.1", pool=pool,
                          values=dict(values))

    def _call(self, context: Mapping[str, Any], node: str, method: str, *,
              version: str = "1.0", **arguments: Any) -> HostReport:
        try:
            answer = self._client.prepare(server=node, version=version).call(
                dict(context), method, **arguments)
            return HostReport.parse(answer)
        except HostError as error:
            raise as_raised(error) from None
        except messaging.MessagingTimeout:
            raise HostTimeout(f"host {node}: no answer to {method} in time; is vcache-host "
                              "running there?") from None
        except messaging.RemoteError as error:
            raise HostError(f"host {node}: {method}: {error.exc_type}: {error.value}") from error
        except messaging.MessagingException as error:
            raise BusDown(f"the message bus cannot be reached: {error}") from error
        except BadReport as error:
            raise HostError(f"host {node}: its answer to {method}: {error}") from error
