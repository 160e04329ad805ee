"""`bedplate hub status`, `logs`, `restore` and `rotate`, with the hub behind a fake ssh."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from bedplate.account.client import AwsClient
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import PartialError
from bedplate.operate import Operator, plan_of
from bedplate.operate.hub import journal_command, refuse_tokens

HUB = "hub.us-west-2"
RUN, TREE = "a" * 32, "b" * 40
FACTS = "version.mlflow 3.5.1\nruns 12\nunit.nginx active\nclient.ada@10.0.0.5 4\nbytes.ada 5\n"
LIST = "backup 20261125T020000Z\nbackup 20261126T020000Z\nruns 12\nnewest 20261126T110000Z\n"
_SSH = """#!/bin/bash
echo "${{@: -1}}" >> {folder}/calls
[[ ! -e {folder}/away ]] || {{ echo "ssh: connect to host hub port 22: Connection timed out" >&2; exit 255; }}
case ${{@: -1}} in
*"hub-backup status"*) cat {folder}/status ;;
*"hub-backup list"*) cat {folder}/list ;;
*"hub-backup leaked"*) cat {folder}/leaked ;;
*"hub-backup old"*) cat {folder}/old ;;
*" restore "*) [[ ! -e {folder}/broken ]] || {{ echo "hub-backup: the records of before serve again" >&2; exit 1; }} ;;
esac
"""


@pytest.fixture
def hub(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a hub without faults; the fleet file is in the current folder."""
    assert run(["plan", str(here), "--write"]) == 0
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "ssh").write_text(_SSH.format(folder=folder))
    (folder / "ssh").chmod(0o755)
    (folder / "status").write_text(FACTS)
    (folder / "list").write_text(LIST)
    (folder / "leaked").write_text("")
    (folder / "old").write_text(
        "until 1795000000\n2000000 ./packs/ada/x.pack\n500000 ./1/x/artifacts/logs\n2500000 total\n"
    )
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def calls(hub: Path) -> list[str]:
    """Return the commands that the hub got, without questions."""
    lines = (hub / "calls").read_text().splitlines() if (hub / "calls").exists() else []
    found = [shlex.split(line)[-1] for line in lines]
    return [line for line in found if not re.search(" (list|status|leaked .*|old .*)$", line)]


