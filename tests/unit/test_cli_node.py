"""`bedplate node list`, `apply`, `bootstrap` and `ssh-config` without reachable machines (those are in tests/nodes)."""

import base64
import hashlib
import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from botocore.response import StreamingBody

from bedplate.cli import run
from bedplate.lock import record_baked, record_host_keys
from tests.conftest import Expect
from tests.testlab.fakes.aws import StubbedSession
from tests.testlab.fakes.hostile import HOSTILE
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

OLD, NEW = "ami-00000000000000001", "ami-00000000000000002"
SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"

pytestmark = pytest.mark.usefixtures("here")


def test_the_machines_of_the_plan_are_listed(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each permanent machine and each pool; machines with a recorded host key are marked."""
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)

    assert run(["node", "list"]) == 0

    output = capsys.readouterr().out
    expect("cli/node-list-lab.txt", output)
    assert max(len(line) for line in output.splitlines()) <= 100


def test_programs_read_every_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Including those of pools, each with its name."""
    assert run(["node", "list", "--json"]) == 0

    nodes = {node["name"]: node for node in json.loads(capsys.readouterr().out)["nodes"]}
    assert nodes["nas.cellar"]["address"] == "192.168.40.5"
    assert not nodes["workbench-gpu-8.us-east-1"]["standing"]


def test_machines_that_run_are_asked_of_the_account(
    account: StubbedSession, expect: Expect, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each machine has its group, registered name, address, state and status; other regions have none."""
    _answer_groups(account)
    _answer_status(account, '{"ok": true, "sentence": "up to date", "time": 4102444800}')

    assert run(["node", "list", "--live"]) == 0

    expect("cli/node-list-live.txt", capsys.readouterr().out)


@pytest.mark.parametrize(("key", "mark"), [(KEY, "*"), (OTHER, " "), (None, " ")], ids=["its own", "former", "none"])
def test_machines_that_run_are_marked_when_their_own_key_is_known(
    key: str | None, mark: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key of an earlier machine with the same name does not count; the output names the next command."""
    if key:
        record_host_keys(Path("fleet.lock"), "lab", "workbench-cpu-2.us-west-2", (key,), replace_known=False)
    blob = base64.b64decode(KEY.split()[1])
    _answer_groups(account, hashlib.sha256(blob).hexdigest())
    _answer_status(account)

    assert run(["node", "list", "--live"]) == 0

    output = capsys.readouterr().out
    assert "no status yet" in output
    assert [line[0] for line in output.splitlines() if "workbench-cpu-2.us-west-2" in line] == [mark]
    assert ("next: `bedplate node trust --group workbench-cpu`" in output) is (mark == " ")


@pytest.mark.parametrize("recorded", [OLD, NEW])
def test_machines_on_an_older_image_are_marked(
    recorded: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is, on another one than fleet.lock has for their kind and region."""
    record_baked(Path("fleet.lock"), "lab", {"us-west-2/workbench-x86_64": recorded})
    _answer_groups(account)
    _answer_status(account)

    assert run(["node", "list", "--live"]) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if "older image" in line]
    assert [line.split()[1] for line in lines] == ["workbench-cpu-2.us-west-2"] * (recorded == NEW)


def test_machines_of_a_group_are_those_that_serve_in_it_now(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list has registered names; machines that are still starting are left out."""
    _answer_groups(account)

    assert run(["node", "apply", "--group", "workbench-cpu", "--check", "--json"]) == 6

    assert list(json.loads(capsys.readouterr().out)["nodes"]) == ["workbench-cpu-2.us-west-2"]


def test_a_group_in_which_nobody_serves_is_told(
    here: Path, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0, and a note on stderr says that no machine runs."""
    _answer_groups(account)

    assert run(["node", "apply", "--group", "workbench-gpu", "--check"]) == 0

    assert "no running machine in workbench-gpu" in capsys.readouterr().err


def _answer_groups(account: StubbedSession, sshfp: str = "") -> None:
    home = "us-west-2"
    zone = {"Id": "/hostedzone/Z1", "Name": "lab.internal.", "CallerReference": "c", "Config": {"PrivateZone": True}}
    public = {**zone, "Id": "/hostedzone/Z2", "Config": {"PrivateZone": False}}
    rest = {"IsTruncated": False, "MaxItems": "100"}
    account.answers(
        "route53", home, "list_hosted_zones_by_name", {"HostedZones": [zone, public], **rest}, DNSName="lab.internal"
    )
    owner = {
        "Name": "workbench-cpu-2.us-west-2.lab.internal.",
        "Type": "TXT",
        "ResourceRecords": [{"Value": '"i-0000000000000000b"'}],
    }
    print_of_key = {**owner, "Type": "SSHFP", "ResourceRecords": [{"Value": f"4 2 {sshfp}"}]}
    records = {"ResourceRecordSets": [owner, print_of_key] if sshfp else [owner], **rest}
    account.answers("route53", home, "list_resource_record_sets", records, HostedZoneId="Z1")
    for region, members in (("us-west-2", ("a", "b")), ("us-east-1", ()), ("eu-north-1", ())):
        account.answers(
            "autoscaling", region, "describe_auto_scaling_groups", _groups(region, members), **_asked(region)
        )
        if members:
            filters = [{"Name": "instance-id", "Values": [f"i-0000000000000000{member}" for member in members]}]
            booked = [{"InstanceId": "i-0000000000000000b", "PrivateIpAddress": "10.64.33.7", "ImageId": OLD}]
            account.answers(
                "ec2", region, "describe_instances", {"Reservations": [{"Instances": booked}]}, Filters=filters
            )


def _answer_status(account: StubbedSession, text: str = "") -> None:
    """Answer with the status of one of the machines in the home region, and with that of a terminated machine."""
    bucket = {"Bucket": "lab-nodes-111122223333-us-west-2"}
    keys = [f"status/AROA1:i-0000000000000000{suffix}/{file}.json" for suffix in ("9", "b") for file in ("gate", "run")]
    listed = {"Contents": [{"Key": key} for key in keys] if text else [], "IsTruncated": False}
    account.answers("s3", "us-west-2", "list_objects_v2", listed, Prefix="status/", **bucket)
    if text:
        body = StreamingBody(BytesIO(text.encode()), len(text))
        account.answers("s3", "us-west-2", "get_object", {"Body": body}, Key=keys[-1], **bucket)


@pytest.mark.parametrize("text", ["deep list", "infinite", "400 digits", "too large"])
def test_one_hostile_status_is_unreadable(
    text: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each user of a machine may write it, so it may contain anything; the other machines are listed."""
    _answer_groups(account)
    _answer_status(account, HOSTILE[text].decode())

    assert run(["node", "list", "--live"]) == 0

    output = capsys.readouterr().out.splitlines()
    assert len([line for line in output if line.endswith(" unreadable status")]) == 1
    assert any(line.endswith(" no status yet") for line in output)


def _asked(region: str) -> dict[str, list[str]]:
    pools = [pool.name for pool in plan_of(EXAMPLES / "lab.yaml").pools if pool.region == region]
    return {"AutoScalingGroupNames": [f"lab-{name}" for name in pools]}


def _groups(region: str, members: tuple[str, ...]) -> dict[str, object]:
    instances = [
        {
            "InstanceId": f"i-0000000000000000{member}",
            "AvailabilityZone": f"{region}a",
            "InstanceType": "m7i.4xlarge",
            "LifecycleState": "InService" if member == "b" else "Pending:Wait",
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }
        for member in members
    ]
    group = {
        "AutoScalingGroupName": "lab-workbench-cpu-us-west-2",
        "MinSize": 1,
        "MaxSize": 20,
        "DesiredCapacity": 2,
        "DefaultCooldown": 300,
        "AvailabilityZones": [f"{region}a"],
        "HealthCheckType": "EC2",
        "CreatedTime": "2026-11-21T00:00:00Z",
        "Instances": instances,
    }
    return {"AutoScalingGroups": [group] if members else []}


def test_the_first_boot_script_is_whole(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """The script begins with the values of the machine, and bash accepts it."""
    assert run(["node", "bootstrap", "titan-01.cellar"]) == 0

    script = capsys.readouterr().out
    expect("cli/node-bootstrap.txt", script.partition("# Bootstrap of a machine")[0])
    subprocess.run([SHELLCHECK, "--severity=style", "-"], input=script, text=True, check=True)


def test_a_machine_of_the_cloud_needs_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2: EC2 instances configure themselves at first boot."""
    assert run(["node", "bootstrap", "control-1.us-west-2"]) == 2
    assert "is an EC2 instance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no machine selected"),
        (["titan-1.cellar"], "write titan-01.cellar"),
        (["--site", "celar"], "write cellar"),
        (["--group", "trian"], "write train"),
        (["nas.cellar", "--role", "baselin"], "write baseline"),
        (["nas.cellar", "--identity", "none"], "no such file"),
    ],
    ids=["nobody", "machine", "site", "group", "role", "key"],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the most similar name."""
    assert run(["node", "apply", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_machine_without_a_known_key_is_refused_and_named(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown host key is not accepted; the table names the command that records it."""
    assert run(["node", "apply", "titan-01.cellar", "nas.cellar", "--check"]) == 6

    expect("cli/node-apply-untrusted.txt", capsys.readouterr().out)


def test_ids_that_the_lock_lacks_reach_no_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`node apply` requires recorded user ids: a later person could get the same one."""
    monkeypatch.setattr("bedplate.operate.apply.apply_order", pytest.fail)
    run(["plan", "--write"])
    fleet = Path("fleet.yaml")
    alan = f'people:\n  alan: {{keys: ["{KEY}"], groups: [sound]}}\n'
    fleet.write_text(fleet.read_text(encoding="utf-8").replace("people:\n", alan), encoding="utf-8")

    assert run(["node", "apply", "nas.cellar"]) == 2

    errors = capsys.readouterr().err
    assert "error: not recorded in fleet.lock: alan, sound" in errors
    assert "fix  run `bedplate plan --write fleet.yaml` first" in errors


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not recorded"])
def test_a_look_needs_no_lock(capsys: pytest.CaptureFixture[str], *, is_recorded: bool) -> None:
    """`--check` changes nothing and works before `plan --write`."""
    if is_recorded:
        run(["plan", "--write"])

    assert run(["node", "apply", "nas.cellar", "--check"]) == 6
    assert "its host key is not recorded" in capsys.readouterr().out


def test_programs_read_what_became_of_each_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON document, also after errors."""
    run(["plan", "--write"])
    capsys.readouterr()

    assert run(["node", "apply", "nas.cellar", "--json"]) == 6

    entry = json.loads(capsys.readouterr().out)["nodes"]["nas.cellar"]
    assert (entry["status"], entry["what"]) == ("refused", "its host key is not recorded")


def test_a_machine_without_ssh_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 4: the operator's machine lacks ssh."""
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)
    monkeypatch.setenv("PATH", "/nonexistent")

    assert [run(["node", word, "nas.cellar"]) for word in ("apply", "audit")] == [4, 4]
    assert "ssh is not installed" in capsys.readouterr().err


def test_a_person_without_a_name_may_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In containers and CI runners the user id has no name."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)

    assert run(["node", "apply", "nas.cellar", "--check"]) == 6
    assert "its host key is not recorded" in capsys.readouterr().out


pytestmark = pytest.mark.usefixtures("here")


def test_the_ssh_configuration_is_written_with_the_keys_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output counts the machines without a recorded host key."""
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)

    assert run(["node", "ssh-config", "--write", str(tmp_path / "lab"), "--user", "ada"]) == 0

    assert (tmp_path / "lab.known_hosts").read_text() == f"nas.cellar.lab.internal,192.168.40.5 {KEY}\n"
    assert f'UserKnownHostsFile "{tmp_path}/lab.known_hosts"' in (tmp_path / "lab").read_text()
    assert "45 of 46 machines" in capsys.readouterr().err


def test_a_printed_ssh_configuration_says_where_its_host_keys_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note appears if the file of host keys is missing or outdated."""
    monkeypatch.setenv("HOME", str(tmp_path))
    written, outputs = tmp_path / ".ssh/bedplate", []
    written.parent.mkdir()

    for words in ([], ["--write", str(written)], []):
        assert run(["node", "ssh-config", *words]) == 0
        outputs.append(capsys.readouterr())
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)
    assert run(["node", "ssh-config"]) == 0

    assert [f"`bedplate node ssh-config --write {written}` writes both" in output.err for output in outputs] == [
        True,
        False,
        False,
    ]
    assert outputs[2].out == written.read_text()
    assert "writes both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("me", "user", "note"),
    [("ada", "ada", False), ("grace", "grace", False), ("nobody", "ubuntu", True)],
    ids=["administrator", "person", "stranger"],
)
def test_an_ssh_configuration_logs_in_as_whoever_asks(
    me: str, user: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, note: bool
) -> None:
    """The login name is the operator's if the fleet file has it; else a note names the one that is used."""
    monkeypatch.setenv("LOGNAME", me)

    assert run(["node", "ssh-config"]) == 0

    output = capsys.readouterr()
    assert output.out.count(f"  User {user}\n") == 1
    assert ("no person named" in output.err) is note


def test_a_key_to_log_in_with_is_named_from_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path of the key is absolute; a missing file is refused."""
    Path("key").touch()

    assert [run(["node", "ssh-config", "--identity", name]) for name in ("key", "none")] == [0, 2]

    assert f'IdentityFile "{Path.cwd()}/key"' in capsys.readouterr().out


def test_an_ssh_configuration_of_ones_own_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only files that bedplate wrote are overwritten, so ~/.ssh/config is safe."""
    own, ours = tmp_path / "config", tmp_path / "bedplate"
    own.write_text("Host mine\n")

    done = [run(["node", "ssh-config", "--write", str(file)]) for file in (own, ours, ours)]

    assert (done, own.read_text()) == ([2, 0, 0], "Host mine\n")
    assert "Include" in capsys.readouterr().err
    assert not (tmp_path / "config.known_hosts").exists()


def test_a_folder_is_refused_before_host_keys_lie_beside_it(tmp_path: Path) -> None:
    """The configuration and its host keys are written together or not at all."""
    folder = tmp_path / "ssh"
    folder.mkdir()

    assert run(["node", "ssh-config", "--write", str(folder)]) == 4
    assert list(tmp_path.glob("ssh*")) == [folder]
