"""What tells of a resource, for specimens: EC2's own description of it."""

from collections.abc import Callable, Mapping
from typing import Any

from bedplate.rehearsal.kinds.described import Noun, described
from bedplate.rehearsal.simulation import Aws

# Given the door, the id and the inputs, return what AWS says.
Told = Callable[[Aws, str, Mapping[str, Any]], object]


def by(noun: Noun) -> Told:
    """Return what tells of a resource by its own id."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, ident)

    return tell


def by_input(noun: Noun, key: str) -> Told:
    """Return what tells of a part by the id of the whole, which is one of its inputs."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, inputs[key])

    return tell
