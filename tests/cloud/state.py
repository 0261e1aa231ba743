# SPDX-License-Identifier: Apache-2.0
"""The state of an instance in the host's kernel and on its disk."""

import hashlib

from tests.cloud.compute import ComputeHost
from tests.cloud.servers import FLAVORS, IMAGE_MB, MIB, Json, eventually
from vcache_agent.model import Tag

_MODES = {"writeback": "WRITEBACK", "writethrough": "WRITETHROUGH", "flush-only": "FLUSH_ONLY"}

#: Offset in MiB of the first pattern, within the written part of the image.
PATTERN_MB = 2


def tags_of(host: ComputeHost, server: Json) -> list[Tag]:
    """Return the tags of an instance's disks, by name."""
    found = [tag for tag in host.call("tags") if tag.name.startswith(server["id"])]
    return sorted(found, key=lambda tag: tag.name)


def tag_of(host: ComputeHost, server: Json, disk: str = "sda") -> Tag | None:
    """Return the tag of a disk, once its domain's cgroup and all of its extents are known.

    The extents of a new disk are known only after its file system has written them.
    """
    return next((tag for tag in tags_of(host, server)
                 if tag.name.endswith(f":{disk}") and tag.cgroups
                 and tag.extents_sectors >= IMAGE_MB * MIB // 512), None)


def check_tag(host: ComputeHost, server: Json, flavor: str, disk: str = "sda") -> Tag:
    """Wait until a disk's tag is as its flavor defines."""
    wanted = FLAVORS[flavor]

    def find() -> Tag | None:
        tag = tag_of(host, server, disk)
        return tag if tag and (tag.weight, tag.mode.name) == (
            wanted["weight"], _MODES[wanted["mode"]]) else None

    found: Tag = eventually(find, f"{server['name']}: a tag of {disk} as {flavor} says")
    assert found.cache_min_bytes == wanted.get("min_mb", 0) << 20, found
    return found


def dirty(host: ComputeHost, server: Json) -> int:
    """Return the bytes of an instance that are not on the disk behind the cache."""
    return sum(tag.dirty_bytes + tag.cache_dirty_bytes for tag in tags_of(host, server))


def write_pattern(host: ComputeHost, server: Json, pattern: int, disk: str = "sda") -> None:
    """Write a repeated byte with an instance's QEMU, and flush."""
    host.call("io", server["id"], f"write -P {pattern:#04x} 1M {PATTERN_MB}M", disk)
    host.call("io", server["id"], "flush", disk)


def has_pattern(host: ComputeHost, server: Json, pattern: int) -> bool:
    """Return whether an instance's disk has a pattern, read directly as QEMU does.

    QEMU's monitor does not report a mismatch.
    """
    status, out, err = host.call(
        "run", "sh", "-c", 'dd if="$1" bs=1M skip=1 count="$2" iflag=direct | sha256sum', "sh",
        f"/var/lib/nova/instances/{server['id']}/disk", str(PATTERN_MB))
    assert status == 0 and out, err
    return bool(out.split()[0] == hashlib.sha256(bytes([pattern]) * PATTERN_MB * MIB).hexdigest())
