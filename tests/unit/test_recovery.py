"""Recovery after a killed run: the repaired state, locks of dead and live runs, and what needs a decision."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.cli import run
from bedplate.deploy.state import (
    LockHolder,
    Repair,
    known_ids,
    lock_holders,
    recovered,
    remove_damaged_files,
    unfinished_operations,
    unread_urns,
)
from bedplate.operate import recover
from tests.testlab.engine.folder import edited, make_folder
from tests.testlab.rehearsal.programs import EXAMPLES

VALUES = {"111122223333": "210987654321", "lab.example": "lab.internal", "IOMqqn": "IOMqqm", "g6.xlarge": "m7i.xlarge"}
VPC, SUBNET, UNKNOWN = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:lex/bot:Bot"
PROVIDER = "urn:pulumi:solo.shared::bedplate::pulumi:providers:aws::us-west-2"
ROOT = {"urn": "urn:pulumi:solo.shared::bedplate::pulumi:pulumi:Stack::bedplate-solo.shared"}


def resource(kind: str, **values: object) -> dict[str, Any]:
    """Return a resource named lab as the engine stores it."""
    urn = f"urn:pulumi:solo.shared::bedplate::{kind}::lab"
    return {"urn": urn, "type": kind, "inputs": {"cidrBlock": "10.0.0.0/16"}, "provider": f"{PROVIDER}::1"} | values


def state(*resources: dict[str, Any], pending: tuple[tuple[str, dict[str, Any]], ...] = ()) -> dict[str, Any]:
    """Return a deployment with a provider, resources, and unfinished operations."""
    provider = {"urn": PROVIDER, "type": "pulumi:providers:aws", "id": "1", "inputs": {"region": "us-west-2"}}
    operations = [{"type": kind, "resource": of} for kind, of in pending]
    root = {**ROOT, "type": "pulumi:pulumi:Stack"}
    return {"resources": [root, provider, *resources], "pending_operations": operations}


def test_an_operation_has_the_region_of_its_provider_or_its_own() -> None:
    """A resource can be in another region than its provider. A second run may repeat an operation."""
    twice = ("creating", resource(VPC))
    pending = (twice, twice, ("creating", resource(SUBNET, inputs={"region": "eu-north-1"})))

    operations = unfinished_operations(state(pending=pending))

    assert [(operation.type, operation.region) for operation in operations] == [
        (VPC, "us-west-2"),
        (SUBNET, "eu-north-1"),
    ]


def test_a_created_object_is_added_to_the_state_and_marked_as_unread() -> None:
    """The state keeps the inputs of the operation. Other operations are forgotten."""
    before = state(pending=(("creating", resource(VPC)), ("updating", resource(SUBNET))))
    creation, update = unfinished_operations(before)

    after = recovered(before, [Repair(creation, ("vpc-1",)), Repair(update)])

    added = after["resources"][-1]
    assert (added["id"], added["inputs"], len(after["resources"])) == ("vpc-1", {"cidrBlock": "10.0.0.0/16"}, 3)
    assert (after["pending_operations"], unread_urns(after), len(before["resources"])) == ([], (added["urn"],), 2)
    del added["initErrors"]  # as a refresh does
    assert not unread_urns(after)


@pytest.mark.parametrize(
    ("old", "ids"),
    [({}, [("vpc-2", False), ("vpc-1", True)]), ({"pendingReplacement": True}, [("vpc-2", False)])],
    ids=["old one deleted later", "old one already deleted"],
)
def test_a_replacement_goes_before_what_it_replaces(old: dict[str, bool], ids: list[tuple[str, bool]]) -> None:
    """The engine deletes the old resource in the next run; it refuses a state in another order."""
    before = state(resource(VPC, id="vpc-1", **old), pending=(("creating", resource(VPC)),))

    after = recovered(before, [Repair(unfinished_operations(before)[0], ("vpc-2",))])

    assert [(entry["id"], entry.get("delete", False)) for entry in after["resources"][2:]] == ids
    assert known_ids(before, VPC) == (frozenset() if old else {"vpc-1"})


HOLDERS = (
    "error: the stack is currently locked by 1 lock(s).\n  file:///x.json: created by {}@{} (pid {}) at 2026-11-22T21Z"
)


@pytest.fixture
def live_engine(tmp_path: Path) -> Iterator[int]:
    """Return the process id of a program named pulumi."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pulumi").symlink_to("/bin/sleep")
    with subprocess.Popen([tmp_path / "bin/pulumi", "60"]) as process:
        yield process.pid
        process.kill()


def test_a_lock_names_its_holder(live_engine: int) -> None:
    """A process of this machine is dead if another program has its number; nothing is known of other machines."""
    host = os.uname().nodename
    (holder,) = lock_holders(HOLDERS.format("ada", host, live_engine))

    assert str(holder) == f"ada@{host}, process {live_engine}, since 2026-11-22T21Z"
    assert holder.lives_here()
    assert not LockHolder("ada", host, os.getpid(), "").lives_here()
    assert not LockHolder("ada", "elsewhere", live_engine, "").lives_here()


