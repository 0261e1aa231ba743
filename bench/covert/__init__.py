# SPDX-License-Identifier: Apache-2.0
"""The covert channel between two VMs by the time of their fsyncs (Sync+Sync)."""
