# SPDX-License-Identifier: Apache-2.0
"""The box: run one command as root under a real Debian kernel.

See README.md in this folder. On the host use :class:`Box`, or :class:`Uml`; inside the box
:mod:`tests.box.inside` loads the module and starts libvirtd.
"""

from tests.box.box import Box
from tests.box.machine import BoxError, BoxTimeout, KernelSplat, Result
from tests.box.uml import Uml

__all__ = ["Box", "BoxError", "BoxTimeout", "KernelSplat", "Result", "Uml"]
