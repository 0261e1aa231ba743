# SPDX-License-Identifier: Apache-2.0
"""What pages of an instance show, for administrators and for its project."""

from typing import Any

from nova_vcache import extra_specs
from nova_vcache.dashboard import charts, words

Json = dict[str, Any]


def context(item: Json, *, own: bool) -> Json:
    """Return the values of the template of an instance.

    :param own: only what its project may see, whoever asks
    """
    return {
        "instance": item, "own": own, "slo": words.SLO_STATES.get(
            words.slo_state(item), words.SLO_STATES["unknown"]),
        "mode": words.MODES.get(item["specs"].get("mode", ""), item["specs"].get("mode")),
        "specs": [(key.key, item["specs"].get(key.name), item["flavor"].get(key.name))
                  for key in extra_specs.KEYS if item["specs"].get(key.name) is not None],
        "objectives": [_objective(one, own=own) for one in item.get("objectives", ())]}


def _objective(one: Json, *, own: bool) -> Json:
    what, unit = words.OBJECTIVES.get(one["objective"], (one["objective"], ""))
    state, label = words.SLO_STATES.get(one["state"], words.SLO_STATES["unknown"])
    end, mark = charts.objective(one)
    return {**one, "what": what, "unit": unit, "state": state, "label": label, "end": end,
            "mark": mark, "missed": one["state"] == "missed",
            "cause": words.cause(one, own=own) if one["cause"] else "",
            "text": "" if own else one.get("text", "")}


def explained(disk: Json) -> Json:
    """Return the decisions about a disk with their values as texts."""
    return {**disk, "decisions": [{**one, "value": _value(one["value"])}
                                  for one in disk["decisions"]]}


def _value(value: Any) -> Any:
    """Return sizes by name as pairs, and a list as text."""
    if isinstance(value, dict):
        return {"sizes": [(name.removesuffix("_bytes"), size) for name, size in value.items()]}
    if isinstance(value, list):
        return {"text": ", ".join(map(str, value)) or "-"}
    return {"text": "-" if value is None else str(value)}
