"""Deployment: events that the real engine sent, order and failures of stacks, errors of the `pulumi` command."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import boto3
import pytest
from pulumi.automation.events import EngineEvent

from bedplate.account.client import AwsClient, RegionResults
from bedplate.catalog.tables import QuotaFacts
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.deploy.engine import Engine, NoBackend, open_engine
from bedplate.deploy.progress import Operation, Progress, Status, advance
from bedplate.deploy.run import Deployment, Task
from bedplate.errors import BedplateError, HeldError, InputError, MachineError, PartialError
from bedplate.folder.files import backend_url
from bedplate.operate import deploy
from bedplate.plan.cost import QuotaNeed
from bedplate.report.deploy import cause_lines, change_lines, detail_lines, quota_warning_lines
from tests.conftest import DATA
from tests.testlab.engine.command import simulated_account
from tests.testlab.engine.folder import HISTORY, REPLAY, edited, make_folder, resources
from tests.testlab.fakes.reports import Recorder
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

VALUES = {"111122223333": "210987654321", "lab.example": "lab.internal", "IOMqqn": "IOMqqm", "g6.xlarge": "m7i.xlarge"}
# Answers to the questions about the program, then those in the files beside it.
PULUMI = """#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
  version) cat version ;;
  *"stack ls"*) cat stacks.json ;;
  *"stack export"*) cat export.json ;;
  *"stack select"*) ;;
  *) trap 'echo SIGINT >> signals' INT; touch started
     while [ ! -s error ] && [ ! -s signals ]; do sleep 0.05; done
     [ -s error ] || sleep 0.5
     cat error >&2; exit 255 ;;
esac
"""


def replayed(name: str, operation: Operation) -> Progress:
    """Return the progress after the recorded events of an operation, without states and debug messages."""
    progress = Progress("lab.shared", operation)
    for line in (DATA / "engine" / f"{name}.jsonl").read_text().splitlines():
        progress = advance(progress, EngineEvent.from_json(json.loads(line)))
    return progress


def test_each_created_resource_counts_once() -> None:
    """The engine reports components twice."""
    assert replayed("up", Operation.UP).changes == {"create": 26}


def test_a_failure_names_each_resource_and_its_error() -> None:
    """The engine's summary, "update failed", adds nothing."""
    assert list(cause_lines([replayed("failed", Operation.UP)])) == [
        "error: lab.shared aws:iam/role:Role lab-ssh: EntityAlreadyExists: Role with name lab-ssh already exists.",
        (
            "error: lab.shared aws:iam/role:Role lab-gateway: "
            "EntityAlreadyExists: Role with name lab-gateway already exists."
        ),
    ]


def test_an_error_of_a_program_has_no_traceback() -> None:
    """An own error has its message and fix. A defect has type and message, and a log with its traceback."""
    events = map(json.loads, (DATA / "engine/fail.jsonl").read_text().splitlines())
    (event,) = (event["event"] for event in events if "Traceback" in json.dumps(event))
    progress = Progress("trio.eu-north-1", Operation.PREVIEW)

    (error, fix) = cause_lines([advance(progress, EngineEvent.from_json(event))])

    assert error.startswith("error: trio.eu-north-1: the stack trio.shared has no eu-north-1 in its output")
    assert fix == "  fix: run `pulumi up -s trio.shared` first"
    event["diagnosticEvent"]["message"] = event["diagnosticEvent"]["message"].replace("bedplate.errors.Input", "Value")
    operator = Recorder(Path())
    deploy.exit_status(operator, [advance(progress, EngineEvent.from_json(event))])
    (error, *_, fix) = "\n".join(operator.noted).splitlines()
    assert error.startswith("error: trio.eu-north-1: ValueError: the stack trio.shared has no eu-north-1")
    log = Path(fix.rpartition(" ")[2])
    assert "Traceback (most recent call last)" in log.read_text()
    log.unlink()


@pytest.mark.parametrize("text", ["error: update canceled", "preview canceled", "error: update failed"])
def test_what_the_engine_says_after_an_error_is_no_cause(text: str) -> None:
    """Who presses Ctrl-C knows why it stopped."""
    diagnostic = {"message": text, "prefix": "", "color": "never", "severity": "error"}
    event = EngineEvent.from_json({"sequence": 1, "timestamp": 1, "diagnosticEvent": diagnostic})

    assert advance(Progress("lab.shared", Operation.UP), event).causes == ()


