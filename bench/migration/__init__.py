# SPDX-License-Identifier: Apache-2.0
"""Latency of small synchronous writes across a live migration."""
