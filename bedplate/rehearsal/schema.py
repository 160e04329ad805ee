"""The schema of the AWS provider: names, types, required inputs and outputs of each resource type.

It is read from the installed SDK `pulumi_aws`, which is generated from the schema.
"""

import functools
import importlib
import inspect
import json
import re
import typing
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pulumi_aws
from pulumi import _types

from bedplate.rehearsal.state import UnsupportedError


def leaf(package: str, name: str) -> ModuleType:
    """Return a leaf module, such as `leaf("pulumi_aws.ec2", "vpc")`, after a complete import of its package."""
    hasattr(importlib.import_module(package), "outputs")
    return importlib.import_module(f"{package}.{name}")


_NEXT_WORD: typing.Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@functools.cache
def _modules() -> Mapping[str, tuple[str, str]]:
    """Return token -> (module, class) from the registration table of the SDK."""
    table = re.search(r'resource_modules="""(.*?)"""', inspect.getsource(pulumi_aws), re.DOTALL)
    if table is None:
        raise UnsupportedError(
            "cannot read the types of pulumi_aws: it has no table resource_modules; install the locked version"
        )
    rows = json.loads(table[1])
    return {token: (row["fqn"], name) for row in rows for token, name in row["classes"].items()}


@functools.cache
def resource_class(token: str) -> type:
    """Return the SDK's class of a type token; raise UnsupportedError if the SDK has none."""
    if token not in _modules():
        raise UnsupportedError(f"pulumi_aws has no resource type {token}")
    package, name = _modules()[token]
    cls: type = getattr(leaf(package, _NEXT_WORD.sub("_", name).lower()), name)
    return cls


@functools.cache
def args_class(token: str) -> type:
    """Return the class of a type's inputs."""
    cls = resource_class(token)
    module = importlib.import_module(cls.__module__)
    # If a class of nested inputs has the plain name, the SDK gives the resource's class the suffix InitArgs.
    args: type = getattr(module, f"{cls.__name__}InitArgs", None) or getattr(module, f"{cls.__name__}Args")
    return args


@functools.cache
def outputs(token: str) -> Mapping[str, Any]:
    """Return the outputs of a type by name, each with the value that the provider returns if AWS has none."""
    return {name: empty_value(tp) for name, tp in _types.resource_types(resource_class(token)).items()}


@functools.cache
def inputs(token: str) -> frozenset[str]:
    """Return the names of a type's inputs."""
    return frozenset(_types.input_type_types(args_class(token)))


def empty_value(annotation: Any) -> Any:  # noqa: ANN401  # an annotation of any form
    """Return the empty value of an annotation's JSON type."""
    kind = plain_kind(_types.unwrap_type(annotation))
    return {bool: False, list: [], dict: {}, int: 0, float: 0}.get(kind, "")


def plain_kind(annotation: Any) -> type:  # noqa: ANN401  # an annotation of any form
    """Return the JSON type of an annotation's values: bool, int, float, str, list or dict."""
    origin = typing.get_origin(annotation)
    if origin is None:
        scalar = next((t for t in (bool, int, float) if annotation is t), str)
        return dict if _types.is_output_type(annotation) or _types.is_input_type(annotation) else scalar
    name = getattr(origin, "__name__", "")
    return {"Sequence": list, "list": list, "Mapping": dict, "dict": dict}.get(name, str)


@functools.cache
def fields(cls: type) -> Mapping[str, Any]:
    """Return the fields of an input class: schema name -> annotation."""
    return dict(_types.input_type_types(cls))


@functools.cache
def required(cls: type) -> tuple[str, ...]:
    """Return the schema names of the required fields of an input class."""
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = inspect.signature(cls).parameters.values()
    return tuple(
        names.get(parameter.name, parameter.name)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    )
