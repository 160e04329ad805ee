"""The commands of the control plane with members that answer by a fake ssh. Real members: tests/kubernetes."""

import json
import stat
from pathlib import Path

import pytest

from bedplate.cli import kube_nodes, run
from bedplate.cli.fleet import plan_of
from bedplate.cli.kube_session import make_authorities
from bedplate.errors import InputError
from bedplate.files import held
from bedplate.lock import lock_path, read_lock
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.rehearsal.programs import EXAMPLES
from vpn.pki import folder_of

NAMES = tuple(f"control-{number}.us-west-2" for number in (1, 2, 3))
_SSH = """#!/bin/bash
host=${{@: -2:1}} command=${{@: -1}}
folder={folder}/$host
[[ -d $folder ]] || {{ echo "ssh: connect to host $host port 22: Connection timed out" >&2; exit 255; }}
echo "$command" >>"$folder/calls"
cat >"$folder/stdin"
case $command in
*status | *nodes) cat "$folder/${{command##* }}" ;;
*"token create"*) cat "$folder/token" ;;
*bedplate-worker*) echo joined the cluster ;;
*"apt-get "*) [[ -e $folder/broken ]] || sed -i "s/^$host v[^ ]*/$host v1.36.3/" {folder}/*/nodes ;;
esac
exit "$(cat "$folder/exit" 2>/dev/null || echo 0)"
"""
BLANK = {
    "authority": "",
    "has_data": False,
    "is_restoring": False,
    "is_ready": False,
    "version": "v1.36.3",
    "etcd": None,
}
STARTED = {"members": [{"name": name, "clientURLs": ["https://10.0.0.1:2379"]} for name in NAMES]}


@pytest.fixture
def members(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of three blank members; the plan of the fleet is recorded."""
    assert run(["plan", str(lab), "--write"]) == 0
    folder, tools = tmp_path / "members", tmp_path / "tools"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        report(folder, name)
    tools.mkdir()
    (tools / "ssh").write_text(_SSH.format(folder=folder))
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return folder


def report(folder: Path, name: str, **changes: object) -> None:
    """Set what a member reports."""
    (folder / name / "status").write_text(json.dumps(BLANK | changes))


def calls(folder: Path, name: str) -> list[str]:
    """Return the commands that a member got, without questions about its status."""
    file = folder / name / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.removeprefix("sudo -n bedplate-member ") for line in lines if not line.endswith("status")]


def test_init_gives_every_member_the_authorities(members: Path, lab: Path) -> None:
    """The lock has the certificate, which node documents repeat; only the operator can read keys and kubeconfig."""
    assert run(["kube", "init", str(lab)]) == 0

    assert all(calls(members, name) == ["take", "ready", "finish"] for name in NAMES)
    assert len({(members / name / "calls").read_text() for name in NAMES}) == 1
    assert read_lock(lock_path(lab), "lab").authority.startswith("-----BEGIN CERTIFICATE-----\n")
    keys = folder_of(lab).keys
    assert {stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir()} == {0o600}
    assert (keys / "admin.kubeconfig").exists()
    assert "keys/" in (folder_of(lab).path / ".gitignore").read_text()


def test_init_after_init_changes_nothing(members: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Members that run with the recorded authority get no command."""
    plan = plan_of(lab)
    authority = make_authorities(lab, plan, None).digest
    for name in NAMES:
        report(members, name, authority=authority, is_ready=True, has_data=True, etcd=STARTED)

    assert run(["kube", "init", str(lab)]) == 0

    assert not any(calls(members, name) for name in NAMES)
    assert "control plane: runs" in capsys.readouterr().out


def test_init_continues_without_a_member(members: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of three form the cluster; one of three is started, but cannot be ready yet."""
    (members / NAMES[2]).rename(members / "away")
    assert run(["kube", "init", str(lab)]) == 6
    assert "control-3.us-west-2 not reached" in capsys.readouterr().err
    assert calls(members, NAMES[0]) == ["take", "ready", "finish"]

    (members / NAMES[1]).rename(members / "away too")
    (members / NAMES[0] / "calls").unlink()
    assert run(["kube", "init", str(lab)]) == 6
    assert calls(members, NAMES[0]) == ["take"]


def test_a_member_with_a_new_volume_is_not_started(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Etcd has seen it running: only `member replace` may start it, through a member that runs."""
    authority = make_authorities(lab, plan_of(lab), None).digest
    for name in NAMES[:2]:
        report(members, name, authority=authority, is_ready=True, has_data=True, etcd=STARTED)

    assert run(["kube", "init", str(lab)]) == 6
    assert f"run `bedplate kube member replace {NAMES[2]}`" in capsys.readouterr().err
    assert calls(members, NAMES[2]) == []
    (members / NAMES[0] / "calls").unlink()

    assert run(["kube", "member", "replace", NAMES[2], "--fleet", str(lab)]) == 0
    assert calls(members, NAMES[0]) == [f"forget {NAMES[2]} https://10.64.96.16:2380"]
    assert calls(members, NAMES[2]) == ["take joining", "ready", "finish"]


def test_a_member_is_not_replaced_without_the_others(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Etcd accepts no change without a majority; data is never given up."""
    authority = make_authorities(lab, plan_of(lab), None).digest
    report(members, NAMES[0], authority=authority, is_ready=True, has_data=True, etcd=STARTED)
    report(members, NAMES[1], authority=authority, has_data=True)

    assert run(["kube", "member", "replace", NAMES[2], "--fleet", str(lab)]) == 6
    assert "only 1 of 3 members run" in capsys.readouterr().err
    assert run(["kube", "member", "replace", NAMES[1], "--fleet", str(lab)]) == 2
    assert "has the data of etcd" in capsys.readouterr().err


def test_a_member_of_another_cluster_is_left_alone(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two operators with stores of their own: the second is refused."""
    report(members, NAMES[1], authority="0" * 64)

    assert run(["kube", "init", str(lab)]) == 2

    assert "has another cluster authority" in capsys.readouterr().err
    assert not any(calls(members, name) for name in NAMES)


def test_lost_keys_are_not_made_again(lab: Path, members: Path) -> None:
    """With a recorded certificate, new authorities would divide the cluster."""
    del members
    make_authorities(lab, plan_of(lab), None)
    (folder_of(lab).keys / "kubernetes.pem").unlink()

    with pytest.raises(InputError, match="the key store lacks the cluster's authorities"):
        make_authorities(lab, plan_of(lab), None)


def test_one_operator_at_a_time(members: Path, lab: Path) -> None:
    """On one machine by the lock of the folder, and on a member by its own: exit status 5."""
    with held(lab.with_suffix(".kubernetes")):
        assert run(["kube", "init", str(lab)]) == 5
    (members / NAMES[0] / "exit").write_text("5")
    assert run(["kube", "init", str(lab)]) == 5


def test_all_members_check_a_snapshot_before_any_stops(members: Path, lab: Path, tmp_path: Path) -> None:
    """Each step begins when all members have done the one before."""
    snapshot = tmp_path / "snapshot.db"
    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab)]) == 2
    snapshot.write_bytes(b"data")
    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab)]) == 0
    commands = calls(members, NAMES[1])
    assert commands[:3] == ["receive", "stop", "take"]
    assert commands[3].startswith("restore lab-")
    assert commands[4:] == ["ready", "finish"]

    (members / NAMES[0]).rename(members / "away")
    (members / NAMES[1] / "calls").unlink()
    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab)]) == 6
    assert calls(members, NAMES[1]) == []


