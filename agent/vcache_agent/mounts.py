# SPDX-License-Identifier: Apache-2.0
"""Find the mount point of a path, without a look-up of the path."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def points(file: Path = _MOUNTS) -> frozenset[str]:
    """Return all mount points."""
    try:
        lines = file.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return frozenset({"/"})
    return frozenset(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4])
                     for line in lines)


def point_of(path: str, among: Iterable[str]) -> str:
    """Return the mount point of an absolute path. Symbolic links are not followed.

    :param among: all mount points
    """
    known = among if isinstance(among, frozenset) else frozenset(among)
    found = os.path.normpath(path)
    while found not in known and found not in ("/", ""):
        found = os.path.dirname(found)
    return found or "/"