def test_a_preview_names_what_it_replaces() -> None:
    """Updates, creations and minor resources are only counted; the steps of a replacement count as one."""
    assert list(change_lines([replayed("preview", Operation.PREVIEW)])) == [
        "lab.shared               4 update, 2 replace",
        "  replace  aws:route53/zone:Zone lab",
        "  and 1 other resource",
    ]


STEPS = tuple(tuple((stack, Operation.UP) for stack in step) for step in (("shared",), ("a", "b"), ("links",)))


def deployed(operation: Callable[[str], None], then: Callable[[Task], None] = lambda _task: None) -> list[Progress]:
    """Return the states after a deployment by an engine that calls a function for each stack, and `then` after it."""
    engine = SimpleNamespace(
        command=SimpleNamespace(is_interrupted=False), run=lambda stack, _operation, _watch: operation(stack)
    )
    return list(Deployment(cast("Engine", engine), STEPS, then=then).run(lambda _states: None))


def test_steps_run_in_order_and_their_stacks_in_parallel() -> None:
    """Both regions run at the same time, `links` after both."""
    both, order = threading.Barrier(2, timeout=10), []

    def operation(stack: str) -> None:
        if stack in ("a", "b"):
            both.wait()
        order.append(stack)

    states = deployed(operation)

    assert {state.status for state in states} == {Status.DONE}
    assert (order[0], set(order[1:3]), order[3]) == ("shared", {"a", "b"}, "links")


def test_what_follows_an_operation_is_done_before_later_steps() -> None:
    """It also follows if a sibling fails, and its own failure is one of the stack."""
    order = []

    def operation(stack: str) -> None:
        if stack == "b":
            raise PartialError("no")

    def follow(task: Task) -> None:
        order.append(task[0])
        if task[0] == "a":
            raise PartialError("no bundle", fix="repeat")

    states = deployed(operation, follow)

    assert order == ["shared", "a"]
    assert [state.status for state in states] == [Status.DONE, Status.FAILED, Status.FAILED, Status.SKIPPED]
    assert states[1].causes[0].message == "no bundle\nfix: repeat"


@pytest.mark.parametrize(("error", "code"), [(PartialError("no"), 6), (HeldError("no", fix="wait"), 5)])
def test_a_failing_region_stops_later_steps_only(error: BedplateError, code: int) -> None:
    """Its sibling finishes; the exit status is that of the error if nothing was changed."""

    def operation(stack: str) -> None:
        if stack == "b":
            raise error
        time.sleep(0.3 if stack == "a" else 0)

    states = deployed(operation)

    assert [state.status for state in states] == [Status.DONE, Status.DONE, Status.FAILED, Status.SKIPPED]
    assert deploy.exit_status(Recorder(Path()), states) == code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet folder with a stand-in for `pulumi` on PATH, and the stack solo.shared in its backend."""
    fleet = edited(EXAMPLES / "minimal.yaml", VALUES) + "  E418: the zones are the same in this account\n"
    files = {
        "version": "v3.272.0",
        "stacks.json": json.dumps([{"name": "solo.shared", "current": False, "resourceCount": 9}]),
        "export.json": "{}",
        "Pulumi.solo.shared.yaml": "encryptionsalt: v1\n",
        "fleet.yaml": fleet,
    }
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///unused")
    monkeypatch.setattr(deploy, "open_account", lambda _plan: None)
    monkeypatch.setattr(deploy, "unrecorded_images", lambda _plan, _catalog: ())
    monkeypatch.setattr(deploy, "deliver_to_new_region", lambda _plan, _account, _region: None)
    return make_folder(tmp_path, monkeypatch, PULUMI, files)


@pytest.mark.parametrize(
    ("text", "kind", "fix"),
    [
        ("error: incorrect passphrase", MachineError, "PULUMI_CONFIG_PASSPHRASE"),
        ("error: passphrase must be set with ...", MachineError, "PULUMI_CONFIG_PASSPHRASE"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login", NoBackend, "bedplate backend init"),
        ("error: the stack is currently locked by 1 lock(s)", HeldError, "bedplate recover"),
        # https://github.com/pulumi/pulumi/issues/19669
        ("error: getting snapshot: snapshot integrity failure; refusing", PartialError, "pulumi state repair"),
        ("error: no such bucket", PartialError, ""),
        # https://github.com/pulumi/pulumi/issues/2714
        ("error: failed to load checkpoint: blob (code=NotFound): NoSuchKey: The", PartialError, "bedplate recover"),
        # https://github.com/pulumi/pulumi/issues/8984: no line names the holder
        ("error: the stack is currently locked by 1 lock(s). Either wait", HeldError, "bedplate recover"),
        ("error: failed to load checkpoint: EOF", PartialError, "bedplate recover"),
    ],
)
def test_an_error_of_pulumi_gets_its_exit_code_and_fix(
    folder: Path, text: str, kind: type[BedplateError], fix: str
) -> None:
    """An unknown error is passed on."""
    (folder / "error").write_text(text)

    with pytest.raises(kind) as error:
        open_engine(folder).run("solo.shared", Operation.UP, lambda _event: None)

    assert fix in error.value.fix
    assert fix or kind is not PartialError or error.value.what == "no such bucket"


def test_an_interrupt_reaches_the_engine_once(folder: Path) -> None:
    """A second one would make it forget resources that are being created. Later steps do not start."""

    def interrupt() -> None:
        while not (folder / "started").exists():
            time.sleep(0.05)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    sender = threading.Thread(target=interrupt)
    sender.start()
    steps = ((("solo.shared", Operation.UP),), (("solo.us-west-2", Operation.UP),))
    states = Deployment(open_engine(folder), steps).run(lambda _states: None)
    sender.join()

    assert (folder / "signals").read_text() == "SIGINT\n"
    assert [state.status for state in states] == [Status.FAILED, Status.SKIPPED]


def test_what_a_folder_lacks_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulumi itself would make a new environment, and new settings with another encryption key."""
    (folder / "version").write_text("v3.100.0")
    with pytest.raises(MachineError, match=r"needs 3\.206\.0 or newer"):
        open_engine(folder)
    (folder / "version").write_text("v3.272.0")
    (folder / "Pulumi.solo.shared.yaml").unlink()
    with pytest.raises(BedplateError, match=r"settings of the existing stack solo\.shared are missing") as error:
        open_engine(folder).resource_counts("solo")
    assert "bedplate backend init" in error.value.fix
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BedplateError, match="pulumi is missing") as error:
        open_engine(folder)
    assert "https://www.pulumi.com/docs/install/" in error.value.fix
    (folder / ".venv/bin/python").unlink()
    with pytest.raises(BedplateError, match=r"\.venv is missing") as error:
        open_engine(folder)
    assert "bedplate init --link" in error.value.fix
    (folder / "Pulumi.yaml").unlink()
    for open_folder in (open_engine, backend_url):
        with pytest.raises(InputError, match=r"Pulumi\.yaml is missing"):
            open_folder(folder)


