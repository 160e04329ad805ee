"""What a run did to one resource, in the engine's words."""

from dataclasses import dataclass
from enum import StrEnum

from bedplate.rehearsal import urn as urns

# Codes of ours for what protection forbids: to delete what nothing asks for any more, and to replace what is asked for.
PROTECTED = "Protected"
PROTECTED_IN_PLACE = "ProtectedInPlace"


class Op(StrEnum):
    """The engine's operations, as its events name them."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    CREATE_REPLACEMENT = "create-replacement"
    DELETE_REPLACED = "delete-replaced"
    READ = "read"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `keys` are the inputs that changed, `replace_keys` those of them that force a replacement."""

    op: Op
    urn: str
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """The changed values themselves, such as `tags.purpose` or `vpcs[0].vpcId`."""

    @property
    def is_in_cloud(self) -> bool:
        """Whether it is about something in AWS, not a component, a provider or the stack."""
        return urns.parse(self.urn).type.startswith("aws:")

    @property
    def is_change(self) -> bool:
        """Whether anything differs after it."""
        return self.op not in (Op.SAME, Op.READ)


@dataclass(frozen=True, slots=True)
class Failure:
    """A resource that could not be made, changed or deleted, and the reason."""

    urn: str
    code: str
    message: str
    key: str = ""
    skipped: bool = False
    """Not tried, because something it depends on had failed."""
