# SPDX-License-Identifier: Apache-2.0
"""Names in Placement: resource classes, traits, the provider of a host.

Standard library only: the flavor compiler and the scheduler use it as well as
the reporter.
"""

import uuid

from nova_vcache.extra_specs import Mode

#: MiB of cache that are guaranteed to an instance: its ``vcache:min_mb``.
CACHE_MB = "CUSTOM_VCACHE_MB"

#: An instance with tags of its own; one of an instance, not one of a disk. What
#: disks an instance has is not in its flavor, and a volume that is attached later
#: changes no allocation. What tags its other disks take is in the inventory's
#: ``reserved``, which the reporter keeps true.
TAG = "CUSTOM_VCACHE_VTAG"

RESOURCE_CLASSES = (CACHE_MB, TAG)

#: Marks a provider as ours.
OWNER = "CUSTOM_OWNER_VCACHE"

#: A flush waits for no other instance's data (and status does not say ``degraded``).
FLUSH_ISOLATION = "CUSTOM_VCACHE_FLUSH_ISOLATION"

#: Shares move with demand: there is a pool, and its policy is not ``static``.
ELASTIC = "CUSTOM_VCACHE_ELASTIC"

#: The SSD understands tags: a flush is one tagged command to the drive.
TAGGED_SSD = "CUSTOM_VCACHE_TAGGED_SSD"

#: Disks can be cached in this mode.
WRITEBACK = "CUSTOM_VCACHE_WRITEBACK"
WRITETHROUGH = "CUSTOM_VCACHE_WRITETHROUGH"

#: All traits that the reporter sets, and therefore also removes.
TRAITS = (OWNER, FLUSH_ISOLATION, ELASTIC, TAGGED_SSD, WRITEBACK, WRITETHROUGH)

#: Traits that a mode needs of a host, where the flavor requires it.
MODE_TRAITS: dict[Mode, tuple[str, ...]] = {
    Mode.WRITEBACK: (FLUSH_ISOLATION, WRITEBACK),
    Mode.WRITETHROUGH: (FLUSH_ISOLATION, WRITETHROUGH),
    Mode.FLUSH_ONLY: (FLUSH_ISOLATION,),
    Mode.NONE: (),
}

# Chosen once at random; another one would orphan every provider.
_NAMESPACE = uuid.UUID("0c3b3c63-7f0c-4a0e-9a52-d9d7a5c5f1be")

_PROVIDER_SUFFIX = "_vcache"
#: Longest name of a provider.
PROVIDER_NAME_MAX = 200


def provider_uuid(root: str) -> str:
    """Return the UUID of the cache's provider below a compute node's.

    :param root: UUID of the compute node, which is that of its provider
    """
    return str(uuid.uuid5(_NAMESPACE, str(uuid.UUID(root))))


def provider_name(node: str) -> str:
    """Return the name of the cache's provider below a compute node's.

    :param node: name of the compute node (its hypervisor host name)
    """
    return node[:PROVIDER_NAME_MAX - len(_PROVIDER_SUFFIX)] + _PROVIDER_SUFFIX
