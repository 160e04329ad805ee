"""What an apply came to, node by node, gathered from what it told; and which exit status says it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bedplate.errors import BedplateError, HeldError, PartError, ViolationError
from bedplate.nodes.event import Event, Kind, Step


@dataclass
class Outcome:
    """One node: the names of what changed or would, how much did not, and why it ended early, where it did."""

    node: str
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    seconds: float = 0.0
    trouble: Event | None = None
    is_done: bool = False

    def take(self, event: Event) -> None:
        """Enter what has happened."""
        match event.step:
            case Step.OPERATION:
                self.changed.append(event.name)
            case Step.DONE:
                self.unchanged, self.seconds, self.is_done = event.unchanged, event.seconds, True
            case Step.TROUBLE:
                self.trouble, self.seconds = event, event.seconds
            case _:
                pass

    @property
    def is_held(self) -> bool:
        """Whether somebody else works on it."""
        return self.trouble is not None and self.trouble.kind is Kind.HELD


def exit_status(outcomes: Iterable[Outcome], *, check: bool) -> int:
    """Return 0 where all is well; 1 for a defect, 3 for drift that was found, 5 where others hold all, 6 in part."""
    every = tuple(outcomes)
    early = [each for each in every if not each.is_done]
    if any(each.trouble and each.trouble.kind is Kind.DEFECT for each in early):
        return BedplateError.exit_code
    if early:
        return HeldError.exit_code if all(each.is_held for each in every) else PartError.exit_code
    return ViolationError.exit_code if check and any(each.changed for each in every) else 0
