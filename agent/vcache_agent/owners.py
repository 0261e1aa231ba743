# SPDX-License-Identifier: Apache-2.0
"""Which device has which volume number in a pool.

The agent's store records the number of each device, by the UUID of the mapped device. The pool
records the same in the label of the volume, on the cache device. So the owner of a volume is known
when the store is lost, or the cache device moves to another host. If both have an owner, that of
the store counts. A number is reused only if nobody owns it, and the pool has no dirty data of it.

A label also has a stamp of the origin's content, from the last clean stop (origin_stamp.py). While
a device is attached, its label has the identity of the boot instead.

If a device has continued without its cache, the cached data is outdated. The store then has the
volume under :data:`OUTDATED` and the identity of the device, and does not use its number, until
an operator drops the data. Clean data is dropped before the next attach.
"""

import contextlib
import errno
import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from vcache_agent import origin_stamp, pools
from vcache_agent.dm import Dm, DmError, Info
from vcache_agent.pools import Pool, PoolError
from vcache_agent.store import Store

#: Begin of the identity under which the store has an outdated volume of a device.
OUTDATED = "outdated:"
#: The same, if the volume had no dirty data.
OUTDATED_CLEAN = "outdated-clean:"
# Highest volume number that is tried in the search for a free one.
_TRIES = 4096
_BOOT = "@"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LABEL = re.compile(r"v1:(@[0-9a-f]{8}|[0-9a-f]{16}):([!-~]+)")
_PLAIN = re.compile(r"[!-~]{1,90}")


class Label(NamedTuple):
    """The label of a volume.

    :param owner: of which device it is, as :func:`owner_word` returns it
    :param stamp: the stamp of the origin at the last clean stop; empty: it was not clean
    :param this_boot: it was attached last in this boot of the host
    """

    owner: str
    stamp: str
    this_boot: bool = False


class OriginChanged(PoolError):
    """The origin was written without its cache."""


def owner_word(identity: str) -> str:
    """Return the identity of a device as a word of limited length for a label."""
    if _PLAIN.fullmatch(identity):
        return identity
    return "sha256-" + hashlib.sha256(identity.encode()).hexdigest()[:32]


def labels(dm: Dm, pool: str) -> dict[int, Label]:
    """Return the labels of a pool's volumes; none if the loaded module has no labels."""
    found = {}
    with contextlib.suppress(DmError):
        for line in dm.ask(pool, "labels").splitlines():
            number, _, text = line.partition(" ")
            if match := _LABEL.fullmatch(text):
                found[int(number)] = Label(match[2], match[1] if match[1][0] != _BOOT else "",
                                           match[1] == _boot())
    return found


def write_label(dm: Dm, pool: str, volume: int, identity: str, stamp: str = "") -> None:
    """Record the owner of a volume, and the stamp of its origin, in the pool.

    :raises DmError: if the volume does not exist, or the loaded module has no labels
    """
    dm.message(pool, f"label {volume} v1:{stamp or _boot()}:{owner_word(identity)}")


def _boot() -> str:
    """Return what a label has while its volume is attached in this boot."""
    return _BOOT + _BOOT_ID.read_text()[:8]


def attached(dm: Dm, pool: str, volume: int, identity: str) -> None:
    """Record in the pool that a device is attached, if the loaded module can."""
    with contextlib.suppress(DmError):
        write_label(dm, pool, volume, identity)


def outdate(store: Store, pool: str, identity: str, volume: int, *, clean: bool = False) -> None:
    """Record that the data of a volume is older than its device.

    :param clean: the volume has no dirty data
    """
    store.forget_volume(pool, volume)
    store.remember_volume(pool, (OUTDATED_CLEAN if clean else OUTDATED) + identity, volume)


def disown_bypassed(dm: Dm, store: Store) -> list[tuple[str, str, int]]:
    """Record which devices continue without their failed cache, or in part.

    If the cache works again later, its data is older than the device, and the device
    must not be attached to it again. The kernel records this in the cache as well, if
    the cache still accepts a write.

    :return: device, pool and volume of the devices that were found since the last call
    """
    found = []
    for member in pools.members(dm):
        over = member.mapping.pool and dm.info(member.mapping.pool)
        if not over or member.cache is None or member.cache.state not in pools.OUTDATED:
            continue
        identity, volume = pools.identity(member.info), member.mapping.volume
        if store.volumes(over.name).get(OUTDATED + identity) != volume:
            outdate(store, over.name, identity, volume)
            found.append((member.info.name, over.name, volume))
    return found


def note_attached(dm: Dm, store: Store) -> None:
    """Record the volumes of attached devices, which a store that was lost does not have."""
    for member in pools.members(dm):
        over = member.mapping.pool and dm.info(member.mapping.pool)
        if not over or (member.cache and member.cache.state in pools.OUTDATED):
            continue
        volumes = store.volumes(over.name)
        identity = pools.identity(member.info)
        if identity not in volumes and member.mapping.volume not in volumes.values():
            store.remember_volume(over.name, identity, member.mapping.volume)


