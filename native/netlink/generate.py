#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate everything that speaks the vcache netlink family from its spec.

``vcache.yaml`` is the only description of the family that people edit. The
files made from it are committed, as the kernel does with its own genetlink
specs, so that building the module or installing the agent needs no generator.

    generate.py            write the files that are out of date
    generate.py --check    write nothing; exit 1 and name the stale files
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import render_c
import render_text
import yaml
from specfile import Spec, SpecError

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SPEC = REPOSITORY / 'native' / 'netlink' / 'vcache.yaml'


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or only compare them."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or '').split('\n')[0]
    )
    parser.add_argument(
        '--check',
        action='store_true',
        help='write nothing, exit 1 if a file is out of date',
    )
    parser.add_argument(
        '--spec',
        type=pathlib.Path,
        default=SPEC,
        help='read this spec (default: %(default)s)',
    )
    options = parser.parse_args(arguments)
    try:
        spec = Spec(options.spec.read_text(encoding='utf-8'))
        files = {
            'native/netlink/vcache_uapi.h': render_c.uapi_header(spec),
            'native/dm/control/nl_gen.h': render_c.kernel_header(spec),
            'native/dm/control/nl_gen.c': render_c.kernel_source(spec),
            'agent/vcache_agent/netlink/spec.py': render_text.python_module(
                spec
            ),
            'agent/vcache_agent/netlink/messages.py': (
                render_text.python_messages(spec)
            ),
            'doc/source/reference/netlink.rst': render_text.reference(spec),
        }
    except (SpecError, yaml.YAMLError, OSError) as error:
        print(f'{options.spec}: {error}', file=sys.stderr)
        return 2
    stale = 0
    for name, text in files.items():
        path = REPOSITORY / name
        if path.exists() and path.read_text(encoding='utf-8') == text:
            continue
        if options.check:
            stale = 1
            print(
                f'{name} is stale: run "make generate" and commit it',
                file=sys.stderr,
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding='utf-8')
            print(f'wrote {name}')
    return stale


if __name__ == '__main__':
    sys.exit(main())
