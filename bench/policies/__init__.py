# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the policies that divide a pool."""
