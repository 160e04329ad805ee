"""The JSON of `bedplate capacity decide`: observations in, decisions out; and observations as a record for replays.

Unknown keys are ignored. A value of a wrong type is refused with its place: a wrong observation can end machines.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Annotated, Any, NotRequired, cast

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from bedplate.capacity.ladder import Memory
from bedplate.capacity.observation import (
    Activity,
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
from bedplate.foreign import LARGE, parse_as, parse_json

Entry = dict[str, Any]


# mypy knows no keys that are made at run time.
_typed_dict = cast("Any", TypedDict)


def _keys(of: type, *without: str, prefix: str = "") -> Entry:
    """Return the keys that fill the fields of a dataclass, with their types; those with a default may be missing."""
    return {
        f"{prefix}{field.name}": field.type
        if field.default is MISSING and field.default_factory is MISSING
        else NotRequired[field.type]
        for field in fields(of)
        if field.name not in without
    }


_SIZE = _keys(Size, "pods")
_MOST = {"max_pods": NotRequired[int]}
_LIMITS = {"minimum": int, "maximum": int, "zones": Annotated[tuple[str, ...], Field(min_length=1)]}
_ENTRIES = {
    "pods": _SIZE | _keys(Pod, "size"),
    "nodes": {
        **(_SIZE | _keys(Size, "pods", prefix="free_") | _MOST | _keys(Node, "size", "free")),
        "labels": NotRequired[dict[str, str]],
        "taints": NotRequired[frozenset[str]],
    },
    "machines": _keys(Machine),
    "pools": _SIZE | _MOST | _keys(Pool, "size", "min", "max") | _LIMITS,
    "activities": _keys(Activity) | {"id": str | int, "zonal": NotRequired[bool]},
}
_LISTS = {name: tuple[_typed_dict(name, keys), ...] for name, keys in _ENTRIES.items()}  # type: ignore[misc]
_OBSERVATION: TypeAdapter[Any] = TypeAdapter(
    _typed_dict("_OBSERVATION", {"time": float, **_LISTS, "settings": NotRequired[Settings]})
)
_EXPECTED = {
    "bool": "a boolean",
    "dataclass": "an object",
    "dict": "an object",
    "float": "a number",
    "frozen_set": "a list",
    "int": "an integer",
    "mapping": "an object",
    "string": "a string",
    "tuple": "a list",
}


def parse_observation(line: str) -> Observation:
    """Return the observation in a line. Raises InputError with the place of the first invalid value."""
    try:
        values = parse_as(_OBSERVATION, line, LARGE)
    except ValidationError as error:
        raise _refusal(error.errors()[0]) from None
    except ValueError as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InputError(f"invalid JSON: {what}", fix="write one JSON object a line") from None
    pools = {pool["name"] for pool in values["pools"]}
    for number, machine in enumerate(values["machines"]):
        if machine["pool"] not in pools:
            what = f"machines[{number}].pool: no pool named {machine['pool']}"
            raise InputError(what, fix="add the pool, or omit it")
    return Observation(
        time=values["time"],
        pods=tuple(map(_pod, values["pods"])),
        nodes=tuple(map(_node, values["nodes"])),
        machines=tuple(Machine(**entry) for entry in values["machines"]),
        pools=tuple(map(_pool, values["pools"])),
        activities=tuple(map(_activity, values["activities"])),
        settings=values.get("settings", Settings()),
    )


def _refusal(error: ErrorDetails) -> InputError:
    """Return the error of an invalid value: its place, and what it must be."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    if error["type"] == "missing":
        return InputError(f"{place} is missing", fix=f"add {error['loc'][-1]}")
    if error["type"] == "too_short":
        return InputError(f"{place} must not be empty", fix="see docs/capacity.md")
    kind = error["type"].removesuffix("_type").removesuffix("_exact")
    expected = _EXPECTED.get(kind) or error.get("ctx", {}).get("expected") or error["msg"]
    value = json.dumps(error["input"])[:40]
    return InputError(f"{place} must be {expected}".lstrip(), fix=f"write {expected} instead of {value}")


def _size(entry: Entry, prefix: str = "", pods: int = 0) -> Size:
    return Size(**{name: entry.pop(f"{prefix}{name}") for name in _SIZE if f"{prefix}{name}" in entry}, pods=pods)


def _pod(entry: Entry) -> Pod:
    return Pod(size=_size(entry), **entry)


def _node(entry: Entry) -> Node:
    most, defaults = entry.pop("max_pods", 0), Entry(labels={}, taints=frozenset())
    left = most - len(entry.get("pods", ())) if most else 0
    return Node(size=_size(entry, pods=most), free=_size(entry, "free_", left), **(defaults | entry))


def _pool(entry: Entry) -> Pool:
    size = _size(entry, pods=entry.pop("max_pods", 0))
    return Pool(size=size, min=entry.pop("minimum"), max=entry.pop("maximum"), **entry)


def _activity(entry: Entry) -> Activity:
    """Return a launch. A failed one concerns the whole pool, unless it is `zonal`."""
    is_zonal = entry.pop("zonal", False)
    if not entry["ok"] and not is_zonal:
        entry["zone"] = None
    return Activity(**(entry | {"id": str(entry["id"])}))


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
