# SPDX-License-Identifier: Apache-2.0
"""Caches to compare with, on the same emulated disks, and what fio says of them."""
