"""What a resource asks for, in Terraform's names and form."""

import json
from collections.abc import Mapping
from typing import Final

from bedplate.terraform.resource import Resource, Values
from bedplate.terraform.types import terraform_property

# Objects whose keys are the operator's own words; any other object is a block, which Terraform writes as a list of one.
MAPS: Final = frozenset({"dimensions", "metadata", "parameters", "tags", "tagsAll", "volumeTags"})
# Objects that Terraform holds as JSON text.
TEXTS: Final = frozenset({"assumeRolePolicy", "policy"})


def planned(resource: Resource) -> dict[str, object]:
    """Return the values that a plan shows of a resource: its inputs, its region, and its tags with the default ones."""
    known = {"region": resource.outputs.get("region"), "tagsAll": resource.outputs.get("tagsAll")}
    asked = {**{key: value for key, value in known.items() if value is not None}, **resource.inputs}
    return _object(resource.kind, asked, "")


def unknown(resource: Resource) -> dict[str, object]:
    """Return the properties that only AWS can tell, each with true, as a plan marks them."""
    told = {*resource.outputs, "id"} - resource.inputs.keys() - {"region", "tagsAll"}
    return {terraform_property(resource.kind, key): True for key in sorted(told)}


def _object(kind: str, values: Values, path: str) -> dict[str, object]:
    return {
        terraform_property(kind, f"{path}{key}"): _value(kind, value, f"{path}{key}") for key, value in values.items()
    }


def _value(kind: str, value: object, path: str) -> object:
    key = path.rpartition(".")[2]
    if isinstance(value, Mapping):
        if key in TEXTS:
            return json.dumps(value)
        return dict(value) if key in MAPS else [_object(kind, value, f"{path}.")]
    if isinstance(value, list | tuple):
        return [_object(kind, item, f"{path}.") if isinstance(item, Mapping) else item for item in value]
    return value
