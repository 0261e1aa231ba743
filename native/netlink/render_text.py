# SPDX-License-Identifier: Apache-2.0
"""Generates the Python modules of the agent and the reST reference page."""

from __future__ import annotations

import textwrap
from typing import Any

from specfile import (
    PYROUTE_TYPES,
    SPEC_NAME,
    Attribute,
    Operation,
    Spec,
    c_name,
    one_line,
    py_class,
    py_const,
)

STRUCT_FORMATS = {'u8': 'B', 'u16': 'H', 'u32': 'I', 'u64': 'Q'}
COLUMNS = 79  # as ruff is set up for the repository


def comment(text: str, prefix: str = '#: ', indent: str = '') -> list[str]:
    """A ``#:`` comment: Sphinx documents the following item with it."""
    return textwrap.wrap(
        one_line(text),
        COLUMNS,
        initial_indent=indent + prefix,
        subsequent_indent=indent + prefix,
    )


def docstring(text: str) -> list[str]:
    """A class docstring: the first sentence, then any further text."""
    first, _, rest = one_line(text).partition('. ')
    if not rest:
        return [f'    """{first}"""', '']
    indent = '    '
    body = textwrap.wrap(
        rest, COLUMNS, initial_indent=indent, subsequent_indent=indent
    )
    return [f'    """{first}.', '', *body, '    """', '']


def python_enum(name: str, doc: str, rows: list[tuple[str, int, str]]) -> str:
    """An IntEnum class."""
    lines = [
        f'class {name}(enum.IntEnum):',
        *docstring(doc),
    ]
    for entry, value, text in rows:
        lines += comment(text, indent='    ')
        lines.append(f'    {entry} = {value}')
    return '\n'.join(lines) + '\n'


def python_attributes(spec: Spec, set_name: str, base: str, name: str) -> str:
    """A pyroute2 message or nested attribute class of one attribute set."""
    lines = [
        f'class {name}({base}):',
        f'    """Attributes of the set "{set_name}"."""',
        '',
        f"    prefix = '{c_name('a', set_name)}_'",
        '    nla_map = (',
        f"        ('{c_name('a', set_name, 'unspec')}', 'none'),",
    ]
    nested: list[str] = []
    for attribute in spec.sets[set_name]:
        if attribute.kind == 'nest':
            inner = attribute.raw['nested-attributes']
            kind = py_class(inner)
            nested.append(inner)
        else:
            kind = PYROUTE_TYPES[attribute.kind]
        full = c_name('a', set_name, attribute.name)
        lines.append(f"        ('{full}', '{kind}'),")
    lines += [
        f"        ('{c_name('a', set_name, 'pad')}', 'none'),",
        '    )',
    ]
    # pyroute2 looks up a nested class by name in the enclosing class.
    for inner in dict.fromkeys(nested):
        lines += ['', f'    {py_class(inner)} = {py_class(inner)}']
    return '\n'.join(lines) + '\n'


def python_struct(struct: dict[str, Any]) -> str:
    """A NamedTuple and the layout of a binary struct."""
    name = py_class(struct['name'])
    lines = [
        f'class {name}(NamedTuple):',
        *docstring(struct['doc']),
    ]
    layout = '='
    for member in struct['members']:
        layout += STRUCT_FORMATS[member['type']]
        lines += comment(member['doc'], indent='    ')
        lines.append(f'    {member["name"].replace("-", "_")}: int')
    lines += [
        '',
        '',
        f'#: Layout of one {name} in its binary attribute.',
        f"{py_const(struct['name'])}_LAYOUT = struct.Struct('{layout}')",
    ]
    return '\n'.join(lines) + '\n'


def set_order(spec: Spec) -> list[str]:
    """Attribute sets, nested ones before those that contain them."""
    nested = {
        attribute.raw['nested-attributes']
        for attributes in spec.sets.values()
        for attribute in attributes
        if attribute.kind == 'nest'
    }
    return sorted(spec.sets, key=lambda name: name not in nested)


def python_module(spec: Spec) -> str:
    """agent/vcache_agent/netlink/spec.py: names and numbers of the family."""
    head = [
        '# SPDX-License-Identifier: Apache-2.0',
        f'# Do not edit, generated from {SPEC_NAME} by generate.py.',
        f'"""Names and numbers of the generic-netlink family "{spec.name}"."""',
        '',
        'import enum',
        'import struct',
        'from typing import NamedTuple',
        '',
        f"FAMILY_NAME = '{spec.name}'",
        f'FAMILY_VERSION = {spec.version}',
        '',
    ]
    for group in spec.groups:
        head += [
            '#: Multicast group.',
            f"MCGRP_{py_const(group)} = '{group}'",
        ]
    for const in spec.consts:
        head += [f'#: {line}' for line in const['doc'].strip().splitlines()]
        head.append(f'{py_const(const["name"])} = {const["value"]}')
    sections = ['\n'.join(head) + '\n']
    sections.append(
        python_enum(
            'Command',
            'Commands of the family.',
            [
                (py_const(op.name), op.number, op.raw['doc'])
                for op in spec.operations
            ],
        )
    )
    for item in spec.enums:
        rows = [
            (py_const(entry['name']), value, entry['doc'])
            for value, entry in enumerate(item['entries'])
        ]
        sections.append(python_enum(py_class(item['name']), item['doc'], rows))
    sections += [python_struct(item) for item in spec.structs]
    return '\n\n'.join(sections)


