"""`bedplate cost`, `bedplate quotas` and `bedplate diff`."""

import json
import re
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.plan.cost import QuotaNeed, quota_needs
from bedplate.report.columns import WIDTH
from tests.conftest import Expect
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, stubbed_account
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = Path(__file__).parents[2] / "examples" / "lab.yaml"
BUDGET = "\nbudget: {monthly: 10000, email: ops@lab.example}\n"


@pytest.mark.usefixtures("here")
def test_the_bill_of_the_lab(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups, rungs and permanent items have their price; the output names the date and region of the prices."""
    assert run(["cost"]) == 0

    expect("cli/cost-lab.txt", capsys.readouterr().out)


def test_a_budget_is_held_against_the_bill(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The share that the minimum uses, and the hours that the budget lasts at the maximum."""
    here.write_text(here.read_text(encoding="utf-8") + BUDGET, encoding="utf-8")

    run(["cost"])

    lines = capsys.readouterr().out.splitlines()
    assert "budget: 10,000 USD/month; the minimum uses 33 %" in lines
    assert "        at the maximum it is used up after 1 hours" in lines


@pytest.mark.parametrize(("fleet", "ways"), [("lab", {"transit attachments"}), ("minimal", set())])
def test_traffic_has_a_price_by_its_way(fleet: str, ways: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """For 100 GB; a way through a resource that the fleet does not have is left out."""
    assert run(["cost", str(EXAMPLES / f"{fleet}.yaml")]) == 0

    _, _, table = capsys.readouterr().out.partition("traffic, USD per 100 GB\n")
    rows = dict(line.strip().rsplit(maxsplit=1) for line in table.partition("\n\n")[0].splitlines())
    assert {"NAT gateways", "transit attachments", "interface endpoints"} & rows.keys() == {"NAT gateways", *ways}
    assert (rows["NAT gateways"], rows["flow logs"]) == ("4.50", "50.00")
    run(["cost", str(EXAMPLES / f"{fleet}.yaml"), "--json"])
    assert json.loads(capsys.readouterr().out)["traffic_per_gb"].keys() == rows.keys()


@pytest.mark.usefixtures("here")
def test_a_program_reads_the_bill_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """USD per hour, in total and by group, with the source of the prices."""
    run(["cost", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert document["groups"]["train"] == {"min": 0.0, "max": 3522.56}
    assert document["hourly"]["max"] > sum(group["max"] for group in document["groups"].values())
    assert document["prices"] == {"region": "us-east-1", "date": "2026-07-20", "unknown": []}


@pytest.mark.usefixtures("here")
def test_every_line_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines have at most 100 columns."""
    run(["cost"])

    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > WIDTH] == []


def test_the_quotas_of_the_lab(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """By region: the needs beside a new account's quotas; every line fits a terminal."""
    assert run(["quotas", str(LAB)]) == 0

    out = capsys.readouterr().out
    expect("cli/quotas-lab.txt", out)
    assert [line for line in out.splitlines() if len(line) > WIDTH] == []


def test_a_program_reads_the_quotas_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With AWS's codes, which a program needs to raise a quota."""
    run(["quotas", str(LAB), "--json"])

    entries = json.loads(capsys.readouterr().out)["quotas"]
    (processors,) = (entry for entry in entries if entry["region"] == "eu-north-1" and entry["name"] == "spot P5 vCPUs")
    assert (processors["service"], processors["code"]) == ("ec2", "L-C4BD4855")
    assert (processors["min"], processors["max"], processors["granted"]) == (0, 12288, None)


def test_a_fixed_limit_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the figure of this fleet, the word `fixed` in place of a code, and no request for an increase."""
    assert run(["quotas", str(LAB)]) == 0

    lines = capsys.readouterr().out.splitlines()
    rows = {line[2:].partition("  ")[0]: line.split()[-4:] for line in lines if line.endswith("fixed")}
    assert set(rows) == {
        "characters of a role's policies",
        "Route 53 calls a minute",
        "parameters read a minute",
    }
    (least, most, limit, _) = rows["characters of a role's policies"]
    assert (least, limit) == (most, "10,240")
    assert not [line for line in lines if "--quota-code" in line and "L-" not in line]
    run(["quotas", str(LAB), "--json"])
    fixed = [entry for entry in json.loads(capsys.readouterr().out)["quotas"] if entry["code"] is None]
    assert {entry["name"] for entry in fixed} == set(rows)


MINIMAL = str(EXAMPLES / "minimal.yaml")
HOME = "us-west-2"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI"}


def _grant(account: StubbedSession, needs: list[QuotaNeed], value: float) -> None:
    for service in dict.fromkeys(need.quota.service for need in needs):
        quotas = [need.quota for need in needs if need.quota.service == service]
        listed = {"Quotas": [{"QuotaCode": quota.code, "Value": value} for quota in quotas]}
        region = needs[0].region
        account.answers("service-quotas", region, "list_service_quotas", listed, ServiceCode=service)


def _needs(file: str, region: str) -> list[QuotaNeed]:
    needs = quota_needs(plan_of(Path(file)), load_catalog())
    return [need for need in needs if need.region == region and need.quota.code]


def test_what_was_granted_stands_beside_what_is_needed(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """If all quotas suffice, the status is 0 and no line has a mark."""
    _grant(account, _needs(MINIMAL, HOME), 100_000.0)

    assert run(["quotas", MINIMAL]) == 0

    out = capsys.readouterr().out
    assert "new account   granted   code" in out
    table = out.partition("\n\n")[0]
    assert "100,000" in table
    assert [line for line in out.splitlines() if len(line) > WIDTH] == []
    assert not [line for line in table.splitlines() if line.startswith(("!", "+"))]


def test_a_minimum_that_was_not_granted_is_a_violation(account: StubbedSession) -> None:
    """Status 3: the first `pulumi up` would fail."""
    _grant(account, _needs(MINIMAL, HOME), 0.0)

    assert run(["quotas", MINIMAL, "--json"]) == 3


def test_a_region_that_does_not_answer_is_named(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Its values are `-`, those of other regions are shown, and the status is 6."""
    for region in (HOME, "us-east-1"):
        _grant(account, _needs(str(LAB), region), 100_000.0)
    account.refuses("service-quotas", "eu-north-1", "list_service_quotas", "ServiceException", 500)

    assert run(["quotas", str(LAB)]) == 6

    output = capsys.readouterr()
    assert "granted quotas unknown: eu-north-1: service-quotas: internal error of AWS" in output.err
    silent = output.out.partition("eu-north-1 ")[2].partition("\n\n")[0].splitlines()[1:]
    assert silent
    assert [line for line in silent if line.split()[-2] != "-" or line.startswith(("!", "+"))] == []


def test_credentials_of_another_account_end_it_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other call is made to that account, and both accounts are named."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to("444455556666", HOME)

        assert run(["quotas", MINIMAL]) == 2

    err = capsys.readouterr().err
    assert "444455556666" in err
    assert ACCOUNT in err


def test_without_credentials_the_table_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr says that the account's quotas are unknown."""
    assert run(["quotas", MINIMAL]) == 0

    output = capsys.readouterr()
    assert "granted" not in output.out
    assert output.err.count("no AWS credentials") == 1


def test_an_error_of_the_account_is_printed_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a network the table is printed as well, with status 6."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bedplate.account.client._ATTEMPTS", 1)

    assert run(["quotas", MINIMAL]) == 6

    output = capsys.readouterr()
    assert output.out
    assert "cannot connect to sts" in output.err
    assert not [value for value in CREDENTIALS.values() if value in output.out + output.err]


def test_a_document_of_quotas_holds_what_was_granted(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The granted value is beside the need."""
    _grant(account, _needs(MINIMAL, HOME), 100_000.0)

    run(["quotas", MINIMAL, "--json"])

    quotas = json.loads(capsys.readouterr().out)["quotas"]
    assert {entry["granted"] for entry in quotas if entry["code"]} == {100_000.0}


EDIT = {
    "max: 8}": "max: 9}",
    "types: [m7i.4xlarge]": "types: [m7i.8xlarge]",
    "types: [c7i.24xlarge, m7i.24xlarge, c6i.24xlarge]": "types: [c7i.24xlarge]",
    "pool: /22": "pool: /21",
    "public: 8.20.30.40": "public: 8.20.30.41",
}


@pytest.fixture
def later(tmp_path: Path) -> str:
    """Return the path of a later lab.yaml."""
    text = LAB.read_text(encoding="utf-8")
    for old, new in EDIT.items():
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "later.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_an_edit_of_the_lab(later: str, expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Edits are grouped by effect, the most severe first, with alternatives to refused ones."""
    assert run(["diff", str(LAB), later]) == 3

    out, err = capsys.readouterr()
    first, _, rest = out.partition("\n\n")
    assert first == f"from {LAB} to {later}"
    expect("cli/diff-lab.txt", rest)
    assert "E231 renumbers-block" in err


def test_equivalent_fleet_files_have_no_edits(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints one line, and the exit status is 0."""
    assert run(["diff", str(LAB), str(LAB)]) == 0
    assert capsys.readouterr().out.endswith("\n\nthe two fleet files are equivalent\n")


def test_a_free_edit_is_no_violation() -> None:
    """Growth changes no existing resource: status 0."""
    assert run(["diff", str(LAB), str(EXAMPLES / "lab-grown.yaml")]) == 0


def test_a_removed_zone_lists_the_groups_with_instances_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Auto Scaling does not move them; a group of a fabric is deleted with its instances."""
    file = tmp_path / "later.yaml"
    file.write_text(LAB.read_text(encoding="utf-8").replace(", us-west-2c]", "]"), "utf-8")

    run(["diff", str(LAB), str(file)])

    (groups,) = re.findall(r"availability-zone,Values=us-west-2c .*groupName,Values=(\S+)", capsys.readouterr().out)
    assert "lab-workbench-cpu-us-west-2" in groups.split(",")
    assert "train" not in groups


def test_a_program_reads_the_edits_as_one_document(later: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With both values, the effect and the alternative."""
    run(["diff", later, "--fleet", str(LAB), "--json"])

    (pool,) = (edit for edit in json.loads(capsys.readouterr().out)["edits"] if edit["key"] == "vpn.laptops.pool")
    assert (pool["old"], pool["new"], pool["effect"]) == (22, 21, "refused")
    assert "--release" in pool["instead"]


def test_an_edit_has_an_order_of_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A removed region is destroyed after `links`; without sites, one region needs no `links`."""
    text = (EXAMPLES / "minimal.yaml").read_text(encoding="utf-8")
    (file := tmp_path / "two.yaml").write_text(text.replace("regions:\n", f"regions:\n{_EAST}"), encoding="utf-8")

    assert run(["diff", str(file), str(EXAMPLES / "minimal.yaml")]) == 3

    commands = [line.strip() for line in capsys.readouterr().out.splitlines() if "--stack" in line]
    assert commands == [
        "1  bedplate destroy --stack links",
        "2  bedplate up --stack us-west-2",
        "3  bedplate destroy --stack us-east-1",
        "4  bedplate up --stack shared",
    ]


_EAST = "  us-east-1: {zones: [us-east-1a]}\n"


REGION = "  us-west-2:\n"


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, str]:
    """Return a fleet file whose supernet is full, and its text."""
    file = tmp_path / "fleet.yaml"
    file.write_text((EXAMPLES / "minimal.yaml").read_text().replace("10.64.0.0/12", "10.100.0.0/16"))
    return file, file.read_text()


def test_an_edit_that_check_rejects_has_no_effect(
    small: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the errors of `check`."""
    old, text = small
    new = tmp_path / "new.yaml"
    new.write_text(text.replace(REGION, f"  us-east-1: {{zones: [us-east-1a]}}\n{REGION}"))

    assert run(["diff", str(old), str(new)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "E230 supernet-exhausted" in err


def test_a_larger_supernet_is_free(small: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the reason for which a smaller one is refused."""
    old, text = small
    new = tmp_path / "new.yaml"
    new.write_text(text.replace("10.100.0.0/16", "10.96.0.0/12"))

    assert run(["diff", str(old), str(new)]) == 0

    assert "10.100.0.0/16 -> 10.96.0.0/12   larger than before\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["a", "b", "--fleet", "c"], "write `bedplate diff OLD NEW`"),
        (["--deployed", "a", "b"], "write `bedplate diff --deployed b`, or `bedplate diff a b`"),
        ([], "write `bedplate diff HEAD`, or name a file"),
    ],
)
def test_a_difference_is_between_two_fleet_files(
    arguments: list[str], fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 2, and the fix has the operator's own words."""
    assert run(["diff", *arguments]) == 2

    assert f"  fix  {fix}\n" in capsys.readouterr().err


def test_the_fix_of_a_small_budget_is_large_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` counts what `cost` counts: machines, disks, and all that is billed without machines."""
    file = tmp_path / "fleet.yaml"
    text = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8") + "budget: {monthly: 100, email: ada@lab.example}\n"
    file.write_text(text, encoding="utf-8")
    assert run(["check", str(file)]) == 2
    (proposed,) = re.findall(r"fix: write monthly: (\d+)", capsys.readouterr().out)
    file.write_text(text.replace("monthly: 100", f"monthly: {proposed}"), encoding="utf-8")

    assert run(["cost", str(file)]) == 0

    (share,) = re.findall(r"the minimum uses (\d+) %", capsys.readouterr().out)
    assert 90 < int(share) <= 100
