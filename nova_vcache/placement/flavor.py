# SPDX-License-Identifier: Apache-2.0
"""The keys with which a flavor must request resources and traits from Placement.

These keys of the flavor decide independently of each other:

``vcache:min_mb``
    A guarantee holds only if it is counted, so it is always an allocation. A host
    with too little free cache, or without a cache, is never selected. The guarantee of
    an elastic SSD, ``vcache:vssd_mb``, is added, whatever the mode is.
``vcache:required``
    Placement cannot express preferences, only requirements. With this key the
    flavor requires the traits of its mode and one tag. Without it, the flavor
    requires neither, and any host is possible; the weigher then prefers a host
    with a cache.

Placement checks a required trait only on providers from which it allocates
something. So every flavor with a requirement and a mode also requests one tag. That leads
Placement, and the scheduler through the allocation candidates, to the cache's
provider.
"""

import dataclasses
import re
from collections.abc import Mapping

from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, Mode
from nova_vcache.placement import names

_REQUIRED = "required"

#: Traits that an operator may additionally require in a flavor with requirements.
_OPTIONAL = frozenset({names.ELASTIC, names.TAGGED_SSD})

# resources:X, trait:X, and those of a numbered or named group, such as resources1:X or
# trait_CACHE:X.
_OURS = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(CUSTOM_VCACHE_[A-Z0-9_]+)")


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """One Placement key of a flavor that does not match its ``vcache:*`` keys.

    :param key: the key
    :param has: its value in the flavor; None: it is absent
    :param should: its correct value; None: it must be absent
    :param why: the reason, as a sentence without a full stop
    """

    key: str
    has: str | None
    should: str | None
    why: str

    def __str__(self) -> str:
        has = "is absent" if self.has is None else f"is {self.has!r}"
        should = "absent" if self.should is None else repr(self.should)
        return f"{self.key} {has}, should be {should}: {self.why}"


def caches(specs: ExtraSpecs) -> bool:
    """Return True if the mode of a flavor uses a cache device."""
    return specs.mode in (Mode.WRITEBACK, Mode.WRITETHROUGH)


def guaranteed_mb(specs: ExtraSpecs) -> int:
    """Return the guaranteed MiB of an instance: of its cache, and of its elastic SSD.

    Without a mode that uses a cache, or without an elastic SSD, a guarantee has no effect.
    """
    return (specs.min_mb if caches(specs) else 0) + (
        0 if specs.vssd_max_mb is None else specs.vssd_mb)


def is_hard(specs: ExtraSpecs) -> bool:
    """Return True if a flavor has requirements, so that only hosts with vcache are possible."""
    return guaranteed_mb(specs) > 0 or (specs.required and specs.mode is not Mode.NONE)


def placement_keys(specs: ExtraSpecs) -> dict[str, str]:
    """Return the keys ``resources:*`` and ``trait:*`` that match a flavor's extra specs."""
    if not is_hard(specs):
        return {}
    keys = {} if specs.mode is Mode.NONE else {f"resources:{names.TAG}": "1"}
    if guaranteed_mb(specs):
        keys[f"resources:{names.CACHE_MB}"] = str(guaranteed_mb(specs))
    if specs.required:
        keys |= {f"trait:{trait}": _REQUIRED for trait in names.MODE_TRAITS[specs.mode]}
    return keys


def is_ours(key: str) -> bool:
    """Return True if an extra spec requests a resource or trait of vcache."""
    return _OURS.fullmatch(key) is not None


def disagreements(flavor: Mapping[str, str]) -> list[Disagreement]:
    """Return the Placement keys of a flavor that do not match its ``vcache:*`` keys.

    :param flavor: all extra specs of the flavor
    :return: sorted by key; empty if all keys match
    :raises nova_vcache.extra_specs.InvalidExtraSpecs: if ``vcache:*`` keys are invalid or unknown
    """
    specs = extra_specs.check(flavor)
    wanted = placement_keys(specs)
    found = {key: value for key, value in flavor.items() if is_ours(key)}
    wrong = []
    for key in sorted(wanted.keys() | found.keys()):
        has, should = found.get(key), wanted.get(key)
        if has == should or (should is None and _may_be_added(specs, key, has)):
            continue
        wrong.append(Disagreement(key, has, should, _why(specs, key, should)))
    return wrong


def _may_be_added(specs: ExtraSpecs, key: str, value: str | None) -> bool:
    prefix, _, name = key.partition(":")
    return (is_hard(specs) and prefix == "trait" and name in _OPTIONAL and value == _REQUIRED)


def _why(specs: ExtraSpecs, key: str, should: str | None) -> str:
    """Return the reason for the correct value of a key."""
    prefix, _, name = key.partition(":")
    if should is not None:
        if name == names.CACHE_MB:
            return ("vcache:min_mb and vcache:vssd_mb are guaranteed only by an allocation of "
                    "the same size")
        if name == names.TAG:
            return "an instance with vcache:min_mb or vcache:required needs one tag"
        return f"vcache:required with vcache:mode={specs.mode} needs a host with this trait"
    if specs.mode is Mode.NONE and not (name == names.CACHE_MB and is_hard(specs)):
        return "vcache:mode is none, so the instance does not use it"
    if prefix not in ("resources", "trait"):
        return "another provider than the host's cache may satisfy a separate group"
    if name == names.CACHE_MB and not caches(specs):
        return f"vcache:mode={specs.mode} uses no cache"
    if name == names.CACHE_MB:
        return "vcache:min_mb and vcache:vssd_mb are 0, so nothing is guaranteed"
    if prefix == "trait" and not specs.required:
        return "without vcache:required any host is possible, but this excludes some"
    if name == names.TAG:
        return "without vcache:required and vcache:min_mb any host is possible"
    return f"vcache:mode={specs.mode} does not need it"
