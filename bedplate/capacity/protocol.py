"""The JSON of `bedplate capacity decide`: observations in, decisions out; and observations as a record for replays.

Unknown keys are ignored. A value of a wrong type is refused with its place: a wrong observation can end machines.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

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
    Spread,
    verb_of,
)
from bedplate.errors import InputError
from bedplate.foreign import LARGE, parse_json
from bedplate.spec.groups import Market

T = TypeVar("T")
Entry = dict[str, Any]
_NAMES = {str: "a string", bool: "a boolean", list: "a list", dict: "an object", int: "an integer", float: "a number"}
# The types in JSON of a field's type; any other is the same.
_JSON: Mapping[Any, tuple[type, ...]] = {
    float: (float, int),
    Mapping: (dict,),
    tuple: (list,),
    frozenset: (list,),
    Cordon: (str,),
    Market: (str,),
}
_COUNT, _NUMBER = (int,), _JSON[float]
# key: allowed types, default
Keys = dict[str, tuple[tuple[type, ...], Any]]


def _keys(of: type, *without: str) -> Keys:
    """Return the keys that fill the fields of a dataclass."""
    return {field.name: (_types(field.type), _default(field)) for field in fields(of) if field.name not in without}


def _default(field: Field[Any]) -> object:
    """Return the default of a field; MISSING for none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _types(annotation: Any) -> tuple[type, ...]:  # noqa: ANN401  any type of a field
    if isinstance(annotation, UnionType):
        return tuple(kind for part in get_args(annotation) for kind in _types(part))
    kind = get_origin(annotation) or annotation
    return _JSON.get(kind, (kind,))


_SIZE = _keys(Size, "pods")
_POD = _SIZE | _keys(Pod, "size")
_SPREAD = _keys(Spread)
_NODE = {
    **_SIZE,
    **{f"free_{key}": value for key, value in _SIZE.items()},
    "max_pods": (_COUNT, 0),
    **_keys(Node, "size", "free"),
    "labels": ((dict,), {}),
    "taints": ((list,), ()),
}
_MACHINE = _keys(Machine)
_POOL = {
    **_SIZE,
    "max_pods": (_COUNT, 0),
    **_keys(Pool, "size", "min", "max"),
    "minimum": (_COUNT, MISSING),
    "maximum": (_COUNT, MISSING),
}
_ACTIVITY = _keys(Activity) | {"id": ((str, int), MISSING), "zonal": ((bool,), False)}
_SETTINGS = _keys(Settings)
_OBSERVATION: Keys = {
    "time": (_NUMBER, MISSING),
    **dict.fromkeys(("pods", "nodes", "machines", "pools", "activities"), ((list,), MISSING)),
    "settings": ((dict,), {}),
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
        value, place = entry.get(key, default), f"{where}.{key}" if where else key
        # `type() in`, because a boolean is an integer for isinstance.
        if value is not default and type(value) not in types:
            expected = " or ".join(_NAMES.get(kind, "null") for kind in types if kind is float or types != _NUMBER)
            raise InputError(f"{place} must be {expected}", fix=f"write {expected} instead of {json.dumps(value)[:40]}")
        if value is MISSING:
            raise InputError(f"{place} is missing", fix=f"add {key}")
        values[key] = value
    return values


def _size(entry: Entry, prefix: str = "", pods: int = 0) -> Size:
    return Size(**{name: entry.pop(f"{prefix}{name}") for name in _SIZE}, pods=pods)


def _pod(entry: Entry) -> Pod:
    size = _size(entry)
    try:
        entry["spread"] = tuple(_entries(entry["spread"], "spread", _SPREAD, lambda rule: Spread(**rule)))
    except InputError as error:
        raise ValueError(error.what) from None
    entry["tolerations"], entry["kinds"] = frozenset(entry["tolerations"]), frozenset(entry["kinds"])
    return Pod(size=size, **entry)


def _node(entry: Entry) -> Node:
    most, pods = entry.pop("max_pods"), tuple(entry.pop("pods"))
    cordoned = entry.pop("cordoned")
    return Node(
        size=_size(entry, pods=most),
        free=_size(entry, "free_", most - len(pods) if most else 0),
        pods=pods,
        taints=frozenset(entry.pop("taints")),
        stuck=tuple(entry.pop("stuck")),
        cordoned=Cordon(cordoned) if cordoned else None,
        **entry,
    )


def _pool(entry: Entry) -> Pool:
    size = _size(entry, pods=entry.pop("max_pods"))
    zones, taints = tuple(entry.pop("zones")), frozenset(entry.pop("taints"))
    if not zones:
        raise ValueError("zones must not be empty")
    entry |= {"min": entry.pop("minimum"), "max": entry.pop("maximum"), "market": Market(entry["market"])}
    entry |= {"suspended": tuple(entry["suspended"]), "out": tuple(entry["out"])}
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
        "actions": [{"do": verb_of(action), **_fields(action)} for action in decision.actions],
        "unplaced": [_fields(report) for report in decision.unplaced],
        **({"held": decision.held} if decision.held else {}),
        **({"faults": list(decision.faults)} if decision.faults else {}),
    }


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


def observation_document(observation: Observation) -> Mapping[str, Any]:
    """Return an observation as one JSON object."""
    return {
        "time": observation.time,
        "pods": [_pod_document(pod) for pod in observation.pods],
        "nodes": [_node_document(node) for node in observation.nodes],
        "machines": [_fields(machine) for machine in observation.machines],
        "pools": [_pool_document(pool) for pool in observation.pools],
        "activities": [_fields(launch) | {"zonal": launch.zone is not None} for launch in observation.activities],
        "settings": _fields(observation.settings),
    }


def _size_document(size: Size, prefix: str = "") -> Mapping[str, float]:
    return {f"{prefix}{name}": getattr(size, name) for name in _SIZE}


def _fields(value: Any, *without: str) -> Entry:  # noqa: ANN401  a value of an observation or a decision
    """Return the fields of a value as JSON, with sets as sorted lists."""
    values = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in without}
    return {name: _plain(field) for name, field in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [asdict(item) if isinstance(item, Spread) else item for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _pod_document(pod: Pod) -> Entry:
    return {**_fields(pod, "size"), **_size_document(pod.size)}


def _node_document(node: Node) -> Entry:
    sizes = {**_size_document(node.size), **_size_document(node.free, "free_")}
    return {**_fields(node, "size", "free"), "max_pods": node.size.pods, **sizes}


def _pool_document(pool: Pool) -> Entry:
    limits = {"minimum": pool.min, "maximum": pool.max, "max_pods": pool.size.pods}
    return {**_fields(pool, "size", "min", "max"), **limits, **_size_document(pool.size)}
