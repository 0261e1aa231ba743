# SPDX-License-Identifier: Apache-2.0
"""Throughput of tenants with different working sets in one cache."""
