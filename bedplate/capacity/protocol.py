"""The JSON of `bedplate capacity decide`: observations in, decisions out; and observations as a record for replays.

Unknown keys are ignored. A value of a wrong type is refused with its place: a wrong observation can end machines.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from pydantic import TypeAdapter

from bedplate.capacity.ladder import Memory
from bedplate.capacity.observation import (
    Activity,
    Cordon,
    Decision,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    Settings,
    Size,
    verb_of,
)
from bedplate.errors import InputError
from bedplate.foreign import LARGE, parse_json
from bedplate.spec.groups import Market

T = TypeVar("T")
Entry = dict[str, Any]
_REQUIRED: Any = ...
_TEXT, _FLAG, _LIST, _OBJECT = (str,), (bool,), (list,), (dict,)
_COUNT, _NUMBER = (int,), (float, int)
_NONE = type(None)
_NAMES = {str: "a string", bool: "a boolean", list: "a list", dict: "an object", int: "an integer", float: "a number"}
# key: allowed types, default
Keys = Mapping[str, tuple[tuple[type, ...], Any]]
_SIZE: Keys = {"gpus": (_COUNT, 0), "cpus": (_NUMBER, 0.0), "memory": (_NUMBER, 0.0), "efa": (_COUNT, 0)} | {
    "ephemeral": (_NUMBER, 0.0)
}
_POD: Keys = {
    **_SIZE,
    "id": (_TEXT, _REQUIRED),
    "arrival": (_NUMBER, _REQUIRED),
    "selector": (_OBJECT, {}),
    "tolerations": (_LIST, ()),
    "gang": ((str, _NONE), None),
    "gang_size": (_COUNT, 0),
    "movable": (_FLAG, False),
    "spread": ((str, _NONE), None),
    "node": ((str, _NONE), None),
    "since": (_NUMBER, 0.0),
    "restarts": (_COUNT, 0),
    "unsupported": (_TEXT, ""),
    "message": (_TEXT, ""),
}
_NODE: Keys = {
    **_SIZE,
    **{f"free_{key}": value for key, value in _SIZE.items()},
    "max_pods": (_COUNT, 0),
    "name": (_TEXT, _REQUIRED),
    "machine": ((str, _NONE), _REQUIRED),
    "labels": (_OBJECT, {}),
    "taints": (_LIST, ()),
    "pods": (_LIST, ()),
    "joined": (_NUMBER, 0.0),
    "idle_since": ((float, int, _NONE), None),
    "cordoned": ((str, _NONE), None),
    "failed": (_TEXT, ""),
}
_MACHINE: Keys = {
    "id": (_TEXT, _REQUIRED),
    "pool": (_TEXT, _REQUIRED),
    "zone": (_TEXT, _REQUIRED),
    "launched": (_NUMBER, _REQUIRED),
    "node": ((str, _NONE), None),
    "notice": ((float, int, _NONE), None),
    "ready": (_FLAG, False),
    "idle_since": ((float, int, _NONE), None),
    "reported": ((float, int, _NONE), None),
    "registered": (_FLAG, False),
}
_POOL: Keys = {
    **_SIZE,
    "max_pods": (_COUNT, 0),
    "name": (_TEXT, _REQUIRED),
    "group": (_TEXT, _REQUIRED),
    "rung": (_COUNT, _REQUIRED),
    "region": (_TEXT, _REQUIRED),
    "zones": (_LIST, _REQUIRED),
    "minimum": (_COUNT, _REQUIRED),
    "maximum": (_COUNT, _REQUIRED),
    "desired": (_COUNT, _REQUIRED),
    "type": (_TEXT, ""),
    "market": (_TEXT, "on-demand"),
    "price": (_NUMBER, 0.0),
    "labels": (_OBJECT, {}),
    "taints": (_LIST, ()),
    "eligible": (_FLAG, True),
    "is_ssh": (_FLAG, False),
    "idle": ((float, int, _NONE), None),
    "until": ((float, int, _NONE), None),
    "silent": (_FLAG, False),
}
_ACTIVITY: Keys = {
    "id": ((str, int), _REQUIRED),
    "pool": (_TEXT, _REQUIRED),
    "time": (_NUMBER, _REQUIRED),
    "ok": (_FLAG, _REQUIRED),
    "zone": ((str, _NONE), None),
    "zonal": (_FLAG, False),
    "code": ((str, _NONE), None),
    "count": (_COUNT, 1),
    "before": (_COUNT, 0),
    "after": (_COUNT, 0),
}
_SETTINGS: Keys = {
    "idle": (_NUMBER, 600.0),
    "cap": (_NUMBER, 0.1),
    "spare": (_OBJECT, {}),
    "join": (_NUMBER, 900.0),
    "max": (_OBJECT, {}),
    "max_cost": (_OBJECT, {}),
    "fleet_max_cost": ((float, int, _NONE), None),
    "paused": (_LIST, ()),
}
_OBSERVATION: Keys = {
    "time": (_NUMBER, _REQUIRED),
    **dict.fromkeys(("pods", "nodes", "machines", "pools", "activities"), (_LIST, _REQUIRED)),
    "settings": (_OBJECT, {}),
}


def parse_observation(line: str) -> Observation:
    """Return the observation in a line. Raises InputError with the place of the first invalid value."""
    values = _values(_loaded(line), _OBSERVATION, "")
    _check_names(values)
    return Observation(
        time=values["time"],
        pods=tuple(_entries(values["pods"], "pods", _POD, _pod)),
        nodes=tuple(_entries(values["nodes"], "nodes", _NODE, _node)),
        machines=tuple(_entries(values["machines"], "machines", _MACHINE, lambda entry: Machine(**entry))),
        pools=tuple(_entries(values["pools"], "pools", _POOL, _pool)),
        activities=tuple(_entries(values["activities"], "activities", _ACTIVITY, _activity)),
        settings=_settings(_values(values["settings"], _SETTINGS, "settings")),
    )


def _check_names(values: Entry) -> None:
    """Raise InputError for a machine of an unknown pool."""
    pools = {pool.get("name") for pool in values["pools"] if type(pool) is dict}
    for number, entry in enumerate(values["machines"]):
        if type(entry) is dict and type(entry.get("pool")) is str and entry["pool"] not in pools:
            raise InputError(f"machines[{number}].pool: no pool named {entry['pool']}", fix="add the pool, or omit it")


def _loaded(line: str) -> Entry:
    try:
        document = parse_json(line, LARGE)
    except ValueError as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InputError(f"invalid JSON: {what}", fix="write one JSON object a line") from None
    if type(document) is not dict:
        raise InputError("must be an object", fix='write {"time": ..., "pods": [...], ...}')
    return document


def _entries(entries: Sequence[object], where: str, keys: Keys, build: Callable[[Entry], T]) -> list[T]:
    items = []
    for number, entry in enumerate(entries):
        place = f"{where}[{number}]"
        if type(entry) is not dict:
            raise InputError(f"{place} must be an object", fix="see docs/capacity.md")
        values = _values(entry, keys, place)
        try:
            items.append(build(values))
        except (ValueError, TypeError) as error:
            raise InputError(f"{place}: {error}", fix="see docs/capacity.md") from None
    return items


def _values(entry: Entry, keys: Keys, where: str) -> Entry:
    """Return the value of every key, with defaults; raise InputError for a missing one or one of a wrong type."""
    values = {}
    for key, (types, default) in keys.items():
        value = entry.get(key, default)
        # `type() in`, because a boolean is an integer for isinstance.
        if value is not default and type(value) not in types:
            place = f"{where}.{key}" if where else key
            expected = " or ".join(_NAMES.get(kind, "null") for kind in types if kind is float or types != _NUMBER)
            raise InputError(f"{place} must be {expected}", fix=f"write {expected} instead of {json.dumps(value)[:40]}")
        if value is _REQUIRED:
            place = f"{where}.{key}" if where else key
            raise InputError(f"{place} is missing", fix=f"add {key}")
        values[key] = value
    return values


def _size(entry: Entry, prefix: str = "", pods: int = 0) -> Size:
    pop = entry.pop
    return Size(
        pop(f"{prefix}gpus"),
        pop(f"{prefix}cpus"),
        pop(f"{prefix}memory"),
        pop(f"{prefix}efa"),
        pop(f"{prefix}ephemeral"),
        pods,
    )


def _pod(entry: Entry) -> Pod:
    size = _size(entry)
    entry["tolerations"] = frozenset(entry["tolerations"])
    return Pod(size=size, **entry)


def _node(entry: Entry) -> Node:
    most, pods = entry.pop("max_pods"), tuple(entry.pop("pods"))
    cordoned = entry.pop("cordoned")
    return Node(
        size=_size(entry, pods=most),
        free=_size(entry, "free_", most - len(pods) if most else 0),
        pods=pods,
        taints=frozenset(entry.pop("taints")),
        cordoned=Cordon(cordoned) if cordoned else None,
        **entry,
    )


def _pool(entry: Entry) -> Pool:
    size = _size(entry, pods=entry.pop("max_pods"))
    zones, taints = tuple(entry.pop("zones")), frozenset(entry.pop("taints"))
    if not zones:
        raise ValueError("zones must not be empty")
    entry |= {"min": entry.pop("minimum"), "max": entry.pop("maximum"), "market": Market(entry["market"])}
    return Pool(size=size, zones=zones, taints=taints, **entry)


def _activity(entry: Entry) -> Activity:
    """Return a launch. A failed one concerns the whole pool, unless it is `zonal`."""
    is_zonal = entry.pop("zonal")
    if not entry["ok"] and not is_zonal:
        entry["zone"] = None
    return Activity(**(entry | {"id": str(entry["id"])}))


def _settings(values: Entry) -> Settings:
    return Settings(**(values | {"paused": frozenset(values["paused"])}))


def decision_document(decision: Decision) -> Entry:
    """Return the JSON of a decision."""
    return {
        "actions": [{"do": verb_of(action), **_flat(action)} for action in decision.actions],
        "unplaced": [_flat(report) for report in decision.unplaced],
        **({"held": decision.held} if decision.held else {}),
    }


def _flat(value: object) -> Entry:
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


_MEMORY = TypeAdapter(Memory)


def memory_document(memory: Memory) -> str:
    """Return the text of the file that `--state` names, and of what a controller leaves to its successor."""
    return (
        json.dumps(
            asdict(memory) | {"reported": sorted(memory.reported), "registered": sorted(memory.registered)},
            sort_keys=True,
        )
        + "\n"
    )


def read_memory(text: str) -> Memory:
    """Return the memory in a text that `memory_document` wrote. Raises InputError for any other text."""
    try:
        return _MEMORY.validate_python(parse_json(text, LARGE), extra="forbid")
    except ValueError:
        raise InputError("is not a state of `bedplate capacity decide`", fix="delete the file") from None


_SIZES = ("gpus", "cpus", "memory", "efa", "ephemeral")


def observation_document(observation: Observation) -> Mapping[str, Any]:
    """Return an observation as one JSON object."""
    settings = observation.settings
    return {
        "time": observation.time,
        "pods": [_pod_document(pod) for pod in observation.pods],
        "nodes": [_node_document(node) for node in observation.nodes],
        "machines": [asdict(machine) for machine in observation.machines],
        "pools": [_pool_document(pool) for pool in observation.pools],
        "activities": [asdict(launch) | {"zonal": launch.zone is not None} for launch in observation.activities],
        "settings": {
            **asdict(settings),
            "spare": dict(settings.spare),
            "max": dict(settings.max),
            "max_cost": dict(settings.max_cost),
            "paused": sorted(settings.paused),
        },
    }


def _size_document(size: Size, prefix: str = "") -> Mapping[str, float]:
    return {f"{prefix}{name}": getattr(size, name) for name in _SIZES}


def _fields(value: Pod | Node | Pool, *without: str) -> dict[str, Any]:
    """Return the fields of a value, with sets as sorted lists."""
    fields = {name: getattr(value, name) for name in value.__slots__ if name not in without}
    return {name: sorted(field) if isinstance(field, frozenset) else field for name, field in fields.items()}


def _pod_document(pod: Pod) -> Mapping[str, Any]:
    return {**_fields(pod, "size"), "selector": dict(pod.selector), **_size_document(pod.size)}


def _node_document(node: Node) -> Mapping[str, Any]:
    sizes = {**_size_document(node.size), **_size_document(node.free, "free_")}
    return {**_fields(node, "size", "free"), "labels": dict(node.labels), "max_pods": node.size.pods, **sizes}


def _pool_document(pool: Pool) -> Mapping[str, Any]:
    return {
        **_fields(pool, "size", "min", "max"),
        "minimum": pool.min,
        "maximum": pool.max,
        "labels": dict(pool.labels),
        "max_pods": pool.size.pods,
        **_size_document(pool.size),
    }
