# SPDX-License-Identifier: Apache-2.0
"""What a flavor must ask Placement for, and where a flavor does not.

Two questions that are answered apart from one another:

``vcache:min_mb``
    A guarantee holds only if it is counted, so it is always an allocation: a
    host that has not so much left, or no cache at all, is never chosen.
``vcache:required``
    Whether a host without what the mode needs may be chosen. Placement cannot
    wish, only require. So without it no trait is required and no tag asked for,
    and any host will do; the weigher prefers one with a cache.

A request for a trait looks only at providers that something is allocated from.
That is why everything that must be met also asks for a tag: it leads Placement,
and through the allocation candidates the scheduler, to our provider.
"""

import dataclasses
import re
from collections.abc import Mapping

from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, Mode
from nova_vcache.placement import names

_REQUIRED = "required"

#: Traits that an operator may require on top, where the flavor is a hard one.
_OPTIONAL = frozenset({names.ELASTIC, names.TAGGED_SSD})

# resources:X, trait:X and those of a numbered or named group, resources1:X,
# trait_CACHE:X.
_OURS = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(CUSTOM_VCACHE_[A-Z0-9_]+)")


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """One key of a flavor that does not go with its ``vcache:*`` keys.

    :param key: which
    :param has: its value in the flavor; None: it is absent
    :param should: what it should be; None: absent
    :param why: for people, one sentence without a full stop
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
    """Tell whether a flavor asks for a cache device."""
    return specs.mode in (Mode.WRITEBACK, Mode.WRITETHROUGH)


def guaranteed_mb(specs: ExtraSpecs) -> int:
    """Return the MiB that are guaranteed to an instance; its mode may have no cache."""
    return specs.min_mb if caches(specs) else 0


def is_hard(specs: ExtraSpecs) -> bool:
    """Tell whether a host has to be one of ours, by what Placement is asked for."""
    return specs.mode is not Mode.NONE and (specs.required or guaranteed_mb(specs) > 0)


def placement_keys(specs: ExtraSpecs) -> dict[str, str]:
    """Return the keys ``resources:*`` and ``trait:*`` that go with a flavor's specs."""
    if not is_hard(specs):
        return {}
    keys = {f"resources:{names.TAG}": "1"}
    if guaranteed_mb(specs):
        keys[f"resources:{names.CACHE_MB}"] = str(guaranteed_mb(specs))
    if specs.required:
        keys |= {f"trait:{trait}": _REQUIRED for trait in names.MODE_TRAITS[specs.mode]}
    return keys


def is_ours(key: str) -> bool:
    """Tell whether an extra spec asks Placement for something of ours."""
    return _OURS.fullmatch(key) is not None


def disagreements(flavor: Mapping[str, str]) -> list[Disagreement]:
    """Return where a flavor's keys for Placement do not go with its ``vcache:*``.

    :param flavor: all extra specs of the flavor
    :returns: sorted by key; empty if all is well
    :raises nova_vcache.extra_specs.InvalidExtraSpecs: if the ``vcache:*`` keys
        themselves, which come first, cannot be used
    """
    specs = extra_specs.parse(flavor)
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
    """Say why a key should be what it should be."""
    prefix, _, name = key.partition(":")
    if should is not None:
        if name == names.CACHE_MB:
            return "vcache:min_mb is guaranteed only by an allocation of so many MiB"
        if name == names.TAG:
            return "an instance with a guarantee, or vcache:required, takes one"
        return f"vcache:required with vcache:mode={specs.mode} needs a host that has it"
    if specs.mode is Mode.NONE:
        return "vcache:mode is none, so the instance gets nothing of it"
    if prefix not in ("resources", "trait"):
        return "a group of its own may be met by another provider than the host's cache"
    if name == names.CACHE_MB and not caches(specs):
        return f"vcache:mode={specs.mode} has no cache"
    if name == names.CACHE_MB:
        return "vcache:min_mb is 0, so nothing is guaranteed"
    if prefix == "trait" and not specs.required:
        return "without vcache:required any host will do, and this rules some out"
    if name == names.TAG:
        return "without vcache:required and vcache:min_mb any host will do"
    return f"vcache:mode={specs.mode} does not need it"
