"""Which resources a property was made from, as a plan's configuration says it; never what it came to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bedplate.terraform.resource import Resource
from bedplate.terraform.types import terraform_property


@dataclass(frozen=True, slots=True)
class Register:
    """The resources of a plan by URN, and by what AWS and the operator call them."""

    urns: Mapping[str, Resource]
    idents: Mapping[str, Resource]
    buckets: Mapping[str, Resource]


def register(resources: tuple[Resource, ...]) -> Register:
    """Return the register of some resources: a name that somebody chose is no id, for others may have it too."""
    idents = {ident: resource for resource in resources for ident in _given(resource)}
    buckets = {resource.ident: resource for resource in resources if resource.kind == "aws_s3_bucket"}
    return Register({resource.urn: resource for resource in resources}, idents, buckets)


def expressions(resource: Resource, known: Register) -> dict[str, object]:
    """Return the references of each property that has any; those of a block stand at the block as a whole."""
    found = {key: _references(resource, key, known) for key in resource.inputs}
    return {terraform_property(resource.kind, key): {"references": names} for key, names in found.items() if names}


def _given(resource: Resource) -> set[str]:
    """Return the ids that AWS gave."""
    return {resource.ident, str(resource.outputs.get("arn") or "")} - set(_words(resource.inputs)) - {""}


def _references(resource: Resource, key: str, known: Register) -> list[str]:
    """Return what a property refers to: what it was made from, else what its value names, as across stacks."""
    words = tuple(_words(resource.inputs[key]))
    made_from = [known.urns[urn] for urn in resource.on.get(key, ()) if urn in known.urns]
    named = [known.idents[word] for word in words if word in known.idents]
    if key == "bucket":
        named += [known.buckets[word] for word in words if word in known.buckets]
    targets = {each.address: each for each in (*made_from, *named) if each is not resource}
    return [name for target in targets.values() for name in _names(target, words)]


def _names(target: Resource, words: tuple[str, ...]) -> Iterator[str]:
    """Yield the attributes of a resource that gave a value, then the resource, in Terraform's order."""
    outputs = {"id": target.ident, **target.outputs}
    for key, value in outputs.items():
        if value and value in words:
            yield f"{target.address}.{terraform_property(target.kind, key)}"
    yield target.address


def _words(value: object) -> Iterator[str]:
    """Yield every text in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _all(value.values())
    elif isinstance(value, list | tuple):
        yield from _all(value)


def _all(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        yield from _words(value)
