# SPDX-License-Identifier: Apache-2.0
"""Errors of calls to the kernel."""


class NetlinkError(OSError):
    """The kernel refused a request; the text comes from the kernel."""


class ModuleNotLoaded(NetlinkError):
    """The kernel does not have the family, because dm-vcache is not loaded."""


class NetlinkTimeout(NetlinkError):
    """The kernel did not answer in time."""
