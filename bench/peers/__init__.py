# SPDX-License-Identifier: Apache-2.0
"""Caches for comparison, on the same emulated disks, and the results of fio."""
