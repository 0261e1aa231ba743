# SPDX-License-Identifier: Apache-2.0
"""The RPC interface of vcache-api, and its client for hosts.

Topic ``vcache-api``; every process of the API has all reports, by fanout.

=======  =====================================================================
version  what was new
=======  =====================================================================
1.0      ``report(report)``, a cast
=======  =====================================================================
"""

import oslo_messaging as messaging

from nova_vcache.rpc.report import HostReport

TOPIC = "vcache-api"
VERSION = "1.0"


class ApiClient:
    """Tells vcache-api.

    :param transport: oslo.messaging's
    :param cap: the version that all processes of the API understand; None: the newest
    """

    def __init__(self, transport: messaging.Transport, cap: str | None = None) -> None:
        # A report that is late is worth nothing; the next one comes soon.
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=TOPIC, version="1.0", fanout=True),
            version_cap=cap or VERSION, retry=0)

    def report(self, report: HostReport) -> None:
        """Tell all processes of the API about a host.

        :raises oslo_messaging.MessagingException: if the bus cannot be reached
        """
        self._client.cast({}, "report", report=report.to_json())
