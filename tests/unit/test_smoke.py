"""The smoke test with fakes of commands and account: its stages, their failures, its end, and its report."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from bedplate.account.client import AwsClient, iam_action
from bedplate.account.smoke import KEPT, kind_and_name
from bedplate.capacity.observation import FAILURES, failure_code
from bedplate.cli import run
from bedplate.operate import new_folder, smoke
from bedplate.report.smoke import AwsError, SmokeReport, StageResult, aws_errors
from tests.conftest import DATA
from tests.testlab.calls import ROOT, actions_in
from tests.testlab.engine.lab import KEY
from tests.testlab.rehearsal.programs import EXAMPLES

ACCOUNT, ROLE = "210987654321", "arn:aws:iam::210987654321:role/deployer"
REPORT = TypeAdapter(SmokeReport)
VPC, BUCKET = "arn:aws:ec2:us-west-2:210987654321:vpc/vpc-1", "arn:aws:s3:::smoke-data"
# A command, or a step, of each stage.
STEP_OF = {
    1: "quotas",
    2: "catalog refresh",
    3: "refresh --check",
    4: "ssh far-1.us-east-1 -- true",
    5: "node stop",
    6: "vpn up",
    7: "copied",
    8: "image bake",
    9: "member",
    10: "burned efa",
    11: "texts",
    12: "killed",
}
ALL = [word for number in STEP_OF for word in ("--stage", str(number))]


@dataclass
class Fakes:
    """Commands that succeed, unless their text begins with one of `failing`, and what the account has."""

    failing: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    account: list[str] = field(default_factory=list)

    def run(self, words: list[str], folder: Path, environment: dict[str, str], seconds: float | None) -> smoke.Answer:
        """Run a command; `up` creates a network and a bucket, `destroy` deletes the network."""
        assert environment["PULUMI_CONFIG_PASSPHRASE_FILE"] == str((folder / "passphrase").absolute())
        assert environment["PULUMI_BACKEND_URL"] == ""
        text = " ".join(words)
        self.commands.append(text)
        if seconds == 0:
            raise KeyboardInterrupt
        if text == "up --yes --end-machines":
            self.account = [VPC, BUCKET]
        error = next((error for start, error in self.failing.items() if text.startswith(start)), None)
        if error == "Ctrl-C":
            del self.failing[text]
            raise KeyboardInterrupt
        if error is not None:
            return 6, "", error
        if text == "destroy --yes --end-machines":
            self.account = [arn for arn in self.account if arn == BUCKET]
        return 0, self._output(text), ""

    def _output(self, text: str) -> str:
        machines = [{"group": "box", "state": "InService", "name": f"box-{n}", "instance": f"i-{n}"} for n in range(8)]
        return json.dumps({"machines": machines} if text.startswith("node list") else {"stacks": {}, "images": []})

    def step(self, name: str) -> Any:  # noqa: ANN401
        """Return a step that calls AWS, as a fake."""

        def fake(_run: smoke.Run, argument: str) -> None:
            text = f"{name} {argument}".strip()
            smoke.require(text not in self.failing, self.failing.get(text, ""))

        return fake

    def remove(self, _client: AwsClient, _region: str, arn: str) -> None:
        """Delete an object that `destroy` keeps."""
        self.account.remove(arn)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Return the fakes; the current folder is empty."""
    fake = Fakes()
    answers = {"account": ACCOUNT, "owner": "ada@uni.edu", "person": "ada", "key": KEY}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_folder, "_default", lambda _operator, question, _values, _folder: answers.get(question))
    real = {name: smoke.STEPS[name] for name in ("again", "names", "promoted")}
    steps = {name: real.get(name) or fake.step(name) for name in smoke.STEPS}
    for name, value in {
        "STEPS": MappingProxyType(steps),
        "run_command": fake.run,
        "tagged": lambda _client, _fleet, _regions: dict.fromkeys(fake.account, "us-west-2"),
        "remove": fake.remove,
        "role_keys": lambda *_: {"AWS_SESSION_TOKEN": "token"},
        "open_client": lambda: cast("AwsClient", None),
        "_PAUSE": 0.0,
        "_LONGEST": 0.1,
    }.items():
        monkeypatch.setattr(smoke, name, value)
    return fake


def report() -> SmokeReport:
    """Return the report of the test in the current folder."""
    return REPORT.validate_json(Path("smoke/smoke.json").read_text())


def test_the_stages_are_numbered() -> None:
    """Each has a sentence for its success, and a length."""
    assert [stage.number for stage in smoke.STAGES] == list(range(1, 13))
    for stage in smoke.STAGES:
        assert stage.steps
        assert stage.passes
        assert stage.minutes


