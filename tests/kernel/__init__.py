# SPDX-License-Identifier: Apache-2.0
"""Tests of the kernel module; they run inside the box, see README.md."""
