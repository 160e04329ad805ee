"""One way to find again what a call made whose reply was lost: a listing, and what tells one item from another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.outage import NO_REPLY
from bedplate.rehearsal.refusal import Refusal

Reply = dict[str, Any]
Ask = Callable[[Call], Reply]
_GONE = ("deleted", "deleting", "rejected", "failed")


@dataclass(frozen=True, slots=True)
class Look:
    """A listing and what to compare: parameters of the call with properties of what is listed, and tags."""

    operation: str
    listing: str = ""
    reply: str = ""
    """The key under which the call's reply holds what it made; none where its properties are the reply."""
    same: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    """Parameters that the listing takes too."""
    tagged: bool = False

    def __call__(self, call: Call, ask: Ask) -> Reply | None:
        """Return the reply that was lost, or None when the call had no effect. Raises Refusal when in doubt."""
        given = {name: call.params[name] for name in self.given}
        told = ask(replace(call, operation=self.operation, params=given))
        if not self.listing:
            return told
        found = [item for item in told[self.listing] if _is_live(item) and self._fits(call, item)]
        if len(found) > 1 or (self.tagged and not _tags(call)):
            said = f"the reply to {call.name} was lost, and its tags do not tell what it made from others"
            raise Refusal(NO_REPLY, said)
        if not found:
            return None
        return {self.reply: found[0]} if self.reply else found[0]

    def _fits(self, call: Call, item: Mapping[str, Any]) -> bool:
        if any(str(call.params.get(name) or "") != _at(item, path) for name, path in self.same.items()):
            return False
        return not self.tagged or _tags(call) == {tag["Key"]: tag["Value"] for tag in item.get("Tags") or []}


def _at(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for part in path.split("."):
        value = value.get(part) or {}
    return str(value or "")


def _tags(call: Call) -> dict[str, str]:
    blocks = call.params.get("TagSpecifications") or [{}]
    return {tag["Key"]: tag["Value"] for tag in blocks[0].get("Tags", [])}


def _is_live(item: Mapping[str, Any]) -> bool:
    return item.get("State") not in _GONE


def alike(*names: str) -> dict[str, str]:
    """Return what to compare where the parameter and the property have one name."""
    return {name: name for name in names}
