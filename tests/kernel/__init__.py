# SPDX-License-Identifier: Apache-2.0
"""Tests of the kernel module. They run in the box, see README.md."""
