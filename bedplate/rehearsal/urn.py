"""Unique resource names, in the engine's form `urn:pulumi:<stack>::<project>::<types>::<name>`."""

from dataclasses import dataclass

STACK_TYPE = "pulumi:pulumi:Stack"
STACK_REFERENCE_TYPE = "pulumi:pulumi:StackReference"
PROVIDER_PREFIX = "pulumi:providers:"


@dataclass(frozen=True, slots=True)
class Urn:
    """The parts of a URN; `types` are the types of its parents and its own, joined by `$`."""

    stack: str
    project: str
    types: str
    name: str

    def __str__(self) -> str:
        return f"urn:pulumi:{self.stack}::{self.project}::{self.types}::{self.name}"

    @property
    def type(self) -> str:
        """The resource's own type."""
        return self.types.rpartition("$")[2]


def parse(urn: str) -> Urn:
    """Return the parts of a URN; ValueError when it is none."""
    stack, project, types, name = urn.removeprefix("urn:pulumi:").split("::", 3)
    return Urn(stack, project, types, name)


def child(stack: str, project: str, parent: str, token: str, name: str) -> str:
    """Return the URN of a resource: its parent's whole qualified type counts, the root stack's does not."""
    above = parse(parent).types if parent else ""
    types = token if above in ("", STACK_TYPE) else f"{above}${token}"
    return str(Urn(stack, project, types, name))
