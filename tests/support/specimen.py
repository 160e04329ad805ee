"""A specimen of a resource kind: inputs that AWS takes, changes that it takes in place, and AWS's own word on both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.told import Told
from tests.support.world import World

# Inputs as they are, or as a world gives them the ids that they name.
Given = dict[str, Any] | Callable[[World], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Specimen:
    """One kind in one form; a kind may have several."""

    token: str
    form: str = field(default="", kw_only=True)
    inputs: Given = field(kw_only=True)
    changes: Given = field(default_factory=dict, kw_only=True)
    """New values of inputs that change in place, tried one after another in this order."""
    told: Told = field(kw_only=True)
    silent: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Inputs on which AWS, or moto, is silent: they are told by nothing but the outputs."""
    adopted: bool = field(default=False, kw_only=True)
    """Whether it takes over, or changes, what stays when it is deleted."""

    def __str__(self) -> str:
        word = self.token.rpartition(":")[2]
        return f"{word} {self.form}".strip()

    def inputs_in(self, world: World) -> dict[str, Any]:
        """Return the inputs that a program would give in a world."""
        return self.inputs(world) if callable(self.inputs) else self.inputs

    def changes_in(self, world: World) -> dict[str, Any]:
        """Return the changes that a program would make in a world."""
        return self.changes(world) if callable(self.changes) else self.changes
