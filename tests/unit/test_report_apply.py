"""What an apply of many nodes prints at its end."""

from bedplate.nodes.event import Event, Kind, Step
from bedplate.nodes.outcome import Outcome
from bedplate.report.apply import apply_lines
from bedplate.report.columns import WIDTH


def _lost(node: str) -> Outcome:
    return Outcome(node, trouble=Event(node, Step.TROUBLE, kind=Kind.UNREACHED, words="it does not answer", fix="wait"))


def test_many_that_are_not_done_fit_a_terminal() -> None:
    """Each is named whole, so that it can be copied; lines end where a terminal does."""
    names = [f"workbench-gpu-{number}.us-west-2" for number in range(1, 13)]

    lines = tuple(apply_lines([_lost(name) for name in names], check=False))

    told = lines[lines.index("") + 1 :]
    assert told[0].startswith("0 nodes of 12 done; not done: workbench-gpu-1.us-west-2, ")
    assert " ".join(line.strip() for line in told).endswith(", ".join(names))
    assert max(len(line) for line in lines) <= WIDTH
