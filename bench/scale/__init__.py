# SPDX-License-Identifier: Apache-2.0
"""Scaling of vcache with queue depth, jobs, cache size and dirty data."""
