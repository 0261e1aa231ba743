# SPDX-License-Identifier: Apache-2.0
"""Run the test programs of the core, with both compilers and their sanitizers."""

import pytest

from tests.core import build


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", [n for n in build.PROGRAMS if n.startswith("test_")])
def test_program(name: str, compiler: str) -> None:
    program = build.compile_program(name, compiler, build.BUILD / compiler)
    done = build.run(program)
    assert done.returncode == 0, done.stderr


def test_core_is_freestanding() -> None:
    """The core needs only what a kernel and a bare-metal port provide."""
    for source in (build.REPO / "native" / "core").glob("*.[ch]"):
        lines = source.read_text().splitlines()
        includes = {line for line in lines if line.startswith("#include <")}
        # In the kernel, crc32c.c uses the kernel's function, which uses the processor's
        # instruction.
        allowed = source.name in ("types.h", "crc32c.c")
        assert allowed or not includes, f"{source.name}: {includes}"
        assert not any(word in source.read_text()
                       for word in ("malloc(", "float ", "double ")), source.name
