# SPDX-License-Identifier: Apache-2.0
"""Memory of processes, including their part of shared memory."""

from pathlib import Path


def children() -> dict[int, list[int]]:
    """Return the processes by their parent process ID."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has exited
        found.setdefault(parent, []).append(int(path.name))
    return found


def pss_mib(pid: int) -> int:
    """Return the MiB of a process and its descendants."""
    tree, total, todo = children(), 0, [pid]
    while todo:
        one = todo.pop()
        todo += tree.get(one, [])
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total >> 10
