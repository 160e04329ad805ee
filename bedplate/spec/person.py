"""A person who uses the fleet."""

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import GroupName, SshKey


class Person(Spec):
    """An account on every node."""

    admin: bool = Field(default=False, title="Administrator", description="May become root by sudo.")
    keys: tuple[SshKey, ...] = Field(
        min_length=1, title="SSH keys", description="Public keys, one line each, without options."
    )
    groups: tuple[GroupName, ...] = Field(
        default=(),
        title="Groups",
        description="Groups of the fleet that they belong to, beside their own; made by being named.",
    )
