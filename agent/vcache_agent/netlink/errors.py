# SPDX-License-Identifier: Apache-2.0
"""What a call to the kernel can fail with."""


class NetlinkError(OSError):
    """The kernel refused a request; the text is the kernel's own."""


class ModuleNotLoaded(NetlinkError):
    """The kernel does not know the family: dm-vcache is not loaded."""


class NetlinkTimeout(NetlinkError):
    """The kernel did not answer in time."""
