"""`bedplate doctor`: what this machine and the account lack."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from bedplate.account.client import RegionResults
from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.operate import doctor, plan_of
from bedplate.operate.doctor import _RIGHTS
from bedplate.plan.cost import quota_needs
from tests.testlab.engine.folder import make_folder
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, stubbed_account
from tests.testlab.rehearsal.programs import EXAMPLES

HOME = "us-west-2"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/ops"
PROGRAMS = {"ssh": "OpenSSH_9.2p1", "session-manager-plugin": "1.2.707.0", "git": "", "gpg": "2.4", "openvpn": "2.6"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet folder with a backend, and all programs on PATH."""
    script = "#!/bin/sh\necho v3.272.0\n"
    texts = {"fleet.yaml": (EXAMPLES / "minimal.yaml").read_text()}
    make_folder(tmp_path, monkeypatch, script, texts)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///unused")
    for name, version in PROGRAMS.items():
        if name != "git":
            (tmp_path / name).write_text(f"#!/bin/sh\necho {name} {version}\n")
            (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Yield the account, whose quotas are large enough."""
    needs = quota_needs(plan_of(Terminal(folder / "fleet.yaml")), load_catalog())
    values = {(need.region, need.quota.code): float(need.most) for need in needs}
    monkeypatch.setattr(doctor, "read_quotas", lambda _client, _needs: RegionResults({HOME: values}, {}))
    with stubbed_account(monkeypatch) as session:
        yield session


def answer(session: StubbedSession, *, decisions: Mapping[str, str] | None = None) -> None:
    """Prepare the answers of STS and IAM."""
    caller = {"Account": ACCOUNT, "UserId": "A", "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/ops/somebody"}
    for _ in range(5):
        session.answers("sts", HOME, "get_caller_identity", caller)
    role = {"Path": "/", "RoleName": "ops", "RoleId": "A" * 16, "Arn": ROLE, "CreateDate": datetime.now(UTC)}
    session.answers("iam", HOME, "get_role", {"Role": role}, RoleName="ops")
    if decisions is not None:
        results = [{"EvalActionName": name, "EvalDecision": decisions.get(name, "allowed")} for name in _RIGHTS]
        query = {"PolicySourceArn": ROLE, "ActionNames": list(_RIGHTS)}
        session.answers("iam", HOME, "simulate_principal_policy", {"EvaluationResults": results}, **query)


def examined(capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Return the exit status and the JSON document of `bedplate doctor`."""
    capsys.readouterr()
    code = run(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_is_there_is_ok(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0: programs with their versions, and the account."""
    answer(account, decisions={})

    code, rows = examined(capsys)

    assert code == 0
    assert {row["state"] for row in rows.values()} == {"ok"}
    assert rows["session-manager-plugin"]["what"] == "1.2.707.0: up, ssh and node without a VPN"


def test_a_right_that_is_denied_is_missing(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 4, with the page that lists the rights."""
    answer(account, decisions={"iam:PassRole": "implicitDeny"})

    code, rows = examined(capsys)

    assert (code, rows["rights"]["what"]) == (4, "not allowed: iam:PassRole")
    assert "docs/aws-account.md" in rows["rights"]["fix"]


def test_rights_that_may_not_be_asked_are_unknown(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6: unknown rights are not those that `up` needs."""
    answer(account)
    account.refuses("iam", HOME, "simulate_principal_policy", "AccessDenied", 403)

    code, rows = examined(capsys)

    assert (code, rows["rights"]["state"]) == (6, "unknown")
    assert "iam:SimulatePrincipalPolicy" in rows["rights"]["fix"]


@pytest.mark.usefixtures("folder")
def test_without_credentials_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Credentials are missing; rights and quotas are unknown, not missing."""
    code, rows = examined(capsys)

    assert (code, rows["credentials"]["state"], rows["quotas"]["state"]) == (4, "missing", "unknown")
    assert rows["pulumi"]["state"] == "ok"


@pytest.mark.usefixtures("folder")
def test_an_account_that_does_not_answer_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens at the address of AWS: credentials, rights and quotas may be all right."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

    code, rows = examined(capsys)

    assert code == 6
    assert {rows[name]["state"] for name in ("credentials", "rights", "quotas")} == {"unknown"}
    assert rows["credentials"]["what"] == "cannot connect to sts over HTTPS"


def test_what_up_does_without_is_no_failure(
    account: StubbedSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing program for laptops is shown, with status 0."""
    answer(account, decisions={})
    monkeypatch.setattr(doctor, "which", lambda name: None if name == "openvpn" else which(name))

    code, rows = examined(capsys)

    assert code == 0
    assert rows["openvpn"] == {
        "state": "missing",
        "what": "not installed: a laptop in the VPN",
        "fix": "install openvpn from the packages of your system",
    }


def test_a_quota_that_aws_does_not_name_is_unknown(
    account: StubbedSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not large enough until AWS says so: status 6."""
    answer(account, decisions={})
    monkeypatch.setattr(doctor, "read_quotas", lambda _client, _needs: RegionResults({HOME: {}}, {}))

    code, rows = examined(capsys)

    assert (code, rows["quotas"]["state"]) == (6, "unknown")
