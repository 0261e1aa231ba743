# SPDX-License-Identifier: Apache-2.0
"""See nvme.py."""

from nvmet import nvme
from nvmet.nvme import ANAGroup, Host, Namespace, Port, Referral, Root, Subsystem

__all__ = ["ANAGroup", "Host", "Namespace", "Port", "Referral", "Root", "Subsystem", "nvme"]