def test_status_shows_what_the_hub_reports(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3 with a fault, which comes last; one document with --json."""
    capsys.readouterr()
    assert run(["hub", "status"]) == 0
    assert "version.mlflow: 3.5.1\nruns: 12\n" in capsys.readouterr().out
    (hub / "status").write_text(f"fault the copy to elsewhere failed\n{FACTS}")

    assert run(["hub", "status", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["client.ada@10.0.0.5"] == "4"
    assert document["faults"] == ["the copy to elsewhere failed"]
    assert run(["hub", "status"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "fault: the copy to elsewhere failed"


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ((), "20261126T020000Z"),
        (("--at", "20261125T020000Z"), "20261125T020000Z"),
        (("--at", "2026-11-26T01:59"), "20261125T020000Z"),
    ],
    ids=["newest", "by name", "by time"],
)
def test_a_restore_takes_the_last_backup_up_to_a_time(
    at: tuple[str, ...], name: str, hub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a unit that outlives the connection; what will be lost is said before the question."""
    capsys.readouterr()

    assert run(["hub", "restore", *at, "--yes"]) == 0

    (call,) = calls(hub)
    assert call.startswith("systemd-run ")
    assert call.endswith(f"/usr/local/lib/bedplate/hub-backup restore {name}")
    output = capsys.readouterr().out
    assert f"backup {name} (this one)" in output
    assert f"what was recorded after {name} is lost" in output
    assert run(["hub", "restore", *at, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["restored"] == name


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        ((), LIST, "there is no terminal to confirm this on"),
        (("--at", "2026-11-01", "--yes"), LIST, "the oldest is 20261125T020000Z"),
        (("--at", "yesterday", "--yes"), LIST, "no time: yesterday"),
        (("--yes",), "runs 0\n", "hub.us-west-2 has no backup"),
        (("--yes",), "backup ../../etc\n", "invalid answer"),
    ],
    ids=["not asked", "too early", "no time", "none", "no name"],
)
def test_a_restore_that_cannot_be_meant_changes_nothing(
    words: tuple[str, ...], answer: str, message: str, hub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without consent, and without a backup up to that time."""
    (hub / "list").write_text(answer)

    assert run(["hub", "restore", *words]) != 0

    assert message in capsys.readouterr().err
    assert not calls(hub)


def test_a_restore_that_fails_says_why(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's own words, and what shows more."""
    (hub / "broken").touch()

    assert run(["hub", "restore", "--yes"]) == 6

    assert "the records of before serve again" in capsys.readouterr().err


def test_rotation_asks_before_it_ends_the_tokens_of_runs(hub: Path) -> None:
    """Only with --now."""
    assert run(["hub", "rotate"]) == 0
    assert run(["hub", "rotate", "--now"]) == 2
    assert run(["hub", "rotate", "--now", "--yes"]) == 0

    assert [call.split("hub-backup ")[1] for call in calls(hub)] == ["rotate", "rotate now"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], set[str]]]:
    """Yield a function that returns the keys of all versions in the hub's bucket of a simulated account."""
    name = "lab-hub-111122223333-us-west-2"
    with mock_aws():
        s3 = boto3.client("s3", "us-west-2")
        monkeypatch.setattr(
            "bedplate.operate.hub.open_account", lambda _: AwsClient(boto3.session.Session("testing", "testing"))
        )
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        for key in (f"files/{HUB}/1/{RUN}/artifacts/a", f"files/{HUB}/packs/ada/{TREE}-0.pack", f"dumps/{HUB}/1.dump"):
            for body in (b"1", b"2"):
                s3.put_object(Bucket=name, Key=key, Body=body)
        s3.delete_object(Bucket=name, Key=f"files/{HUB}/1/{RUN}/artifacts/a")

        def keys() -> set[str]:
            listed = s3.list_object_versions(Bucket=name)
            return {entry["Key"] for part in ("Versions", "DeleteMarkers") for entry in listed.get(part, ())}

        yield keys


