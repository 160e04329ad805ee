"""Where an input of a resource goes in an AWS call: found in the operation's own model, or refused.

Pulumi says `subnetIds`, EC2 says `SubnetIds` or `SubnetId`: names are matched without regard to case and plural, and
values are turned into what the operation's shape wants (protobuf delivers every number as a float).
"""

from collections.abc import Mapping
from typing import Any

from botocore.model import Shape, StructureShape

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Unsupported


def placed(
    aws: Aws,
    call: tuple[str, str],
    inputs: Props,
    *,
    apart: tuple[str, ...] = (),
    renames: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the parameters of `call` (service, operation) that carry `inputs`, without those set `apart`.

    Raises Unsupported for an input, at any depth, that the operation has no place for.
    """
    values = {key: value for key, value in inputs.items() if key not in apart and value is not None}
    return structure(aws.shape(*call), values, renames or {})


def structure(shape: StructureShape, value: object, renames: Mapping[str, str], where: str = "") -> dict[str, Any]:
    """Return a mapping in the form of a structure shape; a list of one block stands for the block."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        raise Unsupported(f"{where or shape.name} should be a mapping", key=where)
    found = {}
    for key, item in block.items():
        if item is not None:
            path = f"{where}.{key}" if where else key
            member = _member(shape, renames.get(path, renames.get(key, key)), path)
            found[member] = _value(shape.members[member], item, renames, path)
    return found


def _member(shape: StructureShape, key: str, path: str) -> str:
    folded: dict[str, str] = {name.lower(): name for name in shape.members}
    singular = key[:-3] + "y" if key.endswith("ies") else key.removesuffix("s")
    for guess in (key, f"{key}s", f"{key}es", singular):
        if guess.lower() in folded:
            return folded[guess.lower()]
    raise Unsupported(f"the rehearsal has no place for input {path}", key=path)


def _value(shape: Shape, value: object, renames: Mapping[str, str], path: str) -> Any:  # noqa: ANN401  # a JSON value
    match shape.type_name:
        case "structure":
            return structure(shape, value, renames, path)
        case "list":
            items = value if isinstance(value, list) else [value]
            return [_value(shape.member, item, renames, f"{path}[{n}]") for n, item in enumerate(items)]
        case "map":
            return {key: _value(shape.value, item, renames, path) for key, item in _pairs(value, path)}
        case "integer" | "long":
            return int(str(value)) if not isinstance(value, float) else int(value)
        case "float" | "double":
            return float(str(value))
        case "boolean":
            return value in (True, "true")
        case _:
            return value if isinstance(value, str | bytes) else str(value)


def _pairs(value: object, path: str) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise Unsupported(f"{path} should be a mapping", key=path)
    return list(value.items())
