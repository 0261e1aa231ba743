# SPDX-License-Identifier: Apache-2.0
"""The keys ``vcache:*`` of a volume type: its extra specs and its QoS specs.

They are the keys of flavors (``nova_vcache.extra_specs``). A key that is in both is that of
the QoS specs.
"""

from collections.abc import Mapping
from typing import Any

from cinder import context as cinder_context
from cinder import exception
from cinder.volume import qos_specs, volume_types
from oslo_config import cfg

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Mode

#: Keys that mean something for an instance only.
_OF_INSTANCES = ("persist", "required")
_MODE = extra_specs.PREFIX + "mode"


def of_volume(volume: Any) -> dict[str, str]:
    """Return the specs of a volume; empty: it has no cache.

    :param volume: an object of Cinder
    :raises InvalidVolumeType: names the key that is not valid
    """
    if is_image_cache(volume):
        return {}
    return of_type(volume["volume_type_id"], multiattach=bool(volume.get("multiattach")))


def is_image_cache(volume: Any) -> bool:
    """Return whether a volume belongs to Cinder itself, as an entry of its image cache does.

    Cinder clones such a volume, but nobody has it attached.
    """
    project = cfg.CONF.cinder_internal_tenant_project_id
    return bool(project) and volume["project_id"] == project


def of_type(type_id: str | None, *, multiattach: bool = False) -> dict[str, str]:
    """Return the specs of a volume type.

    :param type_id: None: the volume has no type
    :param multiattach: several instances may have the volume attached
    :raises InvalidVolumeType: names the key that is not valid
    """
    if not type_id:
        return {}
    context = cinder_context.get_admin_context()
    found = volume_types.get_volume_type(context, type_id)
    given = _ours(found.get("extra_specs"))
    if found.get("qos_specs_id"):
        quality = qos_specs.get_qos_specs(context, found["qos_specs_id"])
        if quality["consumer"] != "front-end":
            given |= _ours(quality["specs"])
    return effective(given, multiattach=multiattach)


def effective(given: Mapping[str, str], *, multiattach: bool) -> dict[str, str]:
    """Return the specs for the agent; empty: no cache.

    A volume that several instances have attached is never in mode writeback.

    :param given: the keys ``vcache:*`` of a volume type
    :raises InvalidVolumeType: names the key that is not valid
    """
    instances = [key for key in given
                 if key.removeprefix(extra_specs.PREFIX) in _OF_INSTANCES]
    if instances:
        raise exception.InvalidVolumeType(
            reason=f"{', '.join(sorted(instances))}: only for flavors, not for volume types")
    try:
        mode = extra_specs.check(given).mode
    except InvalidExtraSpecs as error:
        raise exception.InvalidVolumeType(reason=str(error)) from None
    if mode is Mode.NONE:
        return {}
    if multiattach and mode is Mode.WRITEBACK:
        return {**given, _MODE: str(Mode.WRITETHROUGH)}
    return dict(given)


def mode_of(specs: Mapping[str, str]) -> Mode:
    """Return the mode of specs."""
    return Mode(specs.get(_MODE, Mode.NONE))


def _ours(specs: Mapping[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (specs or {}).items()
            if key.startswith(extra_specs.PREFIX)}
