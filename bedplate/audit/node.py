"""One resource of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.audit.value import Properties, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One resource; `protect` is None where the graph does not say."""

    urn: str
    kind: str
    """The type in short: `ec2.SecurityGroup` for `aws:ec2/securityGroup:SecurityGroup`."""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    ident: str = ""
    protect: bool | None = None
    provider: str = ""
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def identities(self) -> tuple[str, ...]:
        """Return what others may call it by: its id, its ARN, and a bucket's name."""
        return words([self.ident, self.outputs.get("id"), self.outputs.get("arn"), self.inputs.get("bucket")])


def kind_of(token: str) -> str:
    """Return a type token in short; a type of AWS's provider loses its file and its V2, any other stays as it is."""
    package, _, rest = token.partition(":")
    module, _, name = rest.partition(":")
    if package != "aws" or not name:
        return token
    return f"{module.partition('/')[0]}.{name.removesuffix('V2')}"