def python_messages(spec: Spec) -> str:
    """agent/vcache_agent/netlink/messages.py: its messages, for pyroute2."""
    head = [
        '# SPDX-License-Identifier: Apache-2.0',
        f'# Do not edit, generated from {SPEC_NAME} by generate.py.',
        f'"""Messages of the generic-netlink family "{spec.name}".',
        '',
        'Importing these takes longer than most commands. spec.py does not need them.',
        '"""',
        '',
        'from vcache_agent.netlink.pyroute2_base import genlmsg, nla',
        'from vcache_agent.netlink.spec import Command',
    ]
    sections = ['\n'.join(head) + '\n']
    used = {op.raw['attribute-set'] for op in spec.operations}
    for name in set_order(spec):
        if name in used:
            sections.append(
                python_attributes(
                    spec, name, 'genlmsg', f'{py_class(name)}Message'
                )
            )
        else:
            sections.append(
                python_attributes(spec, name, 'nla', py_class(name))
            )
    commands = [
        f'    Command.{py_const(op.name)}: '
        f'{py_class(op.raw["attribute-set"])}Message,'
        for op in spec.operations
    ]
    sections.append(
        '\n'.join(
            [
                '#: Message class of each command, for requests and replies.',
                'MESSAGES: dict[Command, type[genlmsg]] = {',
                *commands,
                '}',
            ]
        )
        + '\n'
    )
    return '\n\n'.join(sections)


def heading(text: str, mark: str) -> list[str]:
    """A reST section title."""
    return [text, mark * len(text), '']


def attribute_type(attribute: Attribute) -> str:
    """The type of an attribute with its restrictions, for the reference."""
    raw = attribute.raw
    text = attribute.kind
    if attribute.kind == 'nest':
        text = f'nest of `{raw["nested-attributes"]}`_'
    elif 'enum' in raw:
        text += f', `{raw["enum"]}`_'
    elif 'struct' in raw:
        text += f', array of `{raw["struct"]}`_'
    for check, value in raw.get('checks', {}).items():
        text += f', {check} {value}'
    if raw.get('multi-attr'):
        text += ', repeated'
    return text


def table(columns: list[str], widths: str, rows: list[list[str]]) -> list[str]:
    """A list-table."""
    lines = [
        '.. list-table::',
        '   :header-rows: 1',
        f'   :widths: {widths}',
        '',
    ]
    for row in [columns, *rows]:
        for index, cell in enumerate(row):
            lead = '   * - ' if index == 0 else '     - '
            lines.append((lead + cell).rstrip())
    return [*lines, '']


def operation_reference(op: Operation) -> list[str]:
    """One command's section."""
    lines = [*heading(op.name, '^'), op.raw['doc'].strip(), '']
    lines.append(f'* attribute set: `{op.raw["attribute-set"]}`_')
    for form in ('do', 'dump'):
        if form not in op.raw:
            continue
        for side in ('request', 'reply'):
            names = op.raw[form].get(side, {}).get('attributes', [])
            text = ', '.join(f'``{n}``' for n in names)
            if side == 'request' or names:
                lines.append(f'* {form} {side}: {text or "no attribute"}')
    if 'event' in op.raw:
        text = ', '.join(f'``{n}``' for n in op.raw['event']['attributes'])
        lines.append(f'* event: {text}')
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(
            line, COLUMNS, subsequent_indent='  ' * line.startswith('* '),
            break_on_hyphens=False,
        ) or ['']
    return [*wrapped, '']


def reference(spec: Spec) -> str:
    """doc/source/reference/netlink.rst: the reference page."""
    out = [
        f'.. Do not edit, generated from {SPEC_NAME} by generate.py.',
        '',
        *heading(f'The netlink family {spec.name}', '='),
        spec.raw['doc'].strip(),
        '',
        f'Generic-netlink family ``{spec.name}``, version {spec.version}; '
        'multicast groups: '
        + ', '.join(f'``{group}``' for group in spec.groups)
        + '.',
        'Every command needs ``CAP_SYS_ADMIN`` in the initial user namespace, as',
        "device mapper's ioctls do. So does joining a multicast group.",
        '',
        'Requests are checked strictly. A request with an unknown attribute',
        'is refused, and the extended acknowledgement names the attribute.',
        '',
        *heading('Commands', '-'),
    ]
    for op in spec.operations:
        out += operation_reference(op)
    out += heading('Attribute sets', '-')
    for name, attributes in spec.sets.items():
        out += heading(name, '^')
        doc = next(
            raw.get('doc')
            for raw in spec.raw['attribute-sets']
            if raw['name'] == name
        )
        if doc:
            out += [doc.strip(), '']
        out += table(
            ['number', 'name', 'type', 'meaning'],
            '8 20 27 45',
            [
                [str(a.number), f'``{a.name}``', attribute_type(a), a.doc]
                for a in attributes
            ],
        )
    out += heading('Enumerations', '-')
    for item in spec.enums:
        out += [*heading(item['name'], '^'), item['doc'].strip(), '']
        out += table(
            ['value', 'name', 'meaning'],
            '10 25 65',
            [
                [str(value), f'``{entry["name"]}``', entry['doc']]
                for value, entry in enumerate(item['entries'])
            ],
        )
    out += heading('Structures', '-')
    for item in spec.structs:
        out += [*heading(item['name'], '^'), item['doc'].strip(), '']
        out += table(
            ['member', 'type', 'meaning'],
            '20 20 60',
            [
                [f'``{m["name"]}``', m['type'], m['doc']]
                for m in item['members']
            ],
        )
    out += heading('Constants', '-')
    out += table(
        ['name', 'value', 'meaning'],
        '25 15 60',
        [
            [f'``{c["name"]}``', str(c['value']), one_line(c['doc'])]
            for c in spec.consts
        ],
    )
    return '\n'.join(out).rstrip() + '\n'
