# SPDX-License-Identifier: Apache-2.0
"""The generic-netlink family of the dm target "vcache"."""