def test_unfinished_operations_of_a_killed_run_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pulumi would create their resources again."""
    urn = "urn:pulumi:solo.shared::bedplate::aws:kms/key:Key::solo-parameters"
    operations = [{"type": "creating", "resource": {"urn": urn}}]
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": {"pending_operations": operations}}))

    assert run(["up", "--yes"]) == 2

    errors = capsys.readouterr().err
    assert f"operations with unknown results: creating {urn}" in errors


def test_example_values_are_refused_before_anything_is_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine is not started either."""
    (folder / "pulumi").unlink()
    (folder / "fleet.yaml").write_text((EXAMPLES / "minimal.yaml").read_text())

    assert run(["up", "--yes"]) == 2

    assert "E417" in capsys.readouterr().err
    assert not (folder / "fleet.lock").exists()


def test_a_run_without_a_change_gives_a_region_its_bundle(
    trio: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run that deployed the stack may have ended before: no machine could ever configure itself."""
    (trio / "run.jsonl").touch()
    regions: list[str] = []
    monkeypatch.setattr(deploy, "deliver_to_new_region", lambda _plan, _account, region: regions.append(region))

    assert run(["up", "--yes", "--stack", "us-west-2"]) == 0
    assert (regions, capsys.readouterr().out) == (["us-west-2"], "no change\n")
    assert run(["up", "--yes", "--no-machines"]) == 0
    assert sorted(regions[1:]) == ["eu-north-1", "us-east-1", "us-west-2"]


def test_invalid_calls_change_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No terminal for the confirmation, another file than that of the program; and a preview before the first `up`."""
    assert run(["up"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert run(["destroy", str(EXAMPLES / "minimal.yaml")]) == 2
    assert "a deployment reads fleet.yaml only" in capsys.readouterr().err
    assert run(["preview", "--stack", "us-west-2"]) == 0
    output, errors = capsys.readouterr()
    assert "not recorded yet: 1 block (region/us-west-2), 1 person; `up` records them" in errors
    assert output.splitlines() == [
        "first deployment: 2 stacks, 1 to 4 machines; `bedplate rehearse` lists the resources",
        "  us-west-2  10.64.0.0/16",
        "solo.us-west-2           new",
        "list price at minimum: 195.57 USD/month",
    ]
    assert not (folder / "fleet.lock").exists()


def test_a_group_that_is_made_outside_its_hours_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AWS starts its minimum at once; the note says until when, and when its hours begin. An existing group is none."""
    soon = [datetime.now(UTC) + timedelta(hours=hours) for hours in (2, 3)]
    hours = f"schedule: {{start: '{soon[0]:%H:%M}', stop: '{soon[1]:%H:%M}', days: SUN-SAT}}"
    fleet = (folder / "fleet.yaml").read_text()
    (folder / "fleet.yaml").write_text(fleet.replace("expires: permanent", hours))

    assert run(["preview"]) == 0

    start, stop = (f"{time:%Y-%m-%d %H:%M} UTC" for time in soon)
    line = f"workbench-us-west-2: starts 1 machine at once, outside its hours, until {stop}; they begin at {start}"
    assert line in capsys.readouterr().out.splitlines()
    assert run(["preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outside_hours"] == [line]
    assert run(["preview", "--stack", "shared"]) == 0
    assert "outside its hours" not in capsys.readouterr().out


VPC, DATA_KEY = "aws:ec2/vpc:Vpc", "aws:kms/key:Key"


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a fleet folder of three deployed regions, with a `pulumi` that replays the run `run.jsonl`."""
    fleet = (DATA / "engine/trio.yaml").read_text()
    prices = {"hourly_price": 0.125, "transit_gateway_id": "tgw-1", "fleet_file": fleet}
    states = {
        "shared": resources("trio.shared", "aws:iam/role:Role", fleet_file=fleet),
        "us-west-2": resources("trio.us-west-2", VPC, DATA_KEY, **prices),
        "us-east-1": resources("trio.us-east-1", VPC, DATA_KEY, **prices),
        "eu-north-1": resources("trio.eu-north-1", VPC, DATA_KEY, **prices),
        "links": resources("trio.links", "aws:route53/zoneAssociation:ZoneAssociation"),
    }
    files: dict[str, object] = {
        f"trio.{part}.json": {"version": 3, "deployment": {"resources": state}} for part, state in states.items()
    }
    stacks: list[object] = [
        {"name": f"trio.{part}", "current": False, "resourceCount": len(states[part])} for part in states
    ]
    files |= {"stacks.json": stacks, "history.json": HISTORY}
    texts = {name: json.dumps(document) for name, document in files.items()}
    texts |= {f"Pulumi.trio.{part}.yaml": "encryptionsalt: v1\n" for part in states}
    texts["fleet.yaml"] = fleet
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///unused")
    make_folder(tmp_path, monkeypatch, REPLAY, texts)
    with simulated_account():
        yield tmp_path


def remove_north(folder: Path) -> None:
    """Remove a region from the fleet file."""
    fleet = (folder / "fleet.yaml").read_text()
    (folder / "fleet.yaml").write_text(fleet.replace("  eu-north-1:\n    zones: [eu-north-1a]\n", ""))


def words(text: str) -> list[str]:
    """Return the lines without times, and with one space between words."""
    return [re.sub(r" [0-9.]+ s$", "", " ".join(line.split())) for line in text.splitlines()]


def test_a_removed_region_is_destroyed_by_the_same_up(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of docs/teardown.md: `links` releases the region first, `shared` permits its nodes until the end."""
    shutil.copy(DATA / "engine/remove.jsonl", trio / "run.jsonl")
    remove_north(trio)

    assert run(["up", "--yes"]) == 0

    calls = (trio / "calls").read_text().splitlines()
    assert {*calls[:4]} == {f"preview trio.{part}" for part in ("shared", "us-west-2", "us-east-1", "links")}
    assert {*calls[4:6]} == {"up trio.us-west-2", "up trio.us-east-1"}
    assert calls[6:] == ["up trio.links", "destroy trio.eu-north-1", "up trio.shared"]
    lines = words(capsys.readouterr().out)
    assert lines[-5:] == [
        "trio.us-west-2 up done 3",
        "trio.us-east-1 up done 3",
        "trio.links up done 28",
        "trio.eu-north-1 destroy done 40",
        "trio.shared up done 5",
    ]
    before_confirmation = lines[:-5]
    assert "trio.eu-north-1 1 delete" in before_confirmation
    assert "delete aws:ec2/vpc:Vpc trio" in before_confirmation
    assert "list price at minimum: 151.50 USD/month, -122.25 to the last deployment" in before_confirmation


def test_a_program_reads_an_up_as_one_document(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the keys of `preview --json`, and the results of stacks and machines; all else is on stderr."""
    shutil.copy(DATA / "engine/remove.jsonl", trio / "run.jsonl")
    remove_north(trio)
    assert run(["preview", "--json"]) == 0
    preview = json.loads(capsys.readouterr().out)

    assert run(["up", "--yes", "--json"]) == 0

    output, errors = capsys.readouterr()
    document = json.loads(output)
    results = document.pop("results")
    assert document.pop("machines") == {}
    assert document == preview
    assert results["trio.eu-north-1"] == {"state": "destroy done", "changes": {"delete": 40}, "errors": []}
    assert "edits since the last deployment:" in errors


def test_a_failed_up_has_its_document(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The errors of a stack are in it; nothing to do is a document too."""
    shutil.copy(DATA / "engine/fail.jsonl", trio / "run.jsonl")

    assert run(["up", "--yes", "--json"]) == 6

    document = json.loads(capsys.readouterr().out)
    assert "UnavailableException" in " ".join(document["results"]["trio.eu-north-1"]["errors"])
    assert document["results"]["trio.links"]["state"] == "up skipped"
    (trio / "run.jsonl").write_text("")
    assert run(["up", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == {}


GROUP = "aws:autoscaling/group:Group"
NAME = "trio-box-eu-north-1"


@pytest.fixture
def box(trio: Path) -> str:
    """Let a group of eu-north-1 run two machines; return the instance of one."""
    file = trio / "trio.eu-north-1.json"
    document = json.loads(file.read_text())
    urn = f"urn:pulumi:trio.eu-north-1::bedplate::{GROUP}::{NAME}"
    document["deployment"]["resources"].append({"urn": urn, "type": GROUP, "id": NAME})
    file.write_text(json.dumps(document))
    client = boto3.client("autoscaling", "eu-north-1")
    template: dict[str, Any] = {"LaunchConfigurationName": NAME}
    client.create_launch_configuration(**template, ImageId="ami-12c6146b", InstanceType="m7i.xlarge")
    sizes: dict[str, Any] = {"MinSize": 2, "MaxSize": 2, "AvailabilityZones": ["eu-north-1a"]}
    client.create_auto_scaling_group(AutoScalingGroupName=NAME, **template, **sizes)
    (group,) = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    return str(group["Instances"][0]["InstanceId"])


def test_machines_that_a_removed_region_ends_are_named_first(
    trio: Path, box: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by `preview` and `destroy`; `--yes` agrees to their end only together with `--end-machines`."""
    shutil.copy(DATA / "engine/remove.jsonl", trio / "run.jsonl")
    line = "box-eu-north-1 in eu-north-1: ends 2 running machines (local disks are lost): "

    assert run(["destroy", "--yes"]) == 2
    assert capsys.readouterr().out.startswith(line)
    remove_north(trio)
    assert run(["up", "--yes"]) == 2
    output, errors = capsys.readouterr()
    assert output.startswith(line)
    assert re.search(rf"box-eu-north-1-\w+\.eu-north-1 \({box}\), up 0m, logins unknown", output)
    assert "add --end-machines" in errors
    assert "up trio" not in (trio / "calls").read_text()
    assert "destroy" not in (trio / "calls").read_text()
    assert run(["preview", "--json"]) == 0
    assert [(end["group"], end["count"]) for end in json.loads(capsys.readouterr().out)["ends"]] == [
        ("box-eu-north-1", 2)
    ]
    assert run(["up", "--yes", "--end-machines"]) == 0


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"maxSize": 1}, 1),
        pytest.param({"maxSize": 5}, 0, marks=pytest.mark.nightly),
        pytest.param({"maxSize": None}, 2, marks=pytest.mark.nightly),
        pytest.param({"name": "other"}, 0, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("kind", ["update", "replace"])
def test_a_preview_of_a_group_says_how_many_machines_end(
    trio: Path, capsys: pytest.CaptureFixture[str], kind: str, changes: Mapping[str, object], count: int
) -> None:
    """A replaced group ends all; a lower or unknown maximum those above it; other changes none."""
    urn = f"urn:pulumi:trio.eu-north-1::bedplate::{GROUP}::{NAME}"
    state = {"urn": urn, "type": GROUP, "id": NAME, "parent": "", "provider": "", "outputs": {}}
    old, new = state | {"inputs": {"maxSize": 2}}, state | {"inputs": changes}
    metadata = {"op": kind, "urn": urn, "type": GROUP, "provider": "", "old": old, "new": new, "diffs": [*changes]}
    event = {"sequence": 1, "timestamp": 1, "resOutputsEvent": {"metadata": metadata}}
    line = {"stack": "trio.eu-north-1", "operation": "preview", "event": event}
    (trio / "run.jsonl").write_text(json.dumps(line))

    assert run(["preview"]) == 0

    ends = [line for line in capsys.readouterr().out.splitlines() if "ends" in line]
    number = {0: [], 1: ["ends 1 of 2 running machines"], 2: ["ends 2 running machines"]}[
        2 if kind == "replace" else count
    ]
    assert [re.sub(r".*(ends .*) \(local.*", r"\1", line) for line in ends] == number


def test_a_preview_begins_with_the_edits_since_the_last_deployment(
    trio: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the file that the stacks recorded, as `diff --deployed` and `diff HEAD` show them."""
    (trio / "run.jsonl").touch()
    assert run(["diff", "--deployed"]) == 0
    assert "the two fleet files are equivalent" in capsys.readouterr().out
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (["init", "-q"], ["add", "fleet.yaml"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], check=True)
    remove_north(trio)

    assert run(["preview"]) == 0

    first, _, row, *_ = capsys.readouterr().out.splitlines()
    assert first == "edits since the last deployment:"
    assert row.startswith("  - regions.eu-north-1 ")
    for arguments, name in ((["--deployed"], "the last deployment"), (["HEAD"], "HEAD:fleet.yaml")):
        assert run(["diff", *arguments]) == 3
        output = capsys.readouterr().out
        assert output.startswith(f"from {name} to fleet.yaml\n")
        assert row in output
    assert run(["diff", "HEAD~1"]) == 2
    assert "HEAD~1 is neither a file nor a git revision with fleet.yaml" in capsys.readouterr().err


def test_an_invalid_committed_file_is_named(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file on disk is valid: the fault is in the other one, which the revision names."""
    (trio / "fleet.yaml").rename("valid.yaml")
    (trio / "fleet.yaml").write_text((trio / "valid.yaml").read_text().replace("domain:", "domian:"))
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (["init", "-q"], ["add", "fleet.yaml"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], check=True)
    (trio / "valid.yaml").rename("fleet.yaml")

    for arguments in (["HEAD"], ["HEAD", "fleet.yaml"]):
        assert run(["diff", *arguments]) == 2

        *faults, last = capsys.readouterr().err.splitlines()
        assert faults[0].startswith("HEAD:fleet.yaml:")
        assert last == "error: 1 error, 1 warning in HEAD:fleet.yaml; nothing was done"


@pytest.mark.parametrize(("content", "status"), [(b"", 3), (b"\xe9", 2)])
def test_the_committed_file_is_compared_from_a_folder_below(
    trio: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes, status: int
) -> None:
    """The fleet file is that of a folder above; a committed file that is not UTF-8 is an error of the input."""
    with (trio / "fleet.yaml").open("ab") as file:
        file.write(content)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (["init", "-q"], ["add", "fleet.yaml"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], cwd=trio, check=True)
    if content:
        (trio / "fleet.yaml").write_bytes((trio / "fleet.yaml").read_bytes().removesuffix(content))
    remove_north(trio)
    (trio / "notes").mkdir()
    monkeypatch.chdir(trio / "notes")

    assert run(["diff", "HEAD"]) == status

    printed = capsys.readouterr()
    assert "internal error" not in printed.err
    assert ("- regions.eu-north-1 " in printed.out) is (status == 3)


def test_details_name_each_property_and_hide_secrets() -> None:
    """Old and new value of what a preview changes, as the engine reports them."""
    urn = "urn:pulumi:lab.shared::bedplate::aws:ssm/parameter:Parameter::lab-domain"
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}
    state = {"urn": urn, "type": "aws:ssm/parameter:Parameter", "id": "x", "parent": "", "provider": "", "outputs": {}}
    old, new = ({"inputs": {"tags": {"owner": name}, "value": secret}} for name in ("ada", "bob"))
    metadata = {"op": "update", "urn": urn, "type": state["type"], "provider": "", "diffs": ["tags.owner", "value"]}
    metadata |= {"old": state | old, "new": state | new}
    event = {"sequence": 1, "timestamp": 1, "resOutputsEvent": {"metadata": metadata}}

    progress = advance(Progress("lab.shared", Operation.PREVIEW), EngineEvent.from_json(event))

    assert list(detail_lines([progress])) == [
        "lab.shared: update aws:ssm/parameter:Parameter lab-domain",
        "    tags.owner: ada -> bob",
        "    value: [secret] -> [secret]",
    ]


@pytest.mark.parametrize(("answer", "agrees"), [("y", True), ("n", False), ("", False), ("x", False)])
def test_details_are_shown_before_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, *, agrees: bool
) -> None:
    """`d` shows them and asks again; only yes agrees."""
    answers = iter(["d", answer or "n"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *_arguments, **_settings: next(answers))

    with nullcontext() if agrees else pytest.raises(InputError, match="not confirmed"):
        Terminal(Path("fleet.yaml")).confirm("deploy?", ["lab.shared: update"])

    assert capsys.readouterr().out == "lab.shared: update\n"


@pytest.mark.usefixtures("box")
def test_machines_of_a_silent_region_may_run(
    trio: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What AWS does not answer is unknown, and `--yes` does not agree to it."""

    def refuse(*_arguments: object) -> Iterator[None]:
        raise PartialError("AWS does not answer")

    monkeypatch.setattr("bedplate.account.machines.describe_groups", refuse)
    (trio / "run.jsonl").touch()

    assert run(["destroy", "--yes"]) == 2

    output, errors = capsys.readouterr()
    reason = "may end running machines, which are unknown: AWS does not answer"
    assert output.splitlines()[0] == f"box-eu-north-1 in eu-north-1: {reason}"
    assert "--end-machines" in errors
    assert not (trio / "calls").exists()


def test_a_failing_region_does_not_stop_the_others(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others finish, `links` is skipped, and the message has the cause and the command that continues."""
    shutil.copy(DATA / "engine/fail.jsonl", trio / "run.jsonl")

    assert run(["up", "--yes"]) == 6

    output, errors = capsys.readouterr()
    assert words(output)[-5:] == [
        "trio.shared up done 5",
        "trio.us-west-2 up done 3",
        "trio.us-east-1 up done 3",
        "trio.eu-north-1 up failed 15",
        "trio.links up skipped 0/28",
    ]
    assert "Subnet trio-eu-north-1a-nodes: UnavailableException: the service is unavailable" in errors
    assert "run `bedplate up fleet.yaml` again: it continues" in errors


def test_after_a_killed_engine_recover_comes_first(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` alone would refuse to continue: the state has operations with unknown results."""
    line = {"stack": "trio.eu-north-1", "operation": "destroy", "error": "code: -9"}
    (trio / "run.jsonl").write_text(json.dumps(line))
    state = trio / "trio.eu-north-1.json"
    document = json.loads(state.read_text())
    kill = '*"stack export"*) [ -e calls ] && [ -e "killed.$stack" ] && exec cat "killed.$stack";'
    (trio / "pulumi").write_text((trio / "pulumi").read_text().replace('*"stack export"*)', kill))
    document["deployment"]["pending_operations"] = [{"type": "deleting", "resource": {"urn": "urn:pulumi:x::y::z::w"}}]
    (trio / "killed.trio.eu-north-1").write_text(json.dumps(document))

    assert run(["destroy", "--yes"]) == 6

    fix = "fix  run `bedplate recover`, then run `bedplate destroy fleet.yaml` again: it continues"
    assert fix in capsys.readouterr().err


def interrupted(folder: Path, call: str) -> threading.Thread:
    """Press Ctrl-C once the stand-in runs an operation."""

    def interrupt() -> None:
        while not (folder / "calls").exists() or call not in (folder / "calls").read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    return sender


def test_an_interrupt_stops_the_regions_and_what_follows(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine completes the operations that have begun; the same command continues."""
    shutil.copy(DATA / "engine/interrupt.jsonl", trio / "run.jsonl")
    sender = interrupted(trio, "destroy trio.us-east-1")

    assert run(["destroy", "--yes"]) == 6

    sender.join()
    output, errors = capsys.readouterr()
    assert [line.split()[:3] for line in output.splitlines()[-5:]] == [
        ["trio.links", "destroy", "done"],
        ["trio.us-east-1", "destroy", "stopped"],
        ["trio.eu-north-1", "destroy", "stopped"],
        ["trio.us-west-2", "destroy", "skipped"],
        ["trio.shared", "destroy", "skipped"],
    ]
    assert errors.endswith("stopped by you\n  fix  run `bedplate destroy fleet.yaml` again: it continues\n")
    assert "error" not in errors


def test_an_interrupted_preview_changes_nothing(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is that of a program killed by SIGINT."""
    (trio / "run.jsonl").write_text(json.dumps({"stack": "trio.shared", "operation": "preview", "wait": "SIGINT"}))
    sender = interrupted(trio, "preview trio.shared")

    assert run(["up", "--yes"]) == 130

    sender.join()
    assert "stopped by you: nothing was changed" in capsys.readouterr().err
    assert " up " not in (trio / "calls").read_text()


def test_credentials_of_another_account_are_refused_first(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is recorded, and the engine does not start."""
    # monkeypatch would restore the account of `trio` after that fixture has ended.
    with patch.dict(os.environ, MOTO_ACCOUNT_ID="111122223333"):
        assert run(["up", "--yes"]) == 2

    assert capsys.readouterr().err.count("error") == 1
    assert not (trio / "fleet.lock").exists()
    assert not (trio / "calls").exists()


@pytest.mark.parametrize(
    ("value", "question"), [(0.0, "on-demand G and VT vCPUs in us-west-2: machines cannot start"), (2.0, "")]
)
def test_a_group_that_cannot_start_is_asked_about(value: float, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quota below the minimum, `up` would wait for machines that cannot come."""
    plan = plan_of(EXAMPLES / "minimal.yaml")

    def read(_account: object, needs: tuple[QuotaNeed, ...]) -> RegionResults[dict[tuple[str, str], float]]:
        granted = {(need.region, need.quota.code): value * need.least for need in needs if need.quota.market}
        return RegionResults({"us-west-2": granted}, {})

    monkeypatch.setattr(deploy, "read_quotas", read)
    account = cast("AwsClient", None)
    deploy.confirm_quotas(Recorder(EXAMPLES / "minimal.yaml", yes=True), plan, account)

    with pytest.raises(InputError, match=f"too small for the minimum: {question}") if question else nullcontext():
        deploy.confirm_quotas(Recorder(EXAMPLES / "minimal.yaml"), plan, account)


def test_each_quota_that_is_too_small_is_a_warning() -> None:
    """The warning has the page of the console for an increase. An unknown quota is no warning."""
    quota = QuotaFacts("VPCs", "vpc", "L-F678F1CE", 5)
    needs = [QuotaNeed(region, quota, 1, 9) for region in ("us-west-2", "us-east-1", "eu-north-1", "eu-west-1")]
    granted = {("us-west-2", quota.code): 0.0, ("us-east-1", quota.code): 5.0, ("eu-north-1", quota.code): 9.0}

    page = "console.aws.amazon.com/servicequotas/home/services/vpc/quotas/L-F678F1CE"
    assert list(quota_warning_lines(needs, granted)) == [
        "warning: us-west-2: quota of VPCs is 0; the fleet needs 1 at minimum",
        f"  fix  request 9: https://us-west-2.{page}",
        "warning: us-east-1: quota of VPCs is 5; the fleet needs 9 at maximum",
        f"  fix  request 9: https://us-east-1.{page}",
    ]


def test_destroy_skips_stacks_that_do_not_exist(trio: Path) -> None:
    """A first deployment may have failed before the regions."""
    rows = [{"name": "trio.shared", "current": False, "resourceCount": 2}]
    (trio / "stacks.json").write_text(json.dumps(rows))
    (trio / "run.jsonl").touch()

    assert run(["destroy", "--yes"]) == 0

    assert (trio / "calls").read_text() == "destroy trio.shared\n"


@pytest.mark.parametrize(
    ("gib", "line"),
    [
        ({"us-west-2": 100, "us-east-1": 60}, "kept images cost at most 8.00 USD/month, for 160 GiB"),
        ({"us-west-2": None}, "images are kept too; their price is unknown, as a region does not answer"),
        ({}, ""),
    ],
)
def test_destroy_says_what_is_kept_and_its_price(
    trio: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gib: Mapping[str, int | None],
    line: str,
) -> None:
    """Keys and volumes, data by its GiB, and images by the volumes that they can fill."""
    (trio / "run.jsonl").touch()
    images = {region: (SimpleNamespace(gib=size),) for region, size in gib.items() if size}
    failures = {region: PartialError("AWS does not answer") for region, size in gib.items() if size is None}
    monkeypatch.setattr(deploy, "all_images", lambda _account, _plan: RegionResults(images, failures))

    assert run(["destroy", "--yes", "--json"]) == 0

    output, errors = capsys.readouterr()
    data = "0.023 per GiB in buckets, 0.30 per GiB in file systems"
    assert f"kept resources cost 3.00 USD/month, and their data {data}\n" in errors
    assert ("images" in errors.splitlines()[-1], line in errors) == (bool(line), True)
    kept = json.loads(output)["kept"]
    assert kept["resources"]["trio.us-west-2"] == 2
    assert kept["images_gib"] == (None if failures else sum(size or 0 for size in gib.values()))
