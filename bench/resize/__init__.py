# SPDX-License-Identifier: Apache-2.0
"""How vcache scales: with depth and jobs, with the size of the cache and what is dirty in it."""
