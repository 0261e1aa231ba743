# SPDX-License-Identifier: Apache-2.0
"""Encode requests without pyroute2's objects, which take longer than the kernel's work.

The attribute tables come from messages.py.
"""

import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_GENERIC = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")

_WRITERS: Mapping[str, Callable[[Any], bytes]] = {
    "uint32": struct.Struct("=I").pack,
    "uint64": struct.Struct("=Q").pack,
    "asciiz": lambda text: text.encode() + b"\0",
    "flag": lambda _: b"",
    "cdata": bytes,
}


@functools.cache
def _table(kind: Any) -> Mapping[str, tuple[int, str]]:
    """Return (number, form) of a message's attributes by their name."""
    return {name: (number, form) for number, (name, form) in enumerate(kind.nla_map)}


def request(kind: Any, command: int, version: int,
            attributes: Iterable[tuple[str, Any]]) -> bytes:
    """Return the body of a request, from the generic-netlink header on.

    :param kind: class of the message, which has the table of the attributes
    :param attributes: names and values
    :raises struct.error: if a number is out of its range
    """
    table = _table(kind)
    parts = [_GENERIC.pack(command, version, 0)]
    for name, value in attributes:
        number, form = table[name]
        data = _WRITERS[form](value)
        parts += (_ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), number), data,
                  bytes(-len(data) % 4))
    return b"".join(parts)
