"""One resource of a graph under the name that it has in a Terraform plan."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bedplate.terraform.types import terraform_type

Values = Mapping[str, object]

# What a name in Terraform may not hold: letters, digits, _ and - alone.
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")
PROVIDER: Final = "pulumi:providers:aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of AWS; `name` is unlike that of any other of its type, whatever the stack."""

    kind: str
    name: str
    urn: str
    ident: str
    inputs: Values
    outputs: Values
    on: Mapping[str, tuple[str, ...]]
    """Property to the URNs of what it was made from."""
    provider: str

    @property
    def address(self) -> str:
        """What others call it by."""
        return f"{self.kind}.{self.name}"


def resources(graph: Iterable[Values]) -> tuple[Resource, ...]:
    """Return what a graph creates in AWS; components, providers and what is only read are none of it."""
    nodes = [node for node in graph if node["custom"] and not node["external"] and str(node["type"]).startswith("aws:")]
    taken = Counter(_short(node) for node in nodes)
    return tuple(_resource(node, _short(node) if taken[_short(node)] == 1 else _long(node)) for node in nodes)


def _short(node: Values) -> tuple[str, str]:
    """Return a resource's type, and its name within a plan of several stacks."""
    stack = str(node["urn"]).split(":")[2]
    return terraform_type(str(node["type"])), plain(f"{stack}_{node['name']}")


def _long(node: Values) -> tuple[str, str]:
    """Return the same where parents of different types each have a child of that name: their types make it plain."""
    _, _, stack, _, _, _, types = str(node["urn"]).rpartition("::")[0].split(":", 6)
    return terraform_type(str(node["type"])), plain(f"{stack}_{types.rpartition('$')[0]}_{node['name']}")


def _resource(node: Values, called: tuple[str, str]) -> Resource:
    return Resource(
        kind=called[0],
        name=called[1],
        urn=str(node["urn"]),
        ident=str(node["id"]),
        inputs=_mapping(node["inputs"]),
        outputs=_mapping(node["outputs"]),
        on={key: tuple(map(str, _list(urns))) for key, urns in _mapping(node["property_dependencies"]).items()},
        # A resource names its provider by URN and id.
        provider=str(node["provider"]).rpartition("::")[0],
    )


def plain(name: str) -> str:
    """Return a name in the letters that Terraform allows."""
    return _FOREIGN.sub("_", name)


def _mapping(value: object) -> Values:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()
