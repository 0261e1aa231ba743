# SPDX-License-Identifier: Apache-2.0
"""The C files made from the spec: shared header, policies, operations."""

from __future__ import annotations

import textwrap

from specfile import (
    SCALARS,
    SPEC_NAME,
    Attribute,
    Operation,
    Spec,
    SpecError,
    c_ident,
    c_name,
    one_line,
)

S16_MAX = 0x7FFF  # struct nla_policy holds min and max as s16


def wrapped(line: str) -> list[str]:
    """Break a kernel-doc line at the kernel's 80 columns."""
    return textwrap.wrap(
        line, 80, subsequent_indent=' *   ', break_long_words=False
    )


def c_enum(
    title: str,
    doc: str,
    names: list[tuple[str, str]],
    first: int,
    maximum: str | None = None,
) -> list[str]:
    """One documented C enum; MAXIMUM adds the kernel's __MAX and _MAX ends."""
    lines = ['/**', *wrapped(f' * enum {title} - {one_line(doc)}')]
    for name, text in names:
        lines += wrapped(f' * @{name}: {one_line(text)}')
    lines += [' */', f'enum {title} {{']
    for index, (name, _) in enumerate(names):
        start = f' = {first}' if index == 0 and first else ''
        lines.append(f'\t{name}{start},')
    if maximum:
        lines += [
            '',
            '\t/* private: */',
            f'\t__{maximum},',
            f'\t{maximum} = (__{maximum} - 1)',
        ]
    return [*lines, '};', '']


def uapi_header(spec: Spec) -> str:
    """native/netlink/vcache_uapi.h: what user space and the kernel share."""
    out = [
        '/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR '
        'BSD-3-Clause) */',
        f'/* Do not edit, generated from {SPEC_NAME} by generate.py. */',
        '#ifndef _UAPI_VCACHE_H',
        '#define _UAPI_VCACHE_H',
        '',
        '#include <linux/types.h>',
        '',
        f'#define VCACHE_FAMILY_NAME\t"{spec.name}"',
        f'#define VCACHE_FAMILY_VERSION\t{spec.version}',
        '',
    ]
    for group in spec.groups:
        out += [f'#define {c_name("mcgrp", group)}\t"{group}"', '']
    for const in spec.consts:
        doc = const['doc'].strip().splitlines()
        if len(doc) == 1:
            out.append(f'/* {doc[0]} */')
        else:
            out += ['/*', *(f' * {line}' for line in doc), ' */']
        out += [f'#define {c_name(const["name"])}\t{const["value"]}', '']
    for enum in spec.enums:
        entries = [
            (c_name(enum['name'], e['name']), e['doc'])
            for e in enum['entries']
        ]
        title = c_ident(enum['name'])
        out += c_enum(title, enum['doc'], entries, 0)
    for struct in spec.structs:
        title = c_ident(struct['name'])
        out += [
            '/**',
            *wrapped(f' * struct {title} - {one_line(struct["doc"])}'),
        ]
        for member in struct['members']:
            out += wrapped(f' * @{member["name"]}: {one_line(member["doc"])}')
        out += [' */', f'struct {title} {{']
        for member in struct['members']:
            out.append(f'\t{SCALARS[member["type"]][0]} {member["name"]};')
        out += ['};', '']
    for set_name, attributes in spec.sets.items():
        names = [
            (c_name('a', set_name, a.name), a.doc or a.name.replace('-', ' '))
            for a in attributes
        ]
        names.append(
            (c_name('a', set_name, 'pad'), 'aligns 64-bit values, no content')
        )
        out += c_enum(
            c_ident('a', set_name),
            f'attributes of the set "{set_name}"',
            names,
            1,
            c_name('a', set_name, 'max'),
        )
    commands = [
        (c_name('cmd', op.name), op.raw['doc']) for op in spec.operations
    ]
    out += c_enum('vcache_cmd', 'commands', commands, 1, c_name('cmd', 'max'))
    out.append('#endif /* _UAPI_VCACHE_H */')
    return '\n'.join(out) + '\n'


def handlers(op: Operation) -> list[tuple[str, str, str]]:
    """(member of genl_ops, function, parameters) of an operation."""
    found = []
    if 'do' in op.raw:
        found.append(
            (
                'doit',
                c_ident('nl', op.name, 'doit'),
                'struct sk_buff *skb, struct genl_info *info',
            )
        )
    if 'dump' in op.raw:
        found.append(
            (
                'dumpit',
                c_ident('nl', op.name, 'dumpit'),
                'struct sk_buff *skb, struct netlink_callback *cb',
            )
        )
    return found