def test_an_upgrade_goes_from_member_to_member(
    members: Path, lab: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member is ready again before the next one; a worker of a site is drained, upgraded and uncordoned."""
    worker = "titan-01.cellar"
    (members / worker).mkdir()
    (members / NAMES[0] / "nodes").write_text(f"{worker} v1.35.2 bedplate://cellar/titan-01\n")
    for name in NAMES:
        report(members, name, version="v1.36.3" if name == NAMES[1] else "v1.35.2", is_ready=True)
    (config := lab.with_name("ssh_config")).write_text("")
    options = [str(lab), "--ssh-config", str(config)]
    assert run(["kube", "upgrade", "--check", *options]) == 0
    assert f"{NAMES[2]}: upgrade the member" in capsys.readouterr().out
    assert "upgrade 1.36" not in calls(members, NAMES[0])

    assert run(["kube", "upgrade", "--yes", *options]) == 0

    member = ["upgrade 1.36", "ready", "finish"]
    begun = [call for call in calls(members, NAMES[0]) if call != "nodes"]
    assert begun == ["snapshot", *member, f"drain {worker}", f"uncordon {worker}"]
    assert (calls(members, NAMES[1]), calls(members, NAMES[2])) == ([], member)
    assert "kubelet=1.36.* kubeadm=1.36.* kubectl=1.36.* && apt-mark hold kubelet" in calls(members, worker)[0]
    assert [(request.targets[0].node.name, request.only) for request in applies.requests] == [
        (NAMES[0], frozenset({"kubernetes", "control"})),
        (NAMES[2], frozenset({"kubernetes", "control"})),
        (worker, frozenset({"kubernetes"})),
    ]


def test_an_upgrade_ends_at_a_worker_without_its_version(
    members: Path, lab: Path, applies: FakeApply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kubelet that does not start again stays cordoned, and the next worker is left alone."""
    monkeypatch.setattr(kube_nodes, "_STARTED_SECONDS", 0.0)
    workers = ("titan-01.cellar", "titan-02.cellar")
    rows = "".join(f"{name} v1.35.2 bedplate://cellar/{name}\n" for name in workers)
    for name in NAMES:
        report(members, name, is_ready=True)
    (members / NAMES[0] / "nodes").write_text(rows)
    (members / workers[0]).mkdir()
    (members / workers[0] / "broken").touch()
    (config := lab.with_name("ssh_config")).write_text("")

    assert run(["kube", "upgrade", "--yes", str(lab), "--ssh-config", str(config)]) == 6

    assert f"{workers[0]}: kubelet does not report version 1.36" in capsys.readouterr().err
    assert [call for call in calls(members, NAMES[0]) if call != "nodes"] == [f"drain {workers[0]}"]
    assert len(applies.requests) == 1


def test_an_instance_of_an_old_bundle_ends_the_upgrade(
    members: Path, lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new instance has the version of the bundle: with an older one, no further instance is replaced."""
    monkeypatch.setattr(kube_nodes, "open_account", lambda _: None)
    nodes = members / NAMES[0] / "nodes"

    def terminate(*_: object, **__: object) -> None:
        nodes.write_text(nodes.read_text().replace("train-9f3c21aa", "train-00000001"))

    monkeypatch.setattr("bedplate.account.capacity.terminate_machine", terminate)
    for name in NAMES:
        report(members, name, is_ready=True)
    names = ("train-9f3c21aa.us-west-2", "train-9f3c21ab.us-west-2")
    nodes.write_text("".join(f"{name} v1.35.2 aws:///us-west-2b/i-{name[6:14]}\n" for name in names))

    assert run(["kube", "upgrade", "--yes", str(lab)]) == 6

    errors = capsys.readouterr().err
    assert "train-00000001.us-west-2 has version v1.35.2" in errors
    assert "`bedplate bundle push`" in errors
    assert calls(members, NAMES[0]).count(f"drain {names[1]}") == 0


def test_a_fleet_without_a_cluster_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with what to add."""
    assert run(["kube", "init", str(EXAMPLES / "minimal.yaml")]) == 2
    assert "add the `kubernetes` section" in capsys.readouterr().err


TITAN, TOKEN = "titan-01.cellar", "abcdef.0123456789abcdef"


@pytest.fixture
def site(members: Path, lab: Path) -> Path:
    """Return the folder of the members and of a machine of the site; the cluster has its authorities."""
    make_authorities(lab, plan_of(lab), None)
    (members / TITAN).mkdir()
    for name in NAMES:
        (members / name / "token").write_text(f"{TOKEN}\n")
    return members


def test_join_carries_the_token_on_stdin(site: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A member that answers makes it, for 15 minutes and this machine; it is in no argument list and no output."""
    (site / NAMES[0]).rename(site / "away")

    assert run(["kube", "join", "titan-01", "--fleet", str(lab)]) == 0

    (token_call,), (joined,) = calls(site, NAMES[1]), calls(site, TITAN)
    assert "--ttl 15m" in token_call
    assert "--groups system:bootstrappers:bedplate:machine:cellar:titan-01" in token_call
    assert (site / TITAN / "stdin").read_text() == f"{TOKEN}\n"
    output = capsys.readouterr()
    assert f"{TITAN}: joined the cluster" in output.out
    assert TOKEN not in joined + output.out + output.err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("control-1.us-west-2", "control-1.us-west-2 is an EC2 instance"),
        ("titan-03", "titan-03.cellar is no worker of the cluster"),
        ("titan-9", "no machine named titan-9"),
    ],
)
def test_join_is_for_workers_of_sites(
    name: str, reason: str, site: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machines in the cloud join by themselves, workbenches not at all; nobody makes a token."""
    assert run(["kube", "join", name, "--fleet", str(lab)]) == 2

    assert reason in capsys.readouterr().err
    assert not any(calls(site, member) for member in NAMES)


def test_join_needs_a_member_and_the_role(site: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent's reason is shown; without any member the command says which is not reached."""
    (site / TITAN / "exit").write_text("1")
    assert run(["kube", "join", TITAN, "--fleet", str(lab)]) == 6
    for name in NAMES:
        (site / name).rename(site / f"{name}-away")
    assert run(["kube", "join", TITAN, "--fleet", str(lab)]) == 6
    assert "control-3.us-west-2 not reached" in capsys.readouterr().err
