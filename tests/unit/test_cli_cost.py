"""`bedplate cost`, driven as an operator drives it."""

import json
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.report.columns import WIDTH
from tests.conftest import Expect

LAB = Path(__file__).parents[2] / "examples" / "lab.yaml"
BUDGET = "\nbudget: {monthly: 10000, email: ops@lab.example}\n"


@pytest.mark.usefixtures("here")
def test_the_bill_of_the_lab(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups, rungs and what stands beside them, each with its price; the day and region of the prices are told."""
    assert run(["cost"]) == 0

    expect("cli/cost-lab.txt", capsys.readouterr().out)


def test_a_budget_is_held_against_the_bill(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the minimum takes of it, and how long the maximum would last."""
    here.write_text(here.read_text(encoding="utf-8") + BUDGET, encoding="utf-8")

    run(["cost"])

    lines = capsys.readouterr().out.splitlines()
    assert "budget: 10,000 USD a month; the minimum takes 30 % of it" in lines
    assert "        the maximum would use it up in 1 hours" in lines


@pytest.mark.usefixtures("here")
def test_a_program_reads_the_bill_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """USD an hour, of the whole and of each group, and what it was made from."""
    run(["cost", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert document["groups"]["train"] == {"min": 0.0, "max": 3522.56}
    assert document["hourly"]["max"] > sum(group["max"] for group in document["groups"].values())
    assert document["prices"] == {"region": "us-east-1", "date": "2026-07-20", "unknown": []}


@pytest.mark.usefixtures("here")
def test_every_line_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred columns are enough."""
    run(["cost"])

    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > WIDTH] == []
