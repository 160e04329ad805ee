"""`bedplate quotas` beside what the account was granted, against answers of AWS that are known."""

import json
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.plan.quotas import Need, needs
from bedplate.report.columns import WIDTH
from tests.support.declared import EXAMPLES, plan_of
from tests.support.stubbed import ACCOUNT, StubbedSession, stubbed_account

LAB, MINIMAL = str(EXAMPLES / "lab.yaml"), str(EXAMPLES / "minimal.yaml")
HOME = "us-west-2"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI"}


def _grant(account: StubbedSession, wanted: list[Need], value: float) -> None:
    for service in dict.fromkeys(need.quota.service for need in wanted):
        quotas = [need.quota for need in wanted if need.quota.service == service]
        listed = {"Quotas": [{"QuotaCode": quota.code, "Value": value} for quota in quotas]}
        region = wanted[0].region
        account.answers("service-quotas", region, "list_service_quotas", listed, ServiceCode=service)


def _needs(file: str, region: str) -> list[Need]:
    return [need for need in needs(plan_of(Path(file)), load_catalog()) if need.region == region]


def test_what_was_granted_stands_beside_what_is_needed(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where everything fits, the exit status says so, and no line carries a mark."""
    _grant(account, _needs(MINIMAL, HOME), 100_000.0)

    assert run(["quotas", MINIMAL]) == 0

    told = capsys.readouterr().out
    assert "new account   granted   code" in told
    table = told.partition("\n\n")[0]
    assert "100,000" in table
    assert [line for line in told.splitlines() if len(line) > WIDTH] == []
    assert not [line for line in table.splitlines() if line.startswith(("!", "+"))]


def test_a_minimum_that_was_not_granted_is_a_violation(account: StubbedSession) -> None:
    """The first `pulumi up` would fail for it."""
    _grant(account, _needs(MINIMAL, HOME), 0.0)

    assert run(["quotas", MINIMAL, "--json"]) == 3


def test_a_region_that_does_not_answer_is_told(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The other regions' values stand, its own are `-`, and the status says that something is missing."""
    for region in (HOME, "us-east-1"):
        _grant(account, _needs(LAB, region), 100_000.0)
    account.refuses("service-quotas", "eu-north-1", "list_service_quotas", "ServiceException", 500)

    assert run(["quotas", LAB]) == 6

    told = capsys.readouterr()
    assert "not known what was granted: eu-north-1: service-quotas fails inside AWS" in told.err
    silent = told.out.partition("eu-north-1 ")[2].partition("\n\n")[0].splitlines()[1:]
    assert silent
    assert [line for line in silent if line.split()[-2] != "-" or line.startswith(("!", "+"))] == []


def test_credentials_of_another_account_end_it_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything else is asked of that account; both accounts are named."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to("444455556666", HOME)

        assert run(["quotas", MINIMAL]) == 2

    told = capsys.readouterr().err
    assert "444455556666" in told
    assert ACCOUNT in told


def test_without_credentials_the_table_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr says what is missing from it."""
    assert run(["quotas", MINIMAL]) == 0

    told = capsys.readouterr()
    assert "granted" not in told.out
    assert told.err.count("no AWS credentials") == 1


def test_what_keeps_the_account_from_being_asked_is_told_without_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here a network that leads nowhere: the table is printed all the same, and the status says what it is."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bedplate.account.door._ATTEMPTS", 1)

    assert run(["quotas", MINIMAL]) == 6

    told = capsys.readouterr()
    assert told.out
    assert "sts cannot be reached" in told.err
    assert not [value for value in CREDENTIALS.values() if value in told.out + told.err]


def test_a_document_of_quotas_holds_what_was_granted(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program reads the figure beside the need."""
    _grant(account, _needs(MINIMAL, HOME), 100_000.0)

    run(["quotas", MINIMAL, "--json"])

    assert {entry["granted"] for entry in json.loads(capsys.readouterr().out)["quotas"]} == {100_000.0}
