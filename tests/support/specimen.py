"""A specimen of a resource kind: inputs that AWS takes, changes that it takes in place, and AWS's own word on both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.rehearsal.simulation import Aws

from tests.support.world import World


def unchanged(world: World) -> dict[str, Any]:
    """Return no change: for kinds none of whose inputs but tags can change in place."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One kind in one form; a kind may have several."""

    token: str
    inputs: Callable[[World], dict[str, Any]]
    told: Callable[[Aws, str, Mapping[str, Any]], object]
    """Return what AWS says of it by boto3, given its id and inputs."""
    changes: Callable[[World], dict[str, Any]] = unchanged
    """New values of inputs that change in place, tried one after another in this order."""
    silent: frozenset[str] = frozenset()
    """Inputs on which AWS, or moto, is silent: they are told by nothing but the outputs."""
    adopted: bool = False
    """Whether it takes over, or changes, what stays when it is deleted."""
    form: str = ""

    def __str__(self) -> str:
        word = self.token.rpartition(":")[2]
        return f"{word} {self.form}".strip()