def test_incomplete_metadata_of_a_file_backend_is_deleted(tmp_path: Path) -> None:
    """Pulumi writes it in place; with an empty file it cannot read the stack, without the file it can."""
    stacks = tmp_path / ".pulumi/stacks/bedplate"
    stacks.mkdir(parents=True)
    for name, text in {"a.json": "", "a.json.attrs": "", "b.json.attrs": '{"user', "c.json.attrs": "{}"}.items():
        (stacks / name).write_text(text)

    assert remove_damaged_files(tmp_path) == ("a.json.attrs", "b.json.attrs")
    assert sorted(path.name for path in stacks.iterdir()) == ["a.json", "c.json.attrs"]


PULUMI = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
case "$*" in
  version) echo v3.272.0 ;;
  *whoami*) echo '{"user": "x", "url": "s3://bucket"}' ;;
  *"stack ls"*) cat stacks.json ;;
  *"stack export"*solo.shared*) cat export.solo.shared.json 2>/dev/null || cat export.json ;;
  *"stack export"*) cat export.json ;;
  *cancel*) rm locked ;;
  *) [ -e locked ] || exit 0; cat locked >&2; exit 255 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet folder with a stand-in for `pulumi` on PATH, and the stack solo.shared."""
    files = {
        "Pulumi.solo.shared.yaml": "encryptionsalt: v1\n",
        "export.json": json.dumps({"version": 3, "deployment": state()}),
        "stacks.json": '[{"name": "solo.shared", "current": false, "resourceCount": 9}]',
        "fleet.yaml": edited(EXAMPLES / "minimal.yaml", VALUES),
    }
    monkeypatch.setattr(recover, "open_account", lambda _plan: None)
    return make_folder(tmp_path, monkeypatch, PULUMI, files)


def test_the_lock_of_a_dead_run_is_released(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is changed if no operation is unfinished. Without a terminal --yes is required."""
    (folder / "locked").write_text(HOLDERS.format("ada", os.uname().nodename, 999_999_999))

    assert run(["recover"]) == 2
    assert run(["recover", "--yes"]) == 0

    assert capsys.readouterr().out == "solo.shared: no unfinished operation\n`bedplate up` continues\n"
    assert not (folder / "locked").exists()
    assert "stack import" not in (folder / "calls").read_text()


def test_a_provider_that_was_being_created_is_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is nothing in AWS: `up` creates it."""
    east = {"urn": PROVIDER.replace("us-west-2", "us-east-1"), "type": "pulumi:providers:aws", "inputs": {}}
    pending = (("creating", east),)
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": state(pending=pending)}))

    assert run(["recover", "--yes", "--json"]) == 0

    output, errors = capsys.readouterr()
    line = "creating pulumi:providers:aws us-east-1: not in AWS, `up` creates it"
    assert json.loads(output) == {"stacks": {"solo.shared": [line]}, "errors": {}}
    assert f"  {line}\n" in errors
    assert "stack import" in (folder / "calls").read_text()


def test_a_stack_that_cannot_be_decided_stops_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other stacks are repaired first, and the exit status is 6."""
    undecided = json.dumps({"version": 3, "deployment": state(pending=(("creating", resource(UNKNOWN)),))})
    (folder / "export.solo.shared.json").write_text(undecided)
    names = [{"name": f"solo.{part}", "current": False, "resourceCount": 9} for part in ("shared", "us-west-2")]
    (folder / "stacks.json").write_text(json.dumps(names))
    (folder / "Pulumi.solo.us-west-2.yaml").write_text("encryptionsalt: v1\n")

    assert run(["recover", "--yes"]) == 6

    output, errors = capsys.readouterr()
    assert "solo.us-west-2: no unfinished operation" in output
    assert "solo.shared was not changed" in errors
    assert run(["recover", "--yes", "--json"]) == 6
    output, errors = capsys.readouterr()
    what = "solo.shared was not changed: an object of the killed run is not known"
    assert json.loads(output) == {"stacks": {"solo.us-west-2": []}, "errors": {"solo.shared": what}}
    assert "solo.us-west-2: no unfinished operation" in errors


def test_the_lock_of_a_live_run_is_kept(folder: Path, live_engine: int, capsys: pytest.CaptureFixture[str]) -> None:
    """On another machine only an operator can tell, so --yes is not enough there."""
    for host, message in {os.uname().nodename: "locked by a live run", "elsewhere": "without --yes"}.items():
        (folder / "locked").write_text(HOLDERS.format("ada", host, live_engine))

        assert run(["recover", "--yes"]) == 5

        assert message in capsys.readouterr().err
        assert (folder / "locked").exists()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(UNKNOWN, "bedplate cannot search this type in AWS"), (VPC, "several objects in AWS: vpc-1, vpc-2")],
)
def test_an_operation_that_cannot_be_decided_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, reason: str
) -> None:
    """No stack of bedplate declares the type, or two objects fit. The other operations stay, too."""
    pending = (("updating", resource(SUBNET)), ("creating", resource(kind)))
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": state(pending=pending)}))
    monkeypatch.setattr(recover, "find_ids", lambda _client, _creation: ("vpc-1", "vpc-2"))

    assert run(["recover", "--yes"]) == 6

    output, errors = capsys.readouterr()
    assert f"  creating {kind} lab: {reason}\n" in output
    assert "solo.shared was not changed" in errors
    assert "stack import" not in (folder / "calls").read_text()
