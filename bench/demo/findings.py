# SPDX-License-Identifier: Apache-2.0
"""What a part of the demo has measured so far, in a file as soon as it is known."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.box.steps import step


class Findings:
    """The measurements of one part; each change is in the file before the next one begins.

    :param path: JSON file; None keeps them in memory only
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.data: dict[str, Any] = {}
        self._write()

    def put(self, *keys: str, value: Any) -> Any:
        """Set an entry, such as ``put("bare", "runs", value=runs)``, and return it.

        :param keys: names of the nested objects, the outermost first
        """
        place = self.data
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
        self._write()
        return value

    def append(self, *keys: str, value: Any) -> None:
        """Append to the list at an entry."""
        place = self.data
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place.setdefault(keys[-1], []).append(value)
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        # Renamed: a part that is killed leaves the last complete state.
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.data))
        fresh.replace(self._path)


class Parts:
    """The files of the parts that a box measures.

    :param folder: takes PART.json of each
    :param versions: of the programs that take part
    """

    def __init__(self, folder: Path, versions: dict[str, str]) -> None:
        self._folder = folder
        self._versions = versions

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[Findings]:
        """Measure a part in the block; it is complete if the block ends without an error."""
        found = Findings(self._folder / f"{name}.json")
        found.put("versions", value=self._versions)
        with step(f"part {name}"):
            yield found
        found.put("complete", value=True)


def read(path: Path) -> dict[str, Any]:
    """Return what a part has left in its file; nothing if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found
