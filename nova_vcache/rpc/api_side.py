# SPDX-License-Identifier: Apache-2.0
"""The RPC interface of vcache-api, and its client for hosts.

The topic is ``vcache-api``. Every process of the API receives all reports, by fanout. So most of
them are small: a report with all instances is sent only when something important has changed,
seldom otherwise, and on request.

=======  =====================================================================
version  changes
=======  =====================================================================
1.0      ``report(report)``, a cast
1.1      ``ping()``, called by a process of the API on itself
1.2      ``beat(report)``, a cast of a report without details
=======  =====================================================================
"""

import oslo_messaging as messaging

from nova_vcache.rpc.report import HostReport

TOPIC = "vcache-api"
VERSION = "1.2"


def ping(transport: messaging.Transport, server: str, timeout: float) -> None:
    """Send a call to a process of the API, which answers nothing.

    :param server: name of the process as an RPC server
    :param timeout: in seconds, from when the message bus is reachable
    :raises oslo_messaging.MessagingException: if there was no answer
    """
    messaging.get_rpc_client(
        transport, messaging.Target(topic=TOPIC, version="1.1", server=server),
        timeout=timeout, retry=2).call({}, "ping")


class ApiClient:
    """RPC client for vcache-api.

    :param transport: transport of oslo.messaging
    :param cap: version that all processes of the API support; None: the newest
    """

    def __init__(self, transport: messaging.Transport, cap: str | None = None) -> None:
        # Do not retry: a late report is useless, and the next one comes soon.
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=TOPIC, version="1.0", fanout=True),
            version_cap=cap or VERSION, retry=0)

    def can_beat(self) -> bool:
        """Return True if all processes of the API accept reports without details."""
        return bool(self._client.can_send_version("1.2"))

    def report(self, report: HostReport) -> None:
        """Send a report to all processes of the API.

        :raises oslo_messaging.MessagingException: if the message bus is not reachable
        """
        if report.details:
            self._client.cast({}, "report", report=report.to_json())
        else:
            self._client.prepare(version="1.2").cast({}, "beat", report=report.to_json())
