# SPDX-License-Identifier: Apache-2.0
"""Read and check a genetlink spec, and name what is in it."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

SPEC_NAME = 'native/netlink/vcache.yaml'

#: spec type -> (C type of a struct member, pyroute2 type, NLA_* type)
SCALARS = {
    'u8': ('__u8', 'uint8', 'NLA_U8'),
    'u16': ('__u16', 'uint16', 'NLA_U16'),
    'u32': ('__u32', 'uint32', 'NLA_U32'),
    'u64': ('__u64', 'uint64', 'NLA_U64'),
}
PYROUTE_TYPES = {
    **{name: types[1] for name, types in SCALARS.items()},
    'string': 'asciiz',
    'binary': 'cdata',
    'flag': 'flag',
}


class SpecError(Exception):
    """The spec says something that this generator cannot carry out."""


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute with its number within its set."""

    name: str
    number: int
    kind: str
    doc: str
    raw: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Operation:
    """One command with its number."""

    name: str
    number: int
    raw: dict[str, Any]

    @property
    def requests(self) -> bool:
        """Whether user space may send it; an event goes the other way."""
        return 'do' in self.raw or 'dump' in self.raw

    def request_attributes(self) -> list[str]:
        """Names of the attributes that a request may carry, without doubles.

        The kernel's ``struct genl_ops`` has one policy for both the ``do``
        and the ``dump`` form, so this is the union of the two.
        """
        names: list[str] = []
        for form in ('do', 'dump'):
            request = self.raw.get(form, {}).get('request', {})
            names += request.get('attributes', [])
        return list(dict.fromkeys(names))


def c_name(*parts: str) -> str:
    """VCACHE_A_TAG_LIMIT_BYTES from ('a', 'tag', 'limit-bytes')."""
    return '_'.join(('vcache', *parts)).replace('-', '_').upper()


def c_ident(*parts: str) -> str:
    """vcache_nl_tag_get from ('nl', 'tag-get')."""
    return '_'.join(('vcache', *parts)).replace('-', '_')


def py_class(name: str) -> str:
    """EventKind from event-kind."""
    return ''.join(word.capitalize() for word in name.split('-'))


def py_const(name: str) -> str:
    """EXTENTS_LOST from extents-lost."""
    return name.replace('-', '_').upper()


def one_line(text: str | None) -> str:
    """The words of a doc text without its line breaks."""
    return ' '.join((text or '').split())


class Spec:
    """The parsed and checked spec."""

    def __init__(self, text: str):
        self.raw: dict[str, Any] = yaml.safe_load(text)
        if self.raw.get('protocol') != 'genetlink':
            raise SpecError('protocol: only "genetlink" is known')
        self.name: str = self.raw['name']
        self.version: int = self.raw['version']
        definitions = self.raw['definitions']
        self.enums = [d for d in definitions if d['type'] == 'enum']
        self.structs = [d for d in definitions if d['type'] == 'struct']
        self.consts = [d for d in definitions if d['type'] == 'const']
        unknown = [
            d['name']
            for d in definitions
            if d['type'] not in ('enum', 'struct', 'const')
        ]
        if unknown:
            raise SpecError(
                f'definitions: {unknown[0]}: '
                'type must be enum, struct or const'
            )
        self.sets: dict[str, list[Attribute]] = {
            raw['name']: [
                Attribute(
                    a['name'],
                    number,
                    a['type'],
                    one_line(a.get('doc')),
                    a,
                )
                for number, a in enumerate(raw['attributes'], start=1)
            ]
            for raw in self.raw['attribute-sets']
        }
        self.operations = [
            Operation(op['name'], number, op)
            for number, op in enumerate(
                self.raw['operations']['list'], start=1
            )
        ]
        self.groups: list[str] = [
            group['name'] for group in self.raw['mcast-groups']['list']
        ]
        self._check()

    def _check(self) -> None:
        """Refuse references to names that the spec does not define."""
        enums = {e['name'] for e in self.enums}
        structs = {s['name'] for s in self.structs}
        for set_name, attributes in self.sets.items():
            for a in attributes:
                where = f'attribute-sets: {set_name}: {a.name}'
                if a.kind == 'nest':
                    self._known(
                        a.raw.get('nested-attributes'), self.sets, where
                    )
                elif a.kind not in PYROUTE_TYPES:
                    raise SpecError(f'{where}: unknown type {a.kind}')
                if 'enum' in a.raw:
                    self._known(a.raw['enum'], enums, where)
                if 'struct' in a.raw:
                    self._known(a.raw['struct'], structs, where)
                for value in a.raw.get('checks', {}).values():
                    self.number(value, where)
        for op in self.operations:
            where = f'operations: {op.name}'
            self._known(op.raw['attribute-set'], self.sets, where)
            names = {a.name for a in self.sets[op.raw['attribute-set']]}
            for attribute in op.request_attributes():
                self._known(attribute, names, where)

    @staticmethod
    def _known(name: Any, allowed: Any, where: str) -> None:
        if name not in allowed:
            raise SpecError(
                f'{where}: {name!r} is not one of {", ".join(sorted(allowed))}'
            )

    def number(self, value: int | str, where: str) -> int:
        """The number behind a check, which may name a constant."""
        if isinstance(value, int):
            return value
        for const in self.consts:
            if const['name'] == value:
                return int(const['value'])
        raise SpecError(f'{where}: no constant is called {value!r}')

    def attribute(self, set_name: str, name: str) -> Attribute:
        """One attribute of a set by its name."""
        return next(a for a in self.sets[set_name] if a.name == name)
