# SPDX-License-Identifier: Apache-2.0
"""The commands that the install guide prints, to be run word by word."""

import re
import textwrap
from pathlib import Path

_PAGES = Path(__file__).resolve().parents[2] / "doc/source/admin"
GUIDE, API = _PAGES / "install.rst", _PAGES / "api.rst"


def _section(title: str, page: Path) -> list[str]:
    """Return the lines of a section up to the next one of any level."""
    lines = page.read_text().splitlines()
    marks = [number for number, line in enumerate(lines[1:], 1)
             if re.fullmatch(r"([=-])\1{2,}", line) and lines[number - 1].strip()]
    heads = [number - 1 for number in marks]
    at = next((head for head in heads if lines[head] == title), None)
    assert at is not None, f"{page}: there is no section {title!r}"
    end = min((head for head in heads if head > at), default=len(lines))
    return lines[at + 2:end]


def blocks(title: str, page: Path = GUIDE) -> list[str]:
    """Return the literal blocks of a section, without their indentation."""
    found: list[str] = []
    lines = _section(title, page)
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.rstrip().endswith("::"):
            continue
        depth = len(line) - len(line.lstrip())
        block: list[str] = []
        while number < len(lines) and (
                not lines[number].strip()
                or len(lines[number]) - len(lines[number].lstrip()) > depth):
            block.append(lines[number])
            number += 1
        found.append(textwrap.dedent("\n".join(block)).strip("\n"))
    return found


def commands(block: str) -> list[str]:
    """Return the commands of a block; a command may have several lines."""
    return re.sub(r"\\\n\s*", "", block).splitlines()
