# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics for Prometheus: definitions, collector and HTTP listener."""
