# SPDX-License-Identifier: Apache-2.0
"""Words of vcache-api for people, with their translations."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

Json = dict[str, Any]

#: States of objectives, each with a class of Bootstrap's labels.
SLO_STATES: Mapping[str, tuple[Any, str]] = {
    "met": (pgettext_lazy("State of an objective", "Met"), "success"),
    "missed": (pgettext_lazy("State of an objective", "Missed"), "danger"),
    "unknown": (pgettext_lazy("State of an objective", "Not measured"), "default"),
    "none": (pgettext_lazy("State of an objective", "No objective"), "default")}

HOST_STATES: Mapping[str, Any] = {
    "up": pgettext_lazy("State of a host", "Up"),
    "stale": pgettext_lazy("State of a host", "Stale"),
    "unknown": pgettext_lazy("State of a host", "Unknown")}

MODES: Mapping[str, Any] = {
    "writeback": _("Writeback"), "writethrough": _("Writethrough"), "flush-only": _("Flush only"),
    "none": _("None")}

OBJECTIVES: Mapping[str, tuple[Any, str]] = {
    "slo_flush_ms": (_("99 % of flushes take at most"), "ms"),
    "slo_read_us": (_("99 % of reads take at most"), "µs"),
    "slo_iops": (_("Requests per second, at least"), "IOPS")}

CAUSES: Mapping[str, Any] = {
    "no-load": _("The instance sends too few requests."),
    "own-burst": _("The instance has much more load than usual."),
    "own-share": _("The instance's part of the cache is too small."),
    "neighbour": _("Another instance has much more load than usual."),
    "host": _("The host itself has much more load than usual."),
    "device": _("The cache device or the origin is slow."),
    "platform": _("The cause is outside of the instance."),
    "unknown": _("No cause was found.")}

# Causes that are about other instances and the host, which a project does not see.
_FOREIGN = frozenset({"neighbour", "host", "device"})


def slo_state(item: Json) -> str:
    """Return the state of an instance's objectives; an older API has only slo_missed."""
    if item.get("slo_state"):
        return str(item["slo_state"])
    missed = item.get("slo_missed")
    return "unknown" if missed is None else "missed" if missed else "met"


def cause(one: Json, *, own: bool) -> Any:
    """Return why an objective is missed, as a sentence.

    :param own: only what a project may see, whoever asks
    """
    name = one["cause"]
    if own and name in _FOREIGN:
        name = "platform"
    return CAUSES.get(name, name)
