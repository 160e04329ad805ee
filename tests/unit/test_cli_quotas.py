"""`bedplate quotas`, driven as an operator drives it."""

import json

import pytest

from bedplate.cli import run
from bedplate.report.columns import WIDTH
from tests.conftest import Expect
from tests.support.declared import EXAMPLES

LAB = str(EXAMPLES / "lab.yaml")


def test_the_quotas_of_the_lab(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Region by region, what is needed beside what a new account has; every line fits a terminal."""
    assert run(["quotas", LAB]) == 0

    told = capsys.readouterr().out
    expect("cli/quotas-lab.txt", told)
    assert [line for line in told.splitlines() if len(line) > WIDTH] == []


def test_a_program_reads_the_quotas_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With AWS's own codes, so that it can ask for more."""
    run(["quotas", LAB, "--json"])

    entries = json.loads(capsys.readouterr().out)["quotas"]
    (processors,) = (one for one in entries if one["region"] == "eu-north-1" and one["name"] == "spot P5 vCPUs")
    assert (processors["service"], processors["code"]) == ("ec2", "L-C4BD4855")
    assert (processors["min"], processors["max"], processors["granted"]) == (0, 12288, None)
