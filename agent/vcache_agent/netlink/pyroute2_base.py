# SPDX-License-Identifier: Apache-2.0
"""pyroute2's classes for netlink messages, without the rest of pyroute2.

pyroute2 imports all of its parts when one of its modules is imported. That is 20 MB of memory and a
third of the agent's start. Its netlink messages need a tenth of that.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _only_parts() -> Iterator[None]:
    """Let modules of pyroute2 be imported without the package's own code."""
    spec = importlib.util.find_spec("pyroute2") if "pyroute2" not in sys.modules else None
    if spec is None or spec.submodule_search_locations is None:
        yield
        return
    package = types.ModuleType("pyroute2")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["pyroute2"] = package
    try:
        yield
    finally:
        # A later import of pyroute2 itself gets the whole package.
        del sys.modules["pyroute2"]


with _only_parts():
    from pyroute2.netlink import ctrlmsg, genlmsg, nla, nla_base

__all__ = ["ctrlmsg", "genlmsg", "nla", "nla_base"]
