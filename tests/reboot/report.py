# SPDX-License-Identifier: Apache-2.0
"""build/test/reboot.json, to which both parts of make reboot-test write."""

import json
from typing import Any

from tests.reboot import roots

PATH = roots.REPO / "build" / "test" / "reboot.json"


def write(part: str, results: dict[str, Any]) -> None:
    """Replace a part of the report: results by name of the root."""
    try:
        found = json.loads(PATH.read_text())
    except (OSError, ValueError):
        found = {}
    found.setdefault(part, {}).update(results)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(found, indent=2) + "\n")
    print(f"reboot: {PATH}")
