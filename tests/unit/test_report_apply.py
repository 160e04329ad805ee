"""What an apply of many nodes prints at its end."""

from collections.abc import Sequence
from itertools import takewhile

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


def test_how_long_it_took_until_it_failed_is_told() -> None:
    """Of a machine to which there is no way, nothing."""
    outcome = Outcome("gate.cellar")
    outcome.take(Event("gate.cellar", Step.TROUBLE, kind=Kind.FAILED, words="it broke", seconds=12.3))

    rows = [line.split() for line in apply_lines([outcome, _lost("nas.cellar")], check=False) if ".cellar  " in line]

    assert rows[0][:5] == ["gate.cellar", "0", "-", "12.3", "s"]
    assert rows[1][:4] == ["nas.cellar", "0", "-", "-"]


def test_a_long_reason_stays_in_its_column() -> None:
    """So do what to do about it and the names of what changed; no word is broken, for it may be to be copied."""
    words = " ".join(["what it said"] * 12)
    trouble = Event("n", Step.TROUBLE, kind=Kind.FAILED, words=words, fix=f"read {words}")
    lost = Outcome("gate.cellar", changed=[f"File {words}"], trouble=trouble)

    lines = tuple(apply_lines([lost, Outcome("nas.cellar", is_done=True)], check=True))

    leads = (lines[1][: lines[1].index("failed: ")], "  ~ ", "  fix  ")
    texts = (f"failed: {words}", f"File {words}", f"read {words}")
    assert max(len(line) for line in lines) <= WIDTH
    assert [_column(lines, lead) for lead in leads] == list(texts)


def _column(lines: Sequence[str], lead: str) -> str:
    """Return what stands behind a lead, and below it as far as nothing stands under the lead."""
    begin = next(place for place, line in enumerate(lines) if line.startswith(lead))
    below = takewhile(lambda line: line.startswith(" " * len(lead)), lines[begin + 1 :])
    return " ".join(line[len(lead) :] for line in (lines[begin], *below))
