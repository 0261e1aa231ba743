# SPDX-License-Identifier: Apache-2.0
"""Names in Placement: resource classes, traits, and the provider of a host.

The module imports only the standard library, because flavors, the scheduler and
the reporter use it.
"""

import uuid

from nova_vcache.extra_specs import Mode

#: Guaranteed MiB of an instance: its ``vcache:min_mb`` and ``vcache:vssd_mb``.
CACHE_MB = "CUSTOM_VCACHE_MB"

#: An instance that needs tags. An instance allocates one, not one for each disk: the
#: flavor does not know the disks, and attaching a volume does not change an allocation.
#: The reporter counts the tags of further disks as ``reserved`` in the inventory.
TAG = "CUSTOM_VCACHE_VTAG"

RESOURCE_CLASSES = (CACHE_MB, TAG)

#: Marks the provider of a host's cache.
OWNER = "CUSTOM_OWNER_VCACHE"

#: A flush does not wait for data of other instances; no device is ``degraded``.
FLUSH_ISOLATION = "CUSTOM_VCACHE_FLUSH_ISOLATION"

#: Shares change with the demand: there is a pool, and its policy is not ``static``.
ELASTIC = "CUSTOM_VCACHE_ELASTIC"

#: The SSD supports tags: a flush is one tagged command to the drive.
TAGGED_SSD = "CUSTOM_VCACHE_TAGGED_SSD"

#: Disks can have this mode.
WRITEBACK = "CUSTOM_VCACHE_WRITEBACK"
WRITETHROUGH = "CUSTOM_VCACHE_WRITETHROUGH"

#: All traits that the reporter sets and removes.
TRAITS = (OWNER, FLUSH_ISOLATION, ELASTIC, TAGGED_SSD, WRITEBACK, WRITETHROUGH)

#: Traits that a flavor with ``vcache:required`` requires for each mode.
MODE_TRAITS: dict[Mode, tuple[str, ...]] = {
    Mode.WRITEBACK: (FLUSH_ISOLATION, WRITEBACK),
    Mode.WRITETHROUGH: (FLUSH_ISOLATION, WRITETHROUGH),
    Mode.FLUSH_ONLY: (FLUSH_ISOLATION,),
    Mode.NONE: (),
}

# A random constant. A change would orphan all existing providers.
_NAMESPACE = uuid.UUID("0c3b3c63-7f0c-4a0e-9a52-d9d7a5c5f1be")

_PROVIDER_SUFFIX = "_vcache"
#: Longest name of a provider.
PROVIDER_NAME_MAX = 200


def provider_uuid(root: str) -> str:
    """Return the UUID of the cache's provider, a child of the compute node's provider.

    :param root: UUID of the compute node, which is also that of its provider
    """
    return str(uuid.uuid5(_NAMESPACE, str(uuid.UUID(root))))


def provider_name(node: str) -> str:
    """Return the name of the cache's provider, a child of the compute node's provider.

    :param node: name of the compute node (its hypervisor host name)
    """
    return node[:PROVIDER_NAME_MAX - len(_PROVIDER_SUFFIX)] + _PROVIDER_SUFFIX
