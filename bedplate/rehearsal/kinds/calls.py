"""The calls of resource kinds: their parameters, made from inputs, and deletes that are one call.

`call_parameters` follows botocore's model of an operation: the input `subnetIds` of Pulumi is `SubnetIds` or `SubnetId`
in EC2, so names match without regard to case and plural. Values are converted to the type in the model (protobuf
delivers every number as a float). An input without a parameter is an error.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.model import Shape, StructureShape

from bedplate.rehearsal.kind import Props, capitalized
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError, UnsupportedError


def call_parameters(
    aws: Aws,
    call: tuple[str, str],
    inputs: Props,
    *,
    apart: tuple[str, ...] = (),
    renames: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the parameters of `call` (service, operation) for `inputs`, without the inputs `apart`.

    `renames` maps an input, or its path, to a parameter of another name. Raises UnsupportedError for an input, at any
    depth, that the operation has no parameter for.
    """
    values = {key: value for key, value in inputs.items() if key not in apart and value is not None}
    return structure_parameters(aws.shape(*call), values, renames or {})


def call_with(
    aws: Aws,
    call: tuple[str, str],
    inputs: Props,
    *,
    apart: tuple[str, ...] = (),
    renames: Mapping[str, str] | None = None,
    **fixed: Any,  # noqa: ANN401  # boto3's own
) -> dict[str, Any]:
    """Make `call` with its parameters for `inputs`, as `call_parameters` returns them, and `fixed` ones."""
    return aws.call(*call, **{**fixed, **call_parameters(aws, call, inputs, apart=apart, renames=renames)})


def structure_parameters(
    shape: StructureShape, value: object, renames: Mapping[str, str], where: str = ""
) -> dict[str, Any]:
    """Return a mapping with the members of a structure shape; a list of one block is treated as the block."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        raise UnsupportedError(f"{where or shape.name} must be a mapping", key=where)
    members = {}
    for key, item in block.items():
        if item is not None:
            path = f"{where}.{key}" if where else key
            member = _member(shape, renames.get(path, renames.get(key, key)), path)
            members[member] = _parameter(shape.members[member], item, renames, path)
    return members


def _member(shape: StructureShape, key: str, path: str) -> str:
    folded: dict[str, str] = {name.lower(): name for name in shape.members}
    singular = key[:-3] + "y" if key.endswith("ies") else key.removesuffix("s")
    for guess in (key, f"{key}s", f"{key}es", singular):
        if guess.lower() in folded:
            return folded[guess.lower()]
    raise UnsupportedError(f"the rehearsal does not model input {path}", key=path)


def _parameter(shape: Shape, value: object, renames: Mapping[str, str], path: str) -> Any:  # noqa: ANN401  # a JSON value
    match shape.type_name:
        case "structure":
            return structure_parameters(shape, value, renames, path)
        case "list":
            items = value if isinstance(value, list) else [value]
            return [_parameter(shape.member, item, renames, f"{path}[{n}]") for n, item in enumerate(items)]
        case "map":
            return {key: _parameter(shape.value, item, renames, path) for key, item in _pairs(value, path)}
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
        raise UnsupportedError(f"{path} must be a mapping", key=path)
    return list(value.items())


def aws_names(*names: str) -> dict[str, str]:
    """Return the names of parameters by inputs, for inputs whose parameter has the same name, but capitalized."""
    return {name: capitalized(name) for name in names}


def renamed(inputs: Props, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters for the inputs that have a value; `names` is input -> parameter."""
    return {parameter: inputs[name] for name, parameter in names.items() if inputs.get(name)}


def copied(reply: Mapping[str, Any], *names: str, **others: str) -> dict[str, Any]:
    """Return the outputs that a reply of AWS has under the same name, but capitalized, and `others` by their members.

    An output that the reply lacks is an empty text.
    """
    values = {name: reply.get(member) for name, member in (aws_names(*names) | others).items()}
    return {name: "" if value is None else value for name, value in values.items()}


def existing(items: Iterable[dict[str, Any]], code: str, message: str, key: str = "") -> dict[str, Any]:
    """Return the first item that AWS lists; raise ResourceError, the API error of AWS, when there is none."""
    for item in items:
        return item
    raise ResourceError(code, message, key=key)


def creates_setting(key: str, update: Callable[[Aws, str, Props, Props], None]) -> Callable[[Aws, Props], str]:
    """Return the create of a setting of another resource, whose id is the input `key`: an update from nothing."""

    def create(aws: Aws, inputs: Props) -> str:
        update(aws, inputs[key], {}, inputs)
        return str(inputs[key])

    return create


def deletes(
    service: str, operation: str, *parameters: str, separator: str = "", outputs: Mapping[str, str] | None = None
) -> Callable[[Aws, str, Props], None]:
    """Return the delete of a kind with one call, for `ResourceKind.delete`.

    The id is the only parameter, or is divided by `separator` into several. `outputs` maps outputs to more parameters.
    """

    def delete(aws: Aws, ident: str, last: Props) -> None:
        parts = ident.split(separator, len(parameters) - 1) if separator else [ident]
        values = dict(zip(parameters, parts, strict=False))
        values |= {name: last[key] for key, name in (outputs or {}).items()}
        shapes = aws.shape(service, operation).members
        lists = {name: [value] for name, value in values.items() if shapes[name].type_name == "list"}
        aws.call(service, operation, **(values | lists))

    return delete
