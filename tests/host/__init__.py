# SPDX-License-Identifier: Apache-2.0
"""Tests of hook and agent with libvirt, QEMU and the kernel module, in the box."""
