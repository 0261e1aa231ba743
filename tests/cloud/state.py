# SPDX-License-Identifier: Apache-2.0
"""The state of an instance in the host's kernel and on its disk."""

import hashlib

from tests.cloud.compute import ComputeHost
from tests.cloud.servers import FLAVORS, IMAGE_MB, MIB, Json, eventually
from vcache_agent.model import Tag

_MODES = {"writeback": "WRITEBACK", "writethrough": "WRITETHROUGH", "flush-only": "FLUSH_ONLY"}

#: Where patterns are written: so many MiB behind the first, in what the image has.
PATTERN_MB = 2


def tags_of(host: ComputeHost, server: Json) -> list[Tag]:
    """Return the tags of an instance's disks, by name."""
    found = [tag for tag in host.call("tags") if tag.name.startswith(server["id"])]
    return sorted(found, key=lambda tag: tag.name)


def tag_of(host: ComputeHost, server: Json, disk: str = "sda") -> Tag | None:
    """Return the tag of a disk, once its domain's cgroup and where all of it is are known.

    Where a disk is that has just been made is known as far as its file system has written it.
    """
    return next((tag for tag in tags_of(host, server)
                 if tag.name.endswith(f":{disk}") and tag.cgroups
                 and tag.extents_sectors >= IMAGE_MB * MIB // 512), None)


def check_tag(host: ComputeHost, server: Json, flavor: str, disk: str = "sda") -> Tag:
    """Wait for a disk's tag that is as its flavor says."""
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
    """Have an instance's QEMU write a byte again and again, and flush."""
    host.call("io", server["id"], f"write -P {pattern:#04x} 1M {PATTERN_MB}M", disk)
    host.call("io", server["id"], "flush", disk)


def has_pattern(host: ComputeHost, server: Json, pattern: int) -> bool:
    """Tell whether an instance's disk has a pattern: read as its QEMU does, past the page cache.

    QEMU's monitor does not tell that it has found another.
    """
    status, out, err = host.call(
        "run", "sh", "-c", 'dd if="$1" bs=1M skip=1 count="$2" iflag=direct | sha256sum', "sh",
        f"/var/lib/nova/instances/{server['id']}/disk", str(PATTERN_MB))
    assert status == 0 and out, err
    return bool(out.split()[0] == hashlib.sha256(bytes([pattern]) * PATTERN_MB * MIB).hexdigest())
