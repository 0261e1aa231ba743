# SPDX-License-Identifier: Apache-2.0
"""In the box: the time of requests for many tags with many extents.

``python -m bench.agent.kernel FILE`` writes the figures as JSON.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.box.disks import mapped, null_block
from tests.box.inside import load_module, run
from vcache_agent.model import DeviceNumber, Extent
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client

TAGS, EXTENTS, CHANGED = 250, 5000, 10
LENGTH, STEP = 8, 16  # sectors of an extent, and from one to the next
ROUNDS = 25
_DUMP = 0x300  # NLM_F_DUMP


def extents(layout: str, tag: int) -> list[Extent]:
    """Return the extents of a tag.

    :param layout: ``apart``: each tag has a range of the device; ``mixed``: the extents of all
        tags alternate
    """
    first, step = (tag * EXTENTS, 1) if layout == "apart" else (tag, TAGS)
    return [Extent(STEP * (first + step * number), LENGTH) for number in range(EXTENTS)]


def median_ms(do: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median duration of a call in ms."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        do()
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken)


def dump(client: Client) -> int:
    """Dump all tags without decoding them; return the number of messages."""
    return len(client._socket.raw(spec.Command.TAG_GET, (), _DUMP))


def measure(client: Client, device: DeviceNumber, layout: str) -> dict[str, float]:
    """Load the extents of all tags, and measure requests."""
    for tag in range(1, TAGS + 1):
        client.tag_set(device, tag)
    begun = time.perf_counter()
    for tag in range(1, TAGS + 1):
        client.set_extents(device, tag, extents(layout, tag - 1))
    loaded = time.perf_counter() - begun
    seen = dump(client)
    if seen != TAGS + 1:
        raise SystemExit(f"bench.agent: {seen} tags instead of {TAGS + 1}")
    one = extents(layout, TAGS // 2)
    few = one[:: EXTENTS // CHANGED][:CHANGED]
    return {
        "load_all_s": loaded,
        "dump_ms": median_ms(lambda: dump(client)),
        "dump_and_decode_ms": median_ms(client.tags, 3),
        "set_one_ms": median_ms(lambda: client.set_extents(device, TAGS // 2 + 1, one)),
        # Half as many are removed and added again.
        "delta_ms": median_ms(lambda: client.change_extents(device, TAGS // 2 + 1, few, few)),
    }


def main() -> int:
    """Measure both layouts."""
    run("modprobe", "null_blk", "nr_devices=0")
    load_module()
    found = {}
    sectors = TAGS * EXTENTS * STEP
    for layout in ("apart", "mixed"):
        with null_block("nullb-agent", size=sectors // 2048 + 1, memory_backed=0) as disk, \
                mapped("agent", f"0 {sectors} vcache flush-only {disk} filesystem"), \
                Client(timeout=60) as client:
            [device] = client.devices()
            found[layout] = measure(client, device.number, layout)
            print(layout, found[layout], flush=True)
    Path(sys.argv[1]).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
