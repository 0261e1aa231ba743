# SPDX-License-Identifier: Apache-2.0
"""The data of NVMe's Identify command (NVMe Base Specification 2.0, section 5.17)."""

import dataclasses
import struct

SIZE = 4096
#: Values of CNS: a namespace, the controller.
NAMESPACE, CONTROLLER = 0, 1

_CTRATT = 96
_VWC = 525
_NVMSETID = 100
_MODEL = slice(24, 64)
_SETS, _GROUPS, _FDP = 1 << 2, 1 << 4, 1 << 19


@dataclasses.dataclass(frozen=True)
class Controller:
    """What a controller supports.

    :param model: its name
    :param volatile_cache: it has a volatile write cache, so completed writes can be lost
    :param sets: it has NVM sets
    :param groups: it has endurance groups
    :param fdp: it supports Flexible Data Placement
    """

    model: str
    volatile_cache: bool
    sets: bool
    groups: bool
    fdp: bool


@dataclasses.dataclass(frozen=True)
class Namespace:
    """Where a namespace is.

    :param nvm_set: its NVM set; 0: the controller has none
    :param group: its endurance group; 0: the controller has none
    """

    nvm_set: int
    group: int


def controller(data: bytes) -> Controller:
    """Parse the data of a controller, SIZE bytes."""
    (attributes,) = struct.unpack_from("<I", data, _CTRATT)
    model = data[_MODEL].decode("ascii", "replace")
    return Controller("".join(sign for sign in model if sign.isprintable()).strip(),
                      bool(data[_VWC] & 1), bool(attributes & _SETS),
                      bool(attributes & _GROUPS), bool(attributes & _FDP))


def namespace(data: bytes) -> Namespace:
    """Parse the data of a namespace, SIZE bytes."""
    return Namespace(*struct.unpack_from("<HH", data, _NVMSETID))
