"""What a program would send of a resource's arguments, without a program: plain values under the schema's names."""

from typing import Any

from pulumi import _types


def rendered(args: object) -> dict[str, Any]:
    """Return the arguments of a resource as the schema names them; none of them may be an output."""
    names = _types.input_type_py_to_pulumi_names(type(args))
    given = _types.input_type_to_dict(args).items()
    return {names.get(key, key): _plain(value) for key, value in given if value is not None}


def _plain(value: Any) -> Any:  # noqa: ANN401  # any value of the SDK's arguments
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return rendered(value) if _types.is_input_type(type(value)) else value
