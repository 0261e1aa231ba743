# SPDX-License-Identifier: Apache-2.0
"""Measurements of the demo's part on weights, for the tests of its report."""

from typing import Any

MIB = 1 << 20
CHUNK = MIB // 4
# A maximum is set at 40 s, and the larger VM has reached it at 45 s.
FULL, ASKED, TOLD, FELL, REFILLED, END = 10.0, 40.0, 41.0, 45.0, 50.0, 70.0
MOST = 6 * MIB


def _tag(t: float, share: int, before: int, after: int,
         hits: tuple[float, float]) -> dict[str, Any]:
    """Return a tag that reads 1 MiB per second; its size changes from one to the other."""
    part = min(max((t - TOLD) / (FELL - TOLD), 0), 1)
    late = max(t - ASKED, 0)
    return {"cached_bytes": int(before + part * (after - before)), "share_bytes": share,
            "most_bytes": 0, "dirty_bytes": CHUNK, "read_bytes": int(t * MIB),
            "hit_bytes": int((hits[0] * (t - late) + hits[1] * late) * MIB)}


def weights_found(small: tuple[int, int] = (7 * MIB, 21 * MIB),
                  large: tuple[int, int] = (21 * MIB, MOST)) -> dict[str, Any]:
    """Return measurements: 31 MiB of cache, sizes before and after."""
    samples: list[dict[str, Any]] = []
    for half_seconds in range(int(END * 2) + 1):
        t = half_seconds / 2
        samples.append({"t": t, "small": _tag(t, 7 * MIB, *small, (0.25, 0.75)),
                        "large": _tag(t, 21 * MIB, *large, (0.5, 0.125))})
        samples[-1]["host"] = _tag(t, 7 * MIB, CHUNK, CHUNK, (0, 0))
        samples[-1]["large"]["most_bytes"] = MOST if t >= TOLD else 0
    tags = [{"role": role, "id": number, "name": f"u{number}:vda", "weight": weight,
             "mode": "writeback", "cgroup_paths": [f"machine/qemu-{number}-z"],
             "extents_count": 1, "limit_bytes": MIB}
            for number, (role, weight) in enumerate((("large", 300), ("small", 100)), 3)]
    checked = {"area_bytes": 32 * MIB, "reads": 900, "writes": 300, "blocks": 1024, "written": 260}
    return {
        "samples": samples, "tags": tags, "policy": "weighted",
        "moments": {"full": FULL, "asked": ASKED, "told": TOLD, "fell": FELL,
                    "refilled": REFILLED, "most_bytes": MOST},
        "chunk_bytes": CHUNK, "size_bytes": 31 * MIB,
        "checked": {"small": dict(checked), "large": dict(checked)},
        "status": "0 524288 vcache writeback filesystem fua", "pool_status": "0 1 vcache-pool ok"}
