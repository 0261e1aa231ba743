# SPDX-License-Identifier: Apache-2.0
"""The folders of native/dm are layers: a file includes only its own layer and lower ones."""

import re
from pathlib import Path

import pytest

DM = Path(__file__).resolve().parents[2] / "native" / "dm"

# The lowest first, as in native/dm/README.md.
LAYERS = ("base", "tag", "buffer", "ssd", "log", "cache", "destage", "reclaim", "pool", "io",
          "target", "vssd", "control")

# What a layer may not include, although it is lower: requests are independent of cleaning.
APART = {"io": {"destage", "reclaim", "pool"}, "vssd": {"io", "target"}}

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


def _included(source: Path) -> list[Path]:
    return [(source.parent / name).resolve() for name in _INCLUDE.findall(source.read_text())]


def _reached(source: Path) -> set[Path]:
    """Return all headers of the module that a file includes, also by way of others."""
    found: set[Path] = set()
    todo = [source]
    while todo:
        for header in _included(todo.pop()):
            if header not in found and header.is_relative_to(DM):
                found.add(header)
                todo.append(header)
    return found


def _sources(layer: str) -> list[Path]:
    return sorted((DM / layer).glob("*.[ch]"))


def test_every_file_is_in_a_layer() -> None:
    folders = {path.parent.relative_to(DM).as_posix() for path in DM.rglob("*.[ch]")}
    assert folders == {*LAYERS, "."}
    assert [path.name for path in DM.glob("*.[ch]")] == ["module.c"]


def test_the_readme_has_the_same_order() -> None:
    names = re.findall(r"^\| `(\w+)/` \|", (DM / "README.md").read_text(), re.MULTILINE)
    assert names == list(reversed(LAYERS))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_includes_only_lower_ones(layer: str) -> None:
    allowed = set(LAYERS[:LAYERS.index(layer) + 1]) - APART.get(layer, set())
    for source in _sources(layer):
        for header in _reached(source):
            assert header.parent.name in allowed, f"{source} includes {header}"


@pytest.mark.parametrize("layer", LAYERS)
def test_headers_of_others_are_public(layer: str) -> None:
    for source in _sources(layer):
        for header in _included(source):
            assert header.is_file(), f"{source}: no {header}"
            if header.is_relative_to(DM) and header.parent.name != layer:
                assert header.name != "internal.h", f"{source} includes {header}"


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_says_what_it_is(layer: str) -> None:
    lines = (DM / layer / "README.md").read_text().splitlines()
    assert lines[0] == f"# native/dm/{layer}"
    assert 3 <= len(lines) <= 6


@pytest.mark.parametrize("source", sorted(DM.rglob("*.c")), ids=lambda p: p.name)
def test_no_file_declares_what_another_one_defines(source: Path) -> None:
    """Otherwise a call could go around the headers."""
    text = re.sub(r"/\*.*?\*/", "", source.read_text(), flags=re.DOTALL)
    assert not re.findall(r"^(?!static|typedef)\w[\w \t*]*\b(vc_\w+|vcache_\w+)\([^;{}]*\);$", text,
                          re.MULTILINE)
    assert not re.search(r"^extern\b", text, re.MULTILINE)
