"""Deployment: events that the real engine sent, order and failures of stacks, errors of the `pulumi` command."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pulumi.automation.events import EngineEvent

from bedplate.cli import deploy, run
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation, Progress, Status, advance
from bedplate.deploy.run import Deployment
from bedplate.errors import BedplateError, HeldError, InputError, MachineError, PartialError
from bedplate.report.deploy import cause_lines, change_lines
from tests.conftest import DATA
from tests.testlab.rehearsal.programs import EXAMPLES

VALUES = {"111122223333": "210987654321", "lab.example": "lab.internal", "IOMqqn": "IOMqqm"}
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


def replay(name: str, operation: Operation) -> Progress:
    """Return the progress after the recorded events of an operation, without states and debug messages."""
    progress = Progress("lab.shared", operation)
    for line in (DATA / "engine" / f"{name}.jsonl").read_text().splitlines():
        progress = advance(progress, EngineEvent.from_json(json.loads(line)))
    return progress


def test_each_created_resource_counts_once() -> None:
    """The engine reports components twice."""
    assert replay("up", Operation.UP).changes == {"create": 26}


def test_a_failure_names_each_resource_and_its_error() -> None:
    """The engine's summary, "update failed", adds nothing."""
    assert list(cause_lines([replay("failed", Operation.UP)])) == [
        "error: lab.shared aws:iam/role:Role lab-ssh: EntityAlreadyExists: Role with name lab-ssh already exists.",
        (
            "error: lab.shared aws:iam/role:Role lab-gateway: "
            "EntityAlreadyExists: Role with name lab-gateway already exists."
        ),
    ]


def test_a_preview_names_what_it_replaces() -> None:
    """Updates and creations are only counted; the steps of a replacement count as one."""
    assert list(change_lines([replay("preview", Operation.PREVIEW)])) == [
        "lab.shared               4 update, 2 replace",
        "  replace  aws:route53/zone:Zone lab",
        "  replace  aws:route53/record:Record lab-home.files.us-west-2",
    ]


STEPS = tuple(tuple((stack, Operation.UP) for stack in step) for step in (("shared",), ("a", "b"), ("links",)))


def deployed(operation: Callable[[str], None]) -> list[Progress]:
    """Return the states after a deployment by an engine that calls a function for each stack."""
    engine = SimpleNamespace(
        command=SimpleNamespace(is_interrupted=False), run=lambda stack, _operation, _watch: operation(stack)
    )
    return list(Deployment(cast("Engine", engine), STEPS).run(lambda _states: None))


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


@pytest.mark.parametrize(("error", "code"), [(PartialError("no"), 6), (HeldError("no", fix="wait"), 5)])
def test_a_failing_region_stops_later_steps_only(error: BedplateError, code: int) -> None:
    """Its sibling finishes; the exit status is that of the error if nothing was changed."""

    def operation(stack: str) -> None:
        if stack == "b":
            raise error
        time.sleep(0.3 if stack == "a" else 0)

    states = deployed(operation)

    assert [state.status for state in states] == [Status.DONE, Status.DONE, Status.FAILED, Status.SKIPPED]
    assert deploy._status(states) == code  # noqa: SLF001  what every command returns


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet folder with a stand-in for `pulumi` on PATH, and the stack solo.shared in its backend."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, text in {
        ".venv/bin/python": "",
        "Pulumi.yaml": "name: bedplate\nruntime: python\n",
        "version": "v3.272.0",
        "stacks.json": json.dumps([{"name": "solo.shared", "current": False, "resourceCount": 9}]),
        "export.json": "{}",
        "Pulumi.solo.shared.yaml": "encryptionsalt: v1\n",
        "pulumi": PULUMI,
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pulumi").chmod(0o755)
    fleet = (EXAMPLES / "minimal.yaml").read_text()
    for old, new in VALUES.items():
        fleet = fleet.replace(old, new)
    (tmp_path / "fleet.yaml").write_text(fleet + "  E418: the zones are the same in this account\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(deploy, "open_account", lambda _plan: None)
    monkeypatch.setattr(deploy, "unrecorded_images", lambda _plan, _catalog: ())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "fix"),
    [
        ("error: incorrect passphrase", MachineError, "PULUMI_CONFIG_PASSPHRASE"),
        ("error: passphrase must be set with ...", MachineError, "PULUMI_CONFIG_PASSPHRASE"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login", MachineError, "pulumi login s3://BUCKET"),
        ("error: the stack is currently locked by 1 lock(s)", HeldError, "bedplate recover"),
        ("error: no such bucket", PartialError, ""),
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
    assert kind is not PartialError or error.value.what == "no such bucket"


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
    with pytest.raises(MachineError, match="too old"):
        open_engine(folder)
    (folder / "version").write_text("v3.272.0")
    (folder / "Pulumi.solo.shared.yaml").unlink()
    with pytest.raises(BedplateError, match=r"settings of the existing stack solo\.shared are missing") as error:
        open_engine(folder).resource_counts("solo")
    assert "commit it" in error.value.fix
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BedplateError, match="pulumi is missing") as error:
        open_engine(folder)
    assert "https://www.pulumi.com/docs/install/" in error.value.fix
    (folder / ".venv/bin/python").unlink()
    with pytest.raises(BedplateError, match=r"\.venv is missing") as error:
        open_engine(folder)
    assert "bedplate init --link" in error.value.fix
    (folder / "Pulumi.yaml").unlink()
    with pytest.raises(InputError, match=r"Pulumi\.yaml is missing"):
        open_engine(folder)


def test_unfinished_operations_of_a_killed_run_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pulumi would create their resources again. Stacks of removed regions are named, those of other fleets ignored."""
    urn = "urn:pulumi:solo.shared::bedplate::aws:kms/key:Key::solo-parameters"
    operations = [{"type": "creating", "resource": {"urn": urn}}]
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": {"pending_operations": operations}}))

    stacks = ["solo.shared", "solo.eu-north-1", "other.shared"]
    (folder / "Pulumi.solo.eu-north-1.yaml").touch()
    rows = [{"name": name, "current": False, "resourceCount": 9} for name in stacks]
    (folder / "stacks.json").write_text(json.dumps(rows))

    assert run(["up", "--yes"]) == 2

    errors = capsys.readouterr().err
    assert "warning: solo.eu-north-1 has 9 resources and is not in the fleet file" in errors
    assert "other" not in errors
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


def test_invalid_calls_change_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No terminal for the confirmation, another file than that of the program, a preview before the first `up`."""
    assert run(["up"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert run(["destroy", str(EXAMPLES / "minimal.yaml")]) == 2
    assert "a deployment reads fleet.yaml only" in capsys.readouterr().err
    assert run(["preview"]) == 2
    assert "bedplate plan --write" in capsys.readouterr().err
    assert not (folder / "fleet.lock").exists()
