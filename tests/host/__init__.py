# SPDX-License-Identifier: Apache-2.0
"""Hook and agent against real libvirt, QEMU and the kernel module, in the box."""
