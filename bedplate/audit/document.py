"""A graph read from JSON: every key but the URN and the type may be missing, and what is there has its form."""

import json
from collections.abc import Mapping
from typing import Any, cast

from bedplate.audit.graph import Graph
from bedplate.audit.node import Node, kind_of
from bedplate.errors import InputError

_FIX = "give what `bedplate graph` prints"


def read_graph(text: str, where: str) -> Graph:
    """Return the graph that a JSON text holds; InputError says where it is none."""
    return graph_of(_read(text, where), where)


def read_resources(text: str, where: str) -> list[dict[str, Any]]:
    """Return the resources that a JSON text holds, as it tells them; InputError says where it holds none."""
    document = _read(text, where)
    graph_of(document, where)
    return cast("list[dict[str, Any]]", document)


def _read(text: str, where: str) -> object:
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"this is no JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}", fix=_FIX
        ) from None
    except RecursionError:
        raise InputError("this is nested too deeply for a graph", where=where, fix=_FIX) from None
    return document


def graph_of(document: object, where: str) -> Graph:
    """Return the graph that a document holds; InputError says where it is none."""
    if not isinstance(document, list):
        raise InputError(f"a graph is a list of resources, not {_form(document)}", where=where, fix=_FIX)
    return Graph(_node(item, f"{where}, resource {index}") for index, item in enumerate(document))


def _node(item: object, where: str) -> Node:
    if not isinstance(item, dict):
        raise InputError(f"a resource is an object, not {_form(item)}", where=where, fix=_FIX)
    protect = item.get("protect")
    return Node(
        urn=_text(item, "urn", where, needed=True),
        kind=kind_of(_text(item, "type", where, needed=True)),
        inputs=_object(item, "inputs", where),
        outputs=_object(item, "outputs", where),
        ident=_text(item, "id", where),
        protect=protect if isinstance(protect, bool) else None,
        provider=_text(item, "provider", where),
        property_dependencies=_dependencies(item, where),
    )


def _text(item: Mapping[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    value = item.get(key)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise InputError(f"{key} is a text, not {_form(value)}", where=where, fix=_FIX)
    return value


def _object(item: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = item.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{key} is an object, not {_form(value)}", where=where, fix=_FIX)
    return value


def _dependencies(item: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    """Return the URNs on which each property depends; the engine's own spelling of the key is taken too."""
    told = _object(item, "property_dependencies", where) or _object(item, "propertyDependencies", where)
    return {
        key: tuple(urn for urn in urns if isinstance(urn, str)) for key, urns in told.items() if isinstance(urns, list)
    }


def _form(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "missing"}
    return names.get(type(value), "a number")