def test_a_purge_of_a_run_deletes_all_versions_of_its_backups(
    hub: Path, bucket: Callable[[], set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it deletes, asks, and deletes dumps too, since each has the record; a tree's packs stay."""
    (hub / "leaked").write_text(f"file /srv/hub/artifacts/1/{RUN}\nrun {RUN}\n")
    assert run(["hub", "purge", RUN]) == 2
    assert (calls(hub), len(bucket())) == ([], 3)
    capsys.readouterr()

    assert run(["hub", "purge", RUN, "--yes"]) == 0

    output = capsys.readouterr().out
    assert f"file /srv/hub/artifacts/1/{RUN}\nrun {RUN}\n5 versions in the bucket\n" in output
    assert "all backups of records" in output
    call, last = calls(hub)
    assert call.endswith(f"flock /run/bedplate-hub-backup.lock /usr/local/lib/bedplate/hub-backup purge {RUN}")
    assert last == "systemctl start --no-block bedplate-hub-backup"
    assert bucket() == {f"files/{HUB}/packs/ada/{TREE}-0.pack"}


def test_a_purge_goes_on_with_the_bucket_after_a_failure(
    hub: Path, bucket: Callable[[], set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub has nothing of the tree any more; records and dumps stay."""
    assert run(["hub", "purge", TREE, "--yes"]) == 0

    assert "these runs stay, without their code" in capsys.readouterr().out
    assert bucket() == {f"files/{HUB}/1/{RUN}/artifacts/a", f"dumps/{HUB}/1.dump"}


@pytest.mark.parametrize("word", ["0" * 40, "0" * 32, "$(reboot)", "ada-1127-brave-otter"])
def test_a_purge_of_nothing_is_refused(
    word: str, hub: Path, bucket: Callable[[], set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2; a word that is no id does not reach the hub's shell."""
    assert run(["hub", "purge", word, "--yes"]) == 2

    assert f"no tree or run{'' if word.startswith('0') else ':'} {word}" in capsys.readouterr().err
    assert (calls(hub), len(bucket())) == ([], 3)
    assert "reboot" not in ((hub / "calls").read_text() if (hub / "calls").exists() else "")


def test_a_prune_says_what_it_deletes_and_how_much(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks, and deletes what is older than the moment for which it was listed; backups keep their copies."""
    assert run(["hub", "prune", "--older", "90d"]) == 2
    assert run(["hub", "prune", "--older", "90d", "--dry-run"]) == 0
    assert not calls(hub)
    capsys.readouterr()

    assert run(["hub", "prune", "--older", "90d", "--yes"]) == 0

    output = capsys.readouterr().out
    assert output.startswith("2.00 MB ./packs/ada/x.pack\n0.50 MB ./1/x/artifacts/logs\n2.50 MB total\nbackups keep")
    assert output.endswith("hub.us-west-2 has 2.50 MB less\n")
    (call,) = calls(hub)
    assert call.endswith("flock /run/bedplate-hub-backup.lock /usr/local/lib/bedplate/hub-backup prune 1795000000")
    assert "hub-backup old 90" in (hub / "calls").read_text()


def test_a_prune_of_nothing_asks_nothing(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so."""
    (hub / "old").write_text("until 1795000000\n0 total\n")

    assert run(["hub", "prune", "--older", "90d"]) == 0

    assert "stays as it is" in capsys.readouterr().out
    assert not calls(hub)


@pytest.mark.parametrize("word", ["90", "0d", "-1d", "1h", "$(reboot)d", "90d;reboot", "٣d"])
def test_a_prune_needs_a_number_of_days(word: str, hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and nothing reaches the hub."""
    assert run(["hub", "prune", f"--older={word}", "--yes"]) == 2

    assert "write a number and d" in capsys.readouterr().err
    assert not (hub / "calls").exists()


def test_the_tokens_of_a_person_end_at_once(hub: Path, here: Path) -> None:
    """A hub that does not answer is named."""
    operator: Operator = Terminal(here)
    refuse_tokens(operator, plan_of(operator), 20001)
    assert calls(hub) == ["bedplate-hub remove 20001"]
    (hub / "away").touch()

    with pytest.raises(PartialError, match=r"the tokens of the hub: hub\.us-west-2: no response on the SSH port"):
        refuse_tokens(operator, plan_of(operator), 20001)


def test_removal_of_a_person_ends_their_tokens(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also before their lines are deleted; status 6 names those lines, and the hub if it is away."""
    assert run(["person", "remove", "grace"]) == 6
    assert calls(hub) == ["bedplate-hub remove 20001"]
    assert "the tokens of the hub" not in capsys.readouterr().err
    (hub / "away").touch()

    assert run(["person", "remove", "grace"]) == 6

    assert "not done: the tokens of the hub: hub.us-west-2: no response" in capsys.readouterr().err


def test_the_journal_is_that_of_all_units_or_of_one() -> None:
    """New lines follow if that is asked for."""
    assert "--unit=mlflow" in journal_command(None, follows=False)
    assert journal_command("nginx", follows=True)[-2:] == ("--unit=nginx", "--follow")


def test_a_fleet_without_a_hub_is_named(hub: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2."""
    here.write_text("".join(line for line in here.read_text().splitlines(keepends=True) if not line.startswith("hub:")))

    assert run(["hub", "status"]) == 2

    assert "the fleet has no hub" in capsys.readouterr().err
