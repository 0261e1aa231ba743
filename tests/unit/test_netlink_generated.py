# SPDX-License-Identifier: Apache-2.0
"""The files generated from the netlink spec are up to date and agree."""

import pathlib
import re
import subprocess
import sys

import pytest

from vcache_agent.netlink import messages, spec
from vcache_agent.netlink.pyroute2_base import genlmsg, nla

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETLINK = ROOT / 'native' / 'netlink'
HEADER = (NETLINK / 'vcache_uapi.h').read_text(encoding='utf-8')

ATTRIBUTE_SETS: dict[str, type[genlmsg] | type[nla]] = {
    'device': messages.DeviceMessage,
    'tag': messages.TagMessage,
    'stats': messages.Stats,
    'event': messages.EventMessage,
}
ENUMS = {
    'vcache_mode': ('VCACHE_MODE_', spec.Mode),
    'vcache_scope': ('VCACHE_SCOPE_', spec.Scope),
    'vcache_isolation': ('VCACHE_ISOLATION_', spec.Isolation),
    'vcache_event_kind': ('VCACHE_EVENT_KIND_', spec.EventKind),
    'vcache_cmd': ('VCACHE_CMD_', spec.Command),
}


def c_enum(name: str) -> dict[str, int]:
    """Return the numbers of a C enum's entries, as a compiler counts them."""
    match = re.search(rf'^enum {name} {{\n(.*?)^}};', HEADER, re.M | re.S)
    assert match, f'enum {name} is not in the header'
    body = re.sub(r'/\*.*?\*/', '', match[1])
    numbers: dict[str, int] = {}
    following = 0
    for entry in re.findall(r'^\t(\w+)(?: = (\d+))?,$', body, re.M):
        following = int(entry[1]) if entry[1] else following
        numbers[entry[0]] = following
        following += 1
    return {k: v for k, v in numbers.items() if not k.startswith('__')}


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the generator as ``make generate`` does."""
    return subprocess.run(
        [sys.executable, str(NETLINK / 'generate.py'), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_committed_files_are_up_to_date() -> None:
    result = generate('--check')
    assert (result.returncode, result.stderr) == (0, '')


def test_a_changed_spec_makes_every_output_stale(
    tmp_path: pathlib.Path,
) -> None:
    text = (NETLINK / 'vcache.yaml').read_text(encoding='utf-8')
    changed = tmp_path / 'vcache.yaml'
    changed.write_text(
        text.replace('name: suspended, type: flag', 'name: asleep, type: flag')
        .replace('[major, minor, id, name, weight, cgroup]', '[major, minor]')
        .replace('tags, suspended, broken]', 'tags, asleep, broken]')
        .replace('      name: tag-del\n', '      name: tag-drop\n'),
        encoding='utf-8',
    )
    result = generate('--check', '--spec', str(changed))
    assert result.returncode == 1
    stale = re.findall(r'^(\S+) is stale', result.stderr, re.M)
    assert sorted(stale) == [
        'agent/vcache_agent/netlink/messages.py',
        'agent/vcache_agent/netlink/spec.py',
        'doc/source/reference/netlink.rst',
        'native/dm/control/nl_gen.c',
        'native/dm/control/nl_gen.h',
        'native/netlink/vcache_uapi.h',
    ]


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        (
            'attribute-set: event',
            'attribute-set: evnt',
            "operations: event-ntf: 'evnt' is not one of "
            'cached, curve, device, event, lane, stats, tag',
        ),
        (
            'max: weight-max',
            'max: weigth-max',
            "attribute-sets: tag: weight: no constant is called 'weigth-max'",
        ),
        (
            'name: wait-ns, type: u64',
            'name: wait-ns, type: u63',
            'attribute-sets: stats: wait-ns: unknown type u63',
        ),
    ],
)
def test_a_wrong_spec_is_refused_by_name(
    tmp_path: pathlib.Path, old: str, new: str, message: str
) -> None:
    text = (NETLINK / 'vcache.yaml').read_text(encoding='utf-8')
    assert old in text
    wrong = tmp_path / 'vcache.yaml'
    wrong.write_text(text.replace(old, new), encoding='utf-8')
    result = generate('--check', '--spec', str(wrong))
    assert result.returncode == 2
    assert result.stderr == f'{wrong}: {message}\n'


@pytest.mark.parametrize('name', sorted(ATTRIBUTE_SETS))
def test_attribute_numbers_agree(name: str) -> None:
    header = c_enum(f'vcache_a_{name}')
    python = {
        row[0]: number
        for number, row in enumerate(ATTRIBUTE_SETS[name].nla_map)
        if number  # 0 is the unused "unspec"
    }
    assert header == python
    assert list(header)[-1] == f'VCACHE_A_{name.upper()}_PAD'


@pytest.mark.parametrize('name', sorted(ENUMS))
def test_enums_agree(name: str) -> None:
    prefix, members = ENUMS[name]
    assert c_enum(name) == {prefix + m.name: m.value for m in members}


def test_constants_agree() -> None:
    header = dict(re.findall(r'^#define VCACHE_(\w+)\s+(\S+)$', HEADER, re.M))
    python = {
        name: value
        for name, value in vars(spec).items()
        if name.isupper() and isinstance(value, int | str)
    }
    assert {k: v.strip('"') for k, v in header.items()} == {
        k: str(v) for k, v in python.items()
    }


def test_messages_survive_encode_and_decode() -> None:
    extents = b''.join(
        spec.EXTENT_LAYOUT.pack(*extent)
        for extent in (spec.Extent(8, 16), spec.Extent(2**40, 1))
    )
    histogram = bytes(8 * spec.HISTOGRAM_BUCKETS)
    sent = messages.TagMessage()
    sent['cmd'] = spec.Command.TAG_SET
    sent['version'] = spec.FAMILY_VERSION
    sent['attrs'] = [
        ('VCACHE_A_TAG_ID', spec.TAG_MAX),
        ('VCACHE_A_TAG_NAME', 'Büro: vda'),
        ('VCACHE_A_TAG_CGROUP', 2**40 + 1),
        ('VCACHE_A_TAG_CGROUP', 7),
        ('VCACHE_A_TAG_EXTENTS', extents),
        ('VCACHE_A_TAG_EXTENTS_BEGIN', True),
        (
            'VCACHE_A_TAG_STATS',
            {
                'attrs': [
                    ('VCACHE_A_STATS_FLUSHES', 3),
                    ('VCACHE_A_STATS_FLUSH_HIST', histogram),
                ]
            },
        ),
    ]
    sent.encode()
    received = messages.TagMessage(sent.data)
    received.decode()
    assert received['cmd'] == spec.Command.TAG_SET
    assert received.get('id') == spec.TAG_MAX
    assert received.get('name') == 'Büro: vda'
    assert received.get_attrs('VCACHE_A_TAG_CGROUP') == [2**40 + 1, 7]
    assert [
        spec.Extent(*e)
        for e in spec.EXTENT_LAYOUT.iter_unpack(received.get('extents'))
    ] == [spec.Extent(8, 16), spec.Extent(2**40, 1)]
    assert received.get('extents_begin') is True
    assert received.get('extents_commit') is None
    assert received.get('stats').get('flushes') == 3
    assert received.get('stats').get('flush_hist') == histogram