def kernel_header(spec: Spec) -> str:
    """native/dm/control/nl_gen.h: tables and the handlers written by hand."""
    count = sum(op.requests for op in spec.operations)
    out = [
        '/* SPDX-License-Identifier: GPL-2.0-only */',
        f'/* Do not edit, generated from {SPEC_NAME} by generate.py. */',
        '#ifndef _VCACHE_NL_GEN_H',
        '#define _VCACHE_NL_GEN_H',
        '',
        '#include <net/genetlink.h>',
        '',
        '#include "../../netlink/vcache_uapi.h"',
        '',
        '/* Index into vcache_nl_mcgrps[], for genlmsg_multicast(). */',
        'enum {',
        *(f'\t{c_name("nlgrp", group)},' for group in spec.groups),
        '};',
        '',
        f'#define VCACHE_NL_OPS_COUNT\t{count}',
        f'#define VCACHE_NL_MCGRPS_COUNT\t{len(spec.groups)}',
        '',
        'extern const struct genl_ops vcache_nl_ops[VCACHE_NL_OPS_COUNT];',
        'extern const struct genl_multicast_group',
        '\tvcache_nl_mcgrps[VCACHE_NL_MCGRPS_COUNT];',
        '',
        '/* Written by hand in netlink.c. */',
        f'int {c_ident("nl", "start")}(struct netlink_callback *cb);',
    ]
    for op in spec.operations:
        for _, function, parameters in handlers(op):
            line = f'int {function}({parameters});'
            if len(line) > 80:
                head, tail = parameters.split(', ')
                pad = ' ' * (len(function) + 5)
                tabs = '\t' * (len(pad) // 8) + ' ' * (len(pad) % 8)
                line = f'int {function}({head},\n{tabs}{tail});'
            out.append(line)
    out += ['', '#endif /* _VCACHE_NL_GEN_H */']
    return '\n'.join(out) + '\n'


def policy(
    spec: Spec, where: str, attribute: Attribute
) -> tuple[str, str | None]:
    """The nla_policy initialiser of an attribute and a range it refers to."""
    checks = attribute.raw.get('checks', {})
    if attribute.kind == 'string':
        limit = checks.get('max-len')
        size = (
            f', .len = {c_name(limit)}'
            if isinstance(limit, str)
            else (f', .len = {limit}' if limit else '')
        )
        return f'{{ .type = NLA_NUL_STRING{size}, }}', None
    if attribute.kind == 'flag':
        return '{ .type = NLA_FLAG, }', None
    if attribute.kind == 'binary':
        return '{ .type = NLA_BINARY, }', None
    if attribute.kind == 'nest':
        raise SpecError(f'{where}: a request cannot carry a nest')
    kind = SCALARS[attribute.kind][2]
    bounds = {
        end: (
            c_name(value) if isinstance(value, str) else str(value),
            spec.number(value, where),
        )
        for end, value in checks.items()
    }
    if 'enum' in attribute.raw and not bounds:
        entries = next(
            e for e in spec.enums if e['name'] == attribute.raw['enum']
        )['entries']
        last = c_name(attribute.raw['enum'], entries[-1]['name'])
        bounds = {'max': (last, len(entries) - 1)}
    if not bounds:
        return f'{{ .type = {kind}, }}', None
    if any(number > S16_MAX for _, number in bounds.values()):
        name = c_ident('nl', where, 'range')
        body = ''.join(
            f'\t.{end} = {text},\n' for end, (text, _) in bounds.items()
        )
        # Not const: before 6.7 struct nla_policy points to a mutable range.
        table = (
            f'static struct netlink_range_validation {name} = {{\n'
            f'{body}}};\n'
        )
        return f'NLA_POLICY_FULL_RANGE({kind}, &{name})', table
    if len(bounds) == 2:
        text = f'{bounds["min"][0]}, {bounds["max"][0]}'
        return f'NLA_POLICY_RANGE({kind}, {text})', None
    ((end, (text, _)),) = bounds.items()
    return f'NLA_POLICY_{end.upper()}({kind}, {text})', None


def kernel_source(spec: Spec) -> str:
    """native/dm/control/nl_gen.c: policies, operations and multicast groups."""
    ranges: dict[str, None] = {}
    policies: list[str] = []
    ops: list[str] = []
    for op in spec.operations:
        if not op.requests:
            continue
        set_name = op.raw['attribute-set']
        table = c_ident('nl', op.name, 'policy')
        wanted = sorted(
            (
                spec.attribute(set_name, name)
                for name in op.request_attributes()
            ),
            key=lambda a: a.number,
        )
        rows = []
        for attribute in wanted:
            text, range_table = policy(
                spec, f'{set_name}-{attribute.name}', attribute
            )
            if range_table:
                ranges[range_table] = None
            rows.append(
                f'\t[{c_name("a", set_name, attribute.name)}] = {text},\n'
            )
        if wanted:
            last = c_name('a', set_name, wanted[-1].name)
        else:
            # Without a policy genetlink would not look at the attributes at
            # all; a table that knows none refuses each of them.
            last = c_name('a', set_name, spec.sets[set_name][0].name)
            rows = [f'\t[{last}] = {{ .type = NLA_REJECT, }},\n']
        policies.append(
            f'/* {c_name("cmd", op.name)} */\n'
            f'static const struct nla_policy\n{table}[{last} + 1] = {{\n'
            f'{"".join(rows)}}};\n'
        )
        members = [f'.cmd = {c_name("cmd", op.name)}']
        members += [f'.{m} = {function}' for m, function, _ in handlers(op)]
        if 'dump' in op.raw:
            # For do requests, pre_doit of the family checks the capability.
            members.append(f'.start = {c_ident("nl", "start")}')
        members += [f'.policy = {table}', f'.maxattr = {last}']
        ops.append(
            '\t{\n' + ''.join(f'\t\t{m},\n' for m in members) + '\t},\n'
        )
    groups = ''.join(
        f'\t[{c_name("nlgrp", g)}] = {{\n'
        f'\t\t.name = {c_name("mcgrp", g)},\n'
        '\t\t.flags = GENL_MCAST_CAP_SYS_ADMIN,\n'
        '\t},\n'
        for g in spec.groups
    )
    return '\n'.join(
        [
            '// SPDX-License-Identifier: GPL-2.0-only',
            f'/* Do not edit, generated from {SPEC_NAME} by generate.py. */',
            '#include "../base/compat.h"',
            '#include "nl_gen.h"',
            '',
            *ranges,
            *policies,
            'const struct genl_ops vcache_nl_ops[VCACHE_NL_OPS_COUNT] = {',
            ''.join(ops) + '};',
            '',
            'const struct genl_multicast_group',
            'vcache_nl_mcgrps[VCACHE_NL_MCGRPS_COUNT] = {',
            groups + '};',
            '',
        ]
    )