def allocate(dm: Dm, store: Store, found: Pool, info: Info, wanted: int | None, *,
             origin: str, recover: bool = False, force: bool = False) -> int:
    """Choose the volume number of a device and save it in the store and in the pool.

    :param wanted: the number; None: the previous one of the device, or the lowest free one
    :param origin: path of a device with the present content of the origin
    :param recover: accept the pool's data of the wanted volume as data of this device
    :param force: accept it although the origin has changed since the cache was used last
    :raises OriginChanged: if the origin has changed
    :raises PoolError: if the number is in use, or may have data of another device; without
        a number, also if a volume has dirty data and no known device, which may be this one
    """
    pool, identity = found.info.name, pools.identity(info)
    _drop_outdated(dm, store, pool, identity)
    marked = labels(dm, pool)
    noted = _owners(store.volumes(pool), marked, identity)
    mine = noted.get(identity)
    others = {volume: device for device, volume in noted.items() if device != identity}
    in_use = {member.mapping.volume: member.info.name for member in pools.members(dm, found)}
    chosen = wanted or mine
    if wanted and mine and wanted != mine and not recover:
        raise PoolError(f"{info.name} already has volume {mine} of pool {pool}; omit "
                        f"--volume, or first drop that volume: 'vcache pool drop "
                        f"{pool} {mine}'")
    if chosen is None:
        chosen = _free(dm, found, info, others.keys() | in_use.keys(), len(in_use))
    elif chosen in in_use:
        raise PoolError(f"volume {chosen} of pool {pool} is used by {in_use[chosen]}")
    elif chosen in others and not recover:
        raise PoolError(f"volume {chosen} of pool {pool} belongs to "
                        f"{others[chosen]}; omit --volume to use a free one")
    elif not recover:
        kept = _check_content(dm, found, info, chosen, known=chosen == mine)
        if kept and not force and (label := marked.get(chosen)):
            _check_origin(info, pool, chosen, label, origin)
    store.remember_volume(pool, identity, chosen)
    if chosen in marked:
        # Before the first write, so that no stamp is older than the origin.
        attached(dm, pool, chosen, identity)
    return chosen


def _owners(stored: Mapping[str, int], marked: Mapping[int, Label],
            identity: str) -> dict[str, int]:
    """Return the volumes by their owner, from the store and from the labels."""
    noted = dict(stored)
    known = set(stored.values())
    for volume, label in marked.items():
        if volume in known:
            continue
        owner = identity if label.owner == owner_word(identity) else label.owner
        noted.setdefault(owner, volume)
    return noted


def _drop_outdated(dm: Dm, store: Store, pool: str, identity: str) -> None:
    """Discard cached data of a device that is clean and older than the device."""
    volume = store.volumes(pool).get(OUTDATED_CLEAN + identity)
    if volume is None:
        return
    try:
        dm.message(pool, f"drop {volume} force")
    except DmError as error:
        if error.errno != errno.ENOENT:
            return  # it keeps its number, and the device gets another one
    store.forget_volume(pool, volume)


def _check_origin(info: Info, pool: str, volume: int, label: Label, origin: str) -> None:
    """Refuse cached data if the origin was written without the cache.

    :raises OriginChanged: if it was
    """
    try:
        why = "" if label.this_boot else origin_stamp.changed(origin, label.stamp)
    except OSError as error:
        raise PoolError(f"{origin} cannot be read: {error.strerror}") from None
    if why:
        raise OriginChanged(
            f"{info.name} has changed without its cache: {why}. The data in volume {volume} of "
            f"pool {pool} may be older. To discard it: 'vcache pool drop {pool} {volume} "
            "--force'; to use it nevertheless: --force")


def _dropped(dm: Dm, found: Pool, volume: int) -> bool | None:
    """Discard the data of a volume if it has no dirty data.

    :return: True: done; False: it may have dirty data; None: there is no such volume
    """
    try:
        dm.message(found.info.name, f"drop {volume}")
    except DmError as error:
        return None if error.errno == errno.ENOENT else False
    return True


def _free(dm: Dm, found: Pool, info: Info, owned: Collection[int], in_use: int) -> int:
    """Return the lowest number of a volume that does not exist, or that nobody owns and is clean.

    :param owned: numbers of volumes with a known device
    :param in_use: number of volumes that are attached
    :raises PoolError: if there is none, or a volume that nobody owns may have dirty data
    """
    chosen, left = None, found.volumes - in_use
    for volume in range(1, _TRIES + 1):
        if chosen is not None and not left:
            break
        if volume in owned:
            continue
        state = _dropped(dm, found, volume)
        if state is False:
            raise PoolError(
                f"pool {found.info.name} may have dirty data of volume {volume}, and it is unknown "
                f"which device that belongs to. If it is {info.name}: --volume {volume} --recover. "
                f"If not, attach that device first, or use --volume with another number. 'vcache "
                f"pool drop {found.info.name} {volume} --force' discards the data")
        left -= state is True
        chosen = volume if chosen is None else chosen
    if chosen is None:
        raise PoolError(f"pool {found.info.name} has no free volume number below {_TRIES}")
    return chosen


def _check_content(dm: Dm, found: Pool, info: Info, volume: int, *, known: bool) -> bool:
    """Refuse cached data that may belong to another device or be older than this device.

    :param known: it is known that the volume belongs to this device
    :return: whether the pool may have data of the volume now
    :raises PoolError: if the pool has such data
    """
    if known and not info.opened:
        return True  # as after a boot of the host: the device continues with its cache
    if _dropped(dm, found, volume) is not False:
        return False
    why = (f"{info.name} is open and may have been written without its cache: close it first") \
        if known else "it is unknown which device the data belongs to"
    raise PoolError(f"volume {volume} of pool {found.info.name} may have dirty data, and {why}; "
                    f"--recover accepts the data as that of {info.name}, 'vcache pool drop "
                    f"{found.info.name} {volume} --force' discards it")
