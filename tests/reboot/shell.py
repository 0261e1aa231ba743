#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in the booted root: execute what machine.py sends to a port, one request after another."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PORT = "/dev/virtio-ports/vtest"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Execute a request."""
    if "write" in request:
        path = Path(request["write"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(request["mode"])
        shutil.chown(path, "root", request["group"])
        path.write_text(request["text"])
        return {"status": 0, "out": ""}
    done = subprocess.run(["/bin/bash", "-c", request["run"]], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/root",
                          check=False)
    return {"status": done.returncode, "out": done.stdout.decode(errors="replace")}


def main() -> None:
    """Serve for ever."""
    port = os.open(PORT, os.O_RDWR)
    rest = b""
    while True:
        more = os.read(port, 65536)
        if not more:  # nobody is connected
            time.sleep(0.2)
            continue
        rest += more
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            try:
                found = answer(json.loads(line))
            except Exception as error:  # noqa: BLE001 - the caller handles it
                found = {"status": -1, "out": repr(error)}
            left = json.dumps(found).encode() + b"\n"
            while left:
                left = left[os.write(port, left):]


if __name__ == "__main__":
    main()
