# SPDX-License-Identifier: Apache-2.0
"""The model of a shared cache, model.c, as a Python class."""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def build(folder: Path) -> Path:
    """Compile the library."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libmodel.so"
    core = ROOT / "native" / "core"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror",
                    "-shared", "-fPIC", "-o", library, HERE / "model.c", core / "shards.c"],
                   check=True)
    return library


class Library:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        self.functions: Any = ctypes.CDLL(str(path))
        self.functions.cache_new.restype = ctypes.c_void_p
        self.functions.cache_curve.restype = ctypes.c_uint64


class Cache:
    """A cache of blocks that several tenants share.

    :param capacity: blocks
    :param samples: blocks in the sample of each curve
    :param buckets: buckets of each curve
    :param grain_shift: a bucket has 2^grain_shift blocks at first
    """

    def __init__(self, library: Library, capacity: int, tenants: int, *, samples: int = 8192,
                 buckets: int = 1024, grain_shift: int = 6) -> None:
        self._call = library.functions
        self._cache = ctypes.c_void_p(self._call.cache_new(
            capacity, tenants, samples, buckets, grain_shift))
        self.tenants = tenants

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._call.cache_free(self._cache)

    def quota(self, tenant: int, blocks: int) -> None:
        """Set the quota of a tenant."""
        self._call.cache_quota(self._cache, tenant, blocks)

    def cap(self, tenant: int, blocks: int) -> None:
        """Limit the blocks of a tenant, at least 1; what exceeds them leaves at once."""
        self._call.cache_cap(self._cache, tenant, blocks)

    def blocks(self, tenant: int) -> int:
        """Return how many blocks a tenant has."""
        return int(self._call.cache_blocks(self._cache, tenant))

    def access(self, blocks: "np.ndarray[Any, Any]", tenants: "np.ndarray[Any, Any]") \
            -> "np.ndarray[Any, Any]":
        """Access blocks in order; return the misses of each tenant."""
        misses = np.zeros(self.tenants, dtype=np.uint64)
        blocks, tenants = np.ascontiguousarray(blocks), np.ascontiguousarray(tenants)
        self._call.cache_access(self._cache, _pointer(blocks), _pointer(tenants),
                                ctypes.c_size_t(len(blocks)), _pointer(misses))
        return misses

    def curve(self, tenant: int, sizes: Sequence[int]) -> tuple[int, "np.ndarray[Any, Any]"]:
        """Return the accesses of a tenant, and how many of them each size would have missed."""
        wanted = np.array(sizes, dtype=np.uint64)
        misses = np.zeros(len(wanted), dtype=np.uint64)
        accesses = self._call.cache_curve(self._cache, tenant, _pointer(wanted),
                                          ctypes.c_size_t(len(wanted)), _pointer(misses))
        return accesses, misses


def _pointer(array: "np.ndarray[Any, Any]") -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)