def test_the_plan_makes_nothing(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows each stage with its length and price, the price of the fleet and the limit of time."""
    assert run(["smoke", "--plan", "--minutes", "90"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(smoke.STAGES) + 1
    assert re.search(r"costs \d\.\d\d USD an hour at its minimum; .* after 90 minutes at most", lines[-1])
    assert not fakes.commands
    assert not Path("smoke").exists()


def test_a_test_is_confirmed_first(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal it needs --yes."""
    assert run(["smoke"]) == 2

    assert "add --yes" in capsys.readouterr().err
    assert not fakes.commands


def test_what_passes_leaves_nothing(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """The fleet is destroyed with the data that `destroy` keeps; the report has each stage and no secret."""
    assert run(["smoke", "--yes", "--role", ROLE, *ALL]) == 0

    assert fakes.account == []
    done = report()
    assert {stage.verdict for stage in done.stages} == {"passed"}
    assert done.left == ()
    assert (done.version, done.source, done.regions) == (1, "aws", ("us-west-2", "us-east-1"))
    text = Path("smoke/smoke.json").read_text()
    assert ACCOUNT not in text
    assert Path("smoke/passphrase").read_text() not in text
    assert Path("smoke/passphrase").stat().st_mode & 0o077 == 0
    assert "failed" not in capsys.readouterr().out


@pytest.mark.parametrize("number", STEP_OF)
def test_a_failing_stage_has_its_sentence_and_leaves_nothing(
    fakes: Fakes, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was wrong, in which stage, and what to change. Those that need it are not run, with that reason."""
    text = f"the cause of stage {number}"
    fakes.failing[STEP_OF[number]] = f"error: {text}\n  fix  change {number}\n"

    assert run(["smoke", "--yes", "--role", ROLE, *ALL]) == 3

    results = {stage.number: stage for stage in report().stages}
    failed = results[number]
    assert failed.verdict == "failed"
    assert text in failed.what
    assert failed.fix
    title = smoke.STAGES[number - 1].title
    assert re.search(rf"^stage {number}, {title}: .*{text}", capsys.readouterr().out, re.MULTILINE)
    blocked = {stage.number for stage in smoke.STAGES if number in smoke.DEPLOYMENT and number < stage.number}
    for other in results.values():
        expected = "not run" if other.number in blocked else "passed"
        assert other.number == number or other.verdict == expected
        assert other.verdict != "not run" or re.fullmatch(r"stage \d+ has not passed", other.what)
    assert fakes.account == []


def test_a_defect_of_a_stage_leaves_nothing(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any exception is a failure of its stage."""

    def fail(_run: smoke.Run, _argument: str) -> None:
        raise KeyError("no such field")

    monkeypatch.setattr(smoke, "STEPS", {**smoke.STEPS, "settled": fail})

    assert run(["smoke", "--yes"]) == 3

    assert "KeyError" in report().stages[2].what
    assert fakes.account == []


def test_only_chosen_stages_and_their_needs_are_run(fakes: Fakes) -> None:
    """The others are reported as not chosen, never as passed. Without a role stage 1 is not run."""
    assert run(["smoke", "--yes", "--stage", "4", "--stage", "6", "--stage", "7"]) == 0

    verdicts = {stage.number: stage.verdict for stage in report().stages}
    assert [number for number in verdicts if verdicts[number] == "passed"] == [2, 3, 4, 6, 7]
    assert {verdicts[number] for number in (1, 5, 8, 9, 10, 11, 12)} == {"not chosen"}
    assert "image bake" not in fakes.commands


def test_the_first_stage_needs_a_role(fakes: Fakes) -> None:
    """A stage that cannot be run is not run, has its reason, and the exit status is 6."""
    assert run(["smoke", "--yes"]) == 6

    first = report().stages[0]
    assert (first.verdict, first.what) == ("not run", "it needs --role ARN")
    assert fakes.account == []


@pytest.mark.parametrize("text", ["13", "x", "0"])
def test_an_unknown_stage_is_refused(fakes: Fakes, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is made."""
    assert run(["smoke", "--yes", "--stage", text]) == 2

    assert "stage" in capsys.readouterr().err
    assert not fakes.commands


def test_a_denied_permission_refutes_the_policy(fakes: Fakes) -> None:
    """It may be denied in any stage."""
    fakes.failing["vpn up"] = "error: permission denied: ssm:SendCommand\n  fix  allow it\n"

    assert run(["smoke", "--yes", "--role", ROLE]) == 3

    first = report().stages[0]
    assert (first.verdict, "ssm:SendCommand" in first.what) == ("failed", True)


def test_ctrl_c_destroys_the_fleet(fakes: Fakes) -> None:
    """The stage has failed, and no other is run."""
    fakes.failing["vpn up"] = "Ctrl-C"

    assert run(["smoke", "--yes"]) == 3

    results = {stage.number: stage for stage in report().stages}
    assert (results[6].verdict, results[6].what) == ("failed", "the test was interrupted")
    assert (results[7].verdict, results[7].what) == ("not run", "the test was interrupted")
    assert fakes.account == []


@pytest.mark.parametrize("content", [None, "minimal"])
def test_only_a_fleet_of_the_smoke_test_is_destroyed(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """A missing folder and the folder of another fleet are refused, and no command runs."""
    if content:
        Path("lab").mkdir()
        Path("lab/passphrase").touch()
        Path("lab/fleet.yaml").write_text((EXAMPLES / f"{content}.yaml").read_text())

    assert run(["smoke", "--destroy", "lab"]) == 2

    assert "error: lab has no fleet of the smoke test\n" in capsys.readouterr().err
    assert fakes.commands == []


def test_the_time_limit_destroys_the_fleet(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that runs is interrupted; the destruction has no limit."""
    times = iter([*[0.0] * 14, *[10_000.0] * 200])
    monkeypatch.setattr("bedplate.operate.smoke.time.monotonic", lambda: next(times))

    assert run(["smoke", "--yes", "--minutes", "90"]) == 3

    assert [stage.what for stage in report().stages if stage.verdict == "failed"] == ["the time limit is over"]
    assert fakes.account == []


def test_what_cannot_be_destroyed_is_named(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """With the command that continues; it also ends what a killed test has left."""
    fakes.failing["destroy --yes --end-machines"] = "error: the engine is locked\n"

    assert run(["smoke", "--yes", "--stage", "3"]) == 6

    output, errors = capsys.readouterr()
    assert f"left in the account: {VPC}" in output
    assert re.search(r"`bedplate smoke --destroy \S*smoke` has ended it", errors)
    assert report().left == (VPC.replace(ACCOUNT, "..."),)
    fakes.failing.clear()
    assert run(["smoke", "--destroy", "smoke"]) == 0
    assert fakes.account == []
    assert fakes.commands[-3:] == ["recover --yes", "destroy --yes --end-machines", "image sweep"]


def test_a_fleet_can_be_kept(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not destroyed, and the command that does it is named."""
    assert run(["smoke", "--yes", "--keep", "--stage", "3"]) == 0

    assert fakes.account == [VPC, BUCKET]
    assert "bedplate smoke --destroy" in capsys.readouterr().err


def test_errors_of_aws_are_kept_with_their_codes() -> None:
    """Those of stacks and of calls; other errors have no code."""
    text = (
        "error: lab.shared aws:iam/role:Role lab-ssh: EntityAlreadyExists: Role with name lab-ssh already exists.\n"
        "error: ec2:RunInstances failed: InvalidAMIID.NotFound: The image id '[ami-1]' does not exist\n"
        "error: 1 error in fleet.yaml; nothing was done\n"
    )

    assert [(error.code, error.text) for error in aws_errors(text, "up")] == [
        ("EntityAlreadyExists", "Role with name lab-ssh already exists."),
        ("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist"),
    ]


def test_a_report_has_no_account_and_no_key() -> None:
    """Account ids and long encoded values, such as messages of authorization, are replaced."""
    error = AwsError("UnauthorizedOperation", f"not authorized in 210987654321: {'aB3/' * 30}", "up")
    text = SmokeReport("smoke-1", (), "", stages=(StageResult(1, "x", "failed", errors=(error,)),)).text

    assert "not authorized in ...: ..." in text


LIVE = sorted((DATA / "live").glob("*.json"))


@pytest.mark.parametrize("file", LIVE, ids=lambda file: file.stem)
def test_stored_reports_agree_with_the_tables(file: Path) -> None:
    """Each text with which AWS refused a launch has its code in the table, by the text alone."""
    stored = REPORT.validate_json(file.read_text())
    launches = [error for stage in stored.stages for error in stage.errors if error.call == "a launch"]

    assert [stage.number for stage in stored.stages] == list(range(1, 13))
    assert [failure_code(error.text) for error in launches] == [error.code for error in launches]
    assert {error.code for error in launches} <= FAILURES.keys()


def test_what_destroy_keeps_can_be_deleted() -> None:
    """Every kind that the stacks retain, and that bakes make; its name and kind are read from its ARN."""
    arns = (BUCKET, "arn:aws:kms:us-west-2:1:key/k", "arn:aws:elasticfilesystem:us-west-2:1:file-system/fs-1")
    assert {kind_and_name(arn)[0] for arn in arns} <= KEPT.keys()
    assert kind_and_name(VPC) == ("ec2:vpc", "vpc-1")


def test_the_page_lists_the_permissions_of_its_own_calls() -> None:
    """The other calls are those of a deployer."""
    page = (ROOT / "docs/smoke.md").read_text().partition("## Permissions")[2]
    own = {action for part in ("account", "operate") for action in actions_in(source_of(part))}
    names = ((service, operation.title().replace("_", "")) for service, operation, *_ in KEPT.values())
    needed = own | {iam_action(service, name) for service, name in names}

    assert needed <= set(re.findall(r"`([a-z0-9]+:[A-Za-z]+)`", page))


def source_of(part: str) -> str:
    """Return the source of a module of the smoke test."""
    return (ROOT / f"bedplate/{part}/smoke.py").read_text()
