# SPDX-License-Identifier: Apache-2.0
"""numpy, loaded when it is first used: by the first survey with curves.

It takes 12 MB and a quarter of the agent's start, which a host without a cache does not need.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:
    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module("numpy"), name)
            setattr(self, name, found)
            return found

    np = _Numpy()

__all__ = ["np"]
