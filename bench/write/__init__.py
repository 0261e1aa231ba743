# SPDX-License-Identifier: Apache-2.0
"""Writes of several tenants through a cache, compared with other caches."""
