"""The commands of the control plane with members that answer by a fake ssh. Real members: tests/kubernetes."""

import hmac
import json
import shlex
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import InputError
from bedplate.files import held
from bedplate.kubernetes.formation import etcd_cluster_id
from bedplate.lock import lock_path, read_lock, record_etcd
from bedplate.operate import cluster_machines, plan_of
from bedplate.operate.control_plane import cluster_of, make_authorities, start_cluster
from bedplate.plan.record import FORMING
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.fakes.reports import Recorder
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
*status | *nodes | *work) cat "$folder/${{command##* }}" ;;
*"drain "*) [[ $command == *uncordon* || ! -e $folder/undrainable ]] || exit 1 ;;
*" ready") [[ ! -e $folder/unready ]] || exit 1 ;;
*"token create"*) cat "$folder/token" ;;
*" admit "*) echo "the initial cluster" ;;
*" form "* | *" take" | *" restore "*)
  cp {lock} "$folder/lock"
  [[ ! -e $folder/broken ]] || exit 1
  [[ -e $folder/exit ]] || sed -Ei 's/"(has_data|is_ready)": false/"\\1": true/g' "$folder/status"
  [[ -e $folder/exit ]] || sed -i 's/"cluster": ""/"cluster": "{cluster}"/' "$folder/status" ;;
*bedplate-worker*) echo joined the cluster ;;
*"apt-get "*) [[ -e $folder/broken ]] || sed -i "s/^$host\tv[^\t]*/$host\tv1.36.3/" {folder}/*/nodes ;;
esac
exit "$(cat "$folder/exit" 2>/dev/null || echo 0)"
"""
BLANK = {
    "authority": "",
    "has_data": False,
    "is_restoring": False,
    "is_ready": False,
    "version": "v1.36.3",
    "cluster": "",
    "etcd": None,
}
CLUSTER = "1196a0f3c2d4e5b6"
URLS = tuple(f"https://10.64.{block}.16:2380" for block in (32, 64, 96))
LISTED = {"members": [{"name": name, "peerURLs": [url]} for name, url in zip(NAMES, URLS, strict=True)]}


@pytest.fixture
def members(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of three blank members; the plan of the fleet is recorded."""
    assert run(["plan", str(lab), "--write"]) == 0
    folder, tools = tmp_path / "members", tmp_path / "tools"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        report(folder, name)
    tools.mkdir()
    (tools / "ssh").write_text(_SSH.format(folder=folder, cluster=CLUSTER, lock=lock_path(lab)))
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return folder


def report(folder: Path, name: str, **changes: object) -> None:
    """Set what a member reports."""
    (folder / name / "status").write_text(json.dumps(BLANK | changes))


def calls(folder: Path, name: str) -> list[str]:
    """Return the commands that a member got, without questions about its status."""
    file = folder / name / "calls"
    lines = [" ".join(shlex.split(line)) for line in file.read_text().splitlines()] if file.exists() else []
    return [line.removeprefix("sudo -n bedplate-member ") for line in lines if not line.endswith("status")]


def test_the_first_member_forms_the_cluster_and_the_others_join_it(members: Path, lab: Path) -> None:
    """The lock has certificate and id, which node documents repeat; only the operator can read keys and kubeconfig."""
    assert run(["kube", "init", str(lab)]) == 0

    first, ready = calls(members, NAMES[0]), ["ready", "finish"]
    joins = [[f"forget {url}", f"admit {name} {url}", f"promote {url}"] for name, url in zip(NAMES, URLS, strict=True)]
    assert first[0].startswith("form new lab-")
    assert first[0].endswith(f" {NAMES[0]}={URLS[0]}")
    assert first[1:] == [*ready, *joins[1], *joins[2]]
    for name in NAMES[1:]:
        assert calls(members, name) == ["form existing lab the initial cluster", *ready]
    record = read_lock(lock_path(lab), "lab")
    assert record.authority.startswith("-----BEGIN CERTIFICATE-----\n")
    assert record.etcd == CLUSTER
    keys = folder_of(lab).keys
    assert {stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir()} == {0o600}
    assert (keys / "admin.kubeconfig").exists()
    assert "keys/" in (folder_of(lab).path / ".gitignore").read_text()


def test_the_lock_says_that_the_cluster_forms_before_a_member_does(members: Path, lab: Path) -> None:
    """As `up` starts it: a run that ends in between never makes a second cluster. Others join the recorded one."""
    assert start_cluster(Recorder(lab)) == 0

    records = [read_lock(members / name / "lock", "lab").etcd for name in NAMES]
    assert records == [FORMING, CLUSTER, CLUSTER]


def _run_members(members: Path, lab: Path, *names: str, **changes: object) -> None:
    """Let members report that they run in the recorded cluster."""
    authority = make_authorities(Terminal(lab), plan_of(Terminal(lab))).digest
    record_etcd(lock_path(lab), "lab", CLUSTER)
    state = {"authority": authority, "is_ready": True, "has_data": True, "cluster": CLUSTER, "etcd": LISTED}
    for name in names:
        report(members, name, **(state | changes))


def test_init_after_init_changes_nothing(members: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Members that run with the recorded authority get no command; an id that is not recorded yet is recorded."""
    _run_members(members, lab, *NAMES)
    lock = lock_path(lab)
    lock.write_text(lock.read_text().replace(f',\n "etcd": "{CLUSTER}"', ""))
    assert not read_lock(lock, "lab").etcd

    assert run(["kube", "init", str(lab)]) == 0

    assert not any(calls(members, name) for name in NAMES)
    assert "control plane: runs" in capsys.readouterr().out
    assert read_lock(lock, "lab").etcd == CLUSTER


def test_init_records_the_public_key_of_tokens_in_an_older_lock(members: Path, lab: Path) -> None:
    """The stack publishes the key; members that run get no command for it."""
    _run_members(members, lab, *NAMES)
    lock = lock_path(lab)
    document = json.loads(lock.read_text())
    (key,) = document.pop("account_keys")
    lock.write_text(json.dumps(document))

    assert run(["kube", "init", str(lab)]) == 0

    assert read_lock(lock, "lab").account_keys == (key,)
    assert not any(calls(members, name) for name in NAMES)


def test_a_first_start_that_was_interrupted_continues(members: Path, lab: Path) -> None:
    """Nothing starts while a member is away, and the lock says that the start has begun; the next run forms it."""
    (members / NAMES[2]).rename(members / "away")
    assert run(["kube", "init", str(lab)]) == 6
    assert not any(calls(members, name) for name in NAMES)
    assert read_lock(lock_path(lab), "lab").etcd == FORMING
    (members / "away").rename(members / NAMES[2])
    (members / NAMES[0] / "exit").write_text("5")
    assert run(["kube", "init", str(lab)]) == 5
    (members / NAMES[0] / "exit").unlink()

    assert run(["kube", "init", str(lab)]) == 0

    assert read_lock(lock_path(lab), "lab").etcd == CLUSTER


def test_a_first_member_that_cannot_form_the_cluster_stops_the_others(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They join after it. There is nothing to restore yet, and no error says so."""
    (members / NAMES[0] / "broken").touch()

    assert run(["kube", "init", str(lab)]) == 6

    errors = capsys.readouterr().err
    assert f"{NAMES[1]} joins after {NAMES[0]}" in errors
    assert "restore" not in errors
    assert not [call for name in NAMES[1:] for call in calls(members, name)]


def test_a_member_with_a_new_volume_copies_the_data_of_the_others(members: Path, lab: Path) -> None:
    """The command is `init`, also while another member is away, or `member replace`."""
    _run_members(members, lab, NAMES[0])
    (members / NAMES[1]).rename(members / "away")
    join = [f"forget {URLS[2]}", f"admit {NAMES[2]} {URLS[2]}", f"promote {URLS[2]}"]

    assert run(["kube", "init", str(lab)]) == 6
    assert calls(members, NAMES[0]) == join
    assert calls(members, NAMES[2]) == ["form existing lab the initial cluster", "ready", "finish"]

    (members / "away").rename(members / NAMES[1])
    _run_members(members, lab, *NAMES[:2])
    report(members, NAMES[2])
    (members / NAMES[0] / "calls").unlink()
    assert run(["kube", "member", "replace", NAMES[2], "--fleet", str(lab)]) == 0
    assert calls(members, NAMES[0]) == join


def test_a_member_is_not_replaced_without_the_others(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Etcd accepts no change without a majority; data of the cluster is never given up, that of another one is."""
    _run_members(members, lab, NAMES[0])
    _run_members(members, lab, NAMES[1], is_ready=False)
    command = ["kube", "member", "replace", "--fleet", str(lab)]
    assert run([*command, NAMES[2]]) == 6
    assert "only 1 of 3 members run" in capsys.readouterr().err
    _run_members(members, lab, NAMES[2])
    assert run([*command, NAMES[1]]) == 2
    assert "has the data of etcd" in capsys.readouterr().err
    _run_members(members, lab, NAMES[1], is_ready=False, cluster="5985a0f3c2d4e5b6")

    assert run([*command, NAMES[1]]) == 0

    assert calls(members, NAMES[1]) == ["discard", "form existing lab the initial cluster", "ready", "finish"]


def test_a_member_of_another_cluster_is_left_alone(
    members: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two operators with stores of their own: the second is refused."""
    report(members, NAMES[1], authority="0" * 64)

    assert run(["kube", "init", str(lab)]) == 2

    assert "has another cluster authority" in capsys.readouterr().err
    assert not any(calls(members, name) for name in NAMES)


def test_lost_keys_are_not_made_again(lab: Path, members: Path) -> None:
    """New authorities would divide a cluster whose certificate is recorded."""
    del members
    make_authorities(Terminal(lab), plan_of(Terminal(lab)))
    (folder_of(lab).keys / "kubernetes.pem").unlink()

    with pytest.raises(InputError, match="the key store lacks the cluster's authorities"):
        make_authorities(Terminal(lab), plan_of(Terminal(lab)))


def test_one_operator_at_a_time(members: Path, lab: Path) -> None:
    """On one machine by the lock of the folder, and on a member by its own: exit status 5."""
    with held(lab.with_suffix(".kubernetes")):
        assert run(["kube", "init", str(lab)]) == 5
    (members / NAMES[0] / "exit").write_text("5")
    assert run(["kube", "init", str(lab)]) == 5


def _signed(lab: Path, folder: Path, member: str = NAMES[0]) -> Path:
    """Return a snapshot as a member signs it."""
    key = make_authorities(Terminal(lab), plan_of(Terminal(lab))).snapshot_key
    facts = f"{member} 20261127T000000Z {CLUSTER} 42 {sha256(b'data').hexdigest()}"
    mac = hmac.new(key, facts.encode(), "sha256").hexdigest()
    file = folder / f"{member}_20261127T000000Z_{CLUSTER}_42_{mac}.db"
    file.write_bytes(b"data")
    return file


def test_all_members_check_a_snapshot_before_any_stops(
    members: Path, lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its facts are shown; each step begins when all members have done the one before; the lock has the new id."""
    snapshot = _signed(lab, tmp_path)
    assert run(["kube", "restore", "absent.db", "--yes", "--fleet", str(lab)]) == 2
    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab)]) == 0
    output = capsys.readouterr().out
    assert f"snapshot of {NAMES[0]}, 2026-11-27 00:00 UTC" in output
    assert f"etcd cluster {CLUSTER}, revision 42" in output
    commands = calls(members, NAMES[1])
    assert commands[:3] == ["receive", "stop", "take"]
    _, token, initial = commands[3].split()
    assert initial == cluster_of(plan_of(Terminal(lab))).initial_cluster
    assert read_lock(lock_path(lab), "lab").etcd == etcd_cluster_id(cluster_of(plan_of(Terminal(lab))).members, token)
    assert commands[4:] == ["ready", "finish"]

    (members / NAMES[0]).rename(members / "away")
    (members / NAMES[1] / "calls").unlink()
    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab)]) == 6
    assert calls(members, NAMES[1]) == []


def test_a_majority_restores_without_the_others(members: Path, lab: Path, tmp_path: Path) -> None:
    """A majority forms the cluster alone; a minority is refused, because the others could run."""
    snapshot = _signed(lab, tmp_path)
    command = ["kube", "restore", str(snapshot), "--yes", "--fleet", str(lab), "--without", NAMES[2]]
    (members / NAMES[2]).rename(members / "away")

    assert run(command) == 0

    initial = calls(members, NAMES[0])[3].split()[2]
    assert initial == ",".join(f"{name}={url}" for name, url in zip(NAMES[:2], URLS[:2], strict=True))
    assert run([*command, "--without", NAMES[1]]) == 2


OLD, NEW = "v1.35.2", "v1.36.3"
PACKAGES = "kubelet=1.36.3-* kubeadm=1.36.3-* kubectl=1.36.3-* containerd.io=2.2.1-*"
SITE = ("titan-01.cellar", "titan-02.cellar")
TRAIN = ("train-9f3c21aa.us-west-2", "train-9f3c21ab.us-west-2")


def row(name: str, version: str, provider: str = "", taints: str = "") -> str:
    """Return the line of a node in `bedplate-member nodes`."""
    return f"{name}\t{version}\tcontainerd://2.2.1\t{provider or f'bedplate://cellar/{name}'}\t\t{taints}\n"


MEMBER_ROWS = "".join(row(name, NEW) for name in NAMES)


@pytest.fixture
def upgrade(members: Path, lab: Path) -> list[str]:
    """Return the command that upgrades two workers of a site, with members that have their version and no pods."""
    for name in NAMES:
        report(members, name, version=NEW, is_ready=True)
        (members / name / "work").write_text('{"items": []}')
    (members / NAMES[0] / "nodes").write_text(MEMBER_ROWS + "".join(row(name, OLD) for name in SITE))
    for name in SITE:
        (members / name).mkdir()
    (config := lab.with_name("ssh_config")).write_text("")
    return ["kube", "upgrade", "--yes", "--end-machines", str(lab), "--ssh-config", str(config)]


def steps_of(members: Path, name: str) -> list[str]:
    """Return the commands of an upgrade that change something."""
    return [call for call in calls(members, name) if call not in {"nodes", "work"}]


def test_an_upgrade_goes_from_member_to_member(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member is ready again before the next one; a worker of a site is drained, upgraded and uncordoned."""
    for name in (NAMES[0], NAMES[2]):
        report(members, name, version=OLD, is_ready=True)
    nodes = members / NAMES[0] / "nodes"
    nodes.write_text(nodes.read_text().replace(row(SITE[1], OLD), ""))
    assert run([*upgrade, "--check"]) == 0
    output = capsys.readouterr().out
    assert "planned: Kubernetes 1.36.3, containerd 2.2.1" in output
    assert f"{NAMES[2]}: upgrade the member (Kubernetes 1.35.2, containerd 2.2.1)" in output
    assert steps_of(members, NAMES[0]) == []

    assert run(upgrade) == 0

    member = [f"upgrade {PACKAGES}", "ready", "finish"]
    worker = [f"{command} {SITE[0]}" for command in ("cordon", "drain", "uncordon")]
    assert steps_of(members, NAMES[0]) == ["snapshot", *member, *worker]
    assert (steps_of(members, NAMES[1]), steps_of(members, NAMES[2])) == ([], member)
    (installs, *_) = calls(members, SITE[0])
    assert f"{shlex.join(PACKAGES.split())} && apt-mark hold kubelet kubeadm kubectl containerd.io" in installs
    roles = frozenset({"containers", "kubernetes"})
    assert [(request.targets[0].node.name, request.only) for request in applies.requests] == [
        (NAMES[0], roles | {"control"}),
        (NAMES[2], roles | {"control"}),
        (SITE[0], roles),
    ]


def test_an_upgrade_waits_for_a_member_that_starts(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was interrupted has restarted it; one that does not get ready stops the command."""
    report(members, NAMES[1], version=OLD, is_ready=False)
    assert run(upgrade) == 0
    assert calls(members, NAMES[1]) == ["ready", "snapshot", f"upgrade {PACKAGES}", "ready", "finish"]
    (members / NAMES[1] / "unready").touch()

    assert run(upgrade) == 6

    assert f"{NAMES[1]} not ready" in capsys.readouterr().err
    assert len(applies.requests) == 3


def test_an_upgrade_ends_at_a_worker_without_its_version(
    members: Path,
    upgrade: list[str],
    applies: FakeApply,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A kubelet that does not start again stays cordoned, which is said, and the next worker is left alone."""
    monkeypatch.setattr(cluster_machines, "_STARTED_SECONDS", 0.0)
    (members / SITE[0] / "broken").touch()

    assert run(upgrade) == 6

    errors = capsys.readouterr().err
    assert f"{SITE[0]}: kubelet does not report Kubernetes 1.36.3, containerd 2.2.1" in errors
    assert f"{SITE[0]} stays cordoned until the same command has succeeded" in errors
    assert steps_of(members, NAMES[0]) == [f"cordon {SITE[0]}", f"drain {SITE[0]}"]
    assert len(applies.requests) == 1


def test_a_member_with_an_older_program_is_named(
    members: Path, upgrade: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is begun: its answers have another form."""
    (members / NAMES[0] / "nodes").write_text(f"{SITE[0]} {OLD} bedplate://cellar/titan-01\n")

    assert run(upgrade) == 6

    assert f"run `bedplate node apply {NAMES[0]}`" in capsys.readouterr().err


def test_a_worker_whose_drain_fails_takes_pods_again(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says so; the next worker is left alone."""
    (members / NAMES[0] / "undrainable").touch()

    assert run(upgrade) == 6

    assert f"{SITE[0]} is uncordoned" in capsys.readouterr().err
    assert steps_of(members, NAMES[0]) == [f"{command} {SITE[0]}" for command in ("cordon", "drain", "uncordon")]
    assert not applies.requests


@pytest.mark.parametrize("is_now", [False, True])
def test_a_worker_with_work_that_may_not_move_is_left_alone(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str], *, is_now: bool
) -> None:
    """The command names it at both ends, with exit status 6; `--now` ends its work."""
    spec, meta = {"nodeName": SITE[0], "containers": []}, {"name": "notebook", "namespace": "ada"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    (members / NAMES[0] / "work").write_text(json.dumps({"items": [pod]}))
    command = [*upgrade, "--now"] if is_now else upgrade
    assert run([*command, "--check"]) == 0
    reason = f"{SITE[0]}: left alone: pod ada/notebook: it may not be moved"
    assert (reason in capsys.readouterr().out) is not is_now

    assert run(command) == (0 if is_now else 6)

    assert (reason in capsys.readouterr().err) is not is_now
    upgraded = [request.targets[0].node.name for request in applies.requests]
    assert upgraded == ([*SITE] if is_now else [SITE[1]])
    assert is_now or steps_of(members, NAMES[0])[:2] == [f"cordon {SITE[0]}", f"uncordon {SITE[0]}"]


def test_a_worker_that_somebody_has_cordoned_is_left_alone(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker stays cordoned, also with `--now`; one that a killed upgrade has cordoned is upgraded."""
    nodes = members / NAMES[0] / "nodes"
    cordoned = [row(name, OLD, taints="node.kubernetes.io/unschedulable") for name in SITE]
    nodes.write_text(MEMBER_ROWS + cordoned[0] + cordoned[1].replace("\t\t", "\tupgrading\t"))
    reason = f"{SITE[0]}: left alone: somebody has cordoned it"
    assert run([*upgrade, "--check"]) == 0
    assert reason in capsys.readouterr().out

    assert run([*upgrade, "--now"]) == 6

    assert reason in capsys.readouterr().err
    assert steps_of(members, NAMES[0]) == [f"{command} {SITE[1]}" for command in ("cordon", "drain", "uncordon")]
    assert [request.targets[0].node.name for request in applies.requests] == [SITE[1]]


def test_an_upgrade_without_a_member_removes_it_from_etcd(
    members: Path, upgrade: list[str], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are upgraded, and the command that replaces it later is named; a minority is refused."""
    (members / NAMES[0]).rename(members / "away")
    (members / NAMES[1] / "nodes").write_text(MEMBER_ROWS)
    for name in NAMES[1:]:
        report(members, name, version=OLD, is_ready=True)
    assert run(upgrade) == 6

    assert run([*upgrade, "--without", NAMES[0]]) == 0

    assert f"later: `bedplate kube member replace {NAMES[0]}`" in capsys.readouterr().out
    member = [f"upgrade {PACKAGES}", "ready", "finish"]
    assert steps_of(members, NAMES[1]) == [f"forget {URLS[0]}", "snapshot", *member]
    assert steps_of(members, NAMES[2]) == member
    assert [request.targets[0].node.name for request in applies.requests] == [*NAMES[1:]]
    assert run([*upgrade, "--without", NAMES[0], "--without", NAMES[1]]) == 2


@pytest.fixture
def train(members: Path, upgrade: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the nodes: two instances of a group with the old version."""
    del upgrade
    nodes = members / NAMES[0] / "nodes"
    nodes.write_text(MEMBER_ROWS + "".join(instance(name, OLD) for name in TRAIN))
    monkeypatch.setattr(cluster_machines, "open_account", lambda _: None)
    monkeypatch.setattr(cluster_machines, "_PAUSE", 0.0)
    return nodes


def instance(name: str, version: str, taints: str = "") -> str:
    """Return the line of an instance."""
    return row(name, version, f"aws:///us-west-2b/i-{name[6:14]}", taints)


def test_an_instance_of_an_old_bundle_ends_the_upgrade(
    members: Path, train: Path, upgrade: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replacement is agreed to. A new instance has the version of the bundle: an older one stops the upgrade."""
    monkeypatch.setattr(cluster_machines, "group_members", lambda *_: (2, frozenset({"i-00000001", "i-9f3c21ab"})))

    def terminate(*_: object, **__: object) -> str:
        train.write_text(train.read_text().replace("9f3c21aa", "00000001"))
        return "lab-train"

    monkeypatch.setattr(cluster_machines, "terminate_machine", terminate)
    assert run([word for word in upgrade if word != "--end-machines"]) == 2
    assert "ends running machines of train" in capsys.readouterr().err

    assert run(upgrade) == 6

    errors = capsys.readouterr().err
    assert "train-00000001.us-west-2 has Kubernetes 1.35.2" in errors
    assert "`bedplate bundle push`" in errors
    assert f"drain {TRAIN[1]}" not in calls(members, NAMES[0])


def test_an_instance_is_replaced_by_one_that_takes_pods(
    members: Path, train: Path, upgrade: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is for a new instance of the group, not for a number of nodes: the capacity controller changes it.

    Meanwhile another group gets a node and the new instance has not passed its gate. Then the group is made smaller:
    the second instance needs no successor.
    """
    states = iter(
        [
            (2, {"9f3c21ab"}, [instance(TRAIN[1], OLD), instance("other-00000009.us-west-2", NEW)]),
            (
                2,
                {"9f3c21ab", "00000001"},
                [instance(TRAIN[1], OLD), instance("train-00000001.us-west-2", NEW, "bedplate/gate")],
            ),
            (2, {"9f3c21ab", "00000001"}, [instance(TRAIN[1], OLD), instance("train-00000001.us-west-2", NEW)]),
            (1, {"00000001"}, [instance("train-00000001.us-west-2", NEW)]),
        ]
    )

    def members_of(*_: object) -> tuple[int, frozenset[str]]:
        desired, names, rows = next(states)
        train.write_text(MEMBER_ROWS + "".join(rows))
        return desired, frozenset(f"i-{name}" for name in names)

    monkeypatch.setattr(cluster_machines, "group_members", members_of)
    monkeypatch.setattr(cluster_machines, "terminate_machine", lambda *_, **__: "lab-train")

    assert run(upgrade) == 0

    assert next(states, None) is None
    assert [call for call in steps_of(members, NAMES[0]) if "drain" in call] == [f"drain {name}" for name in TRAIN]


def test_a_fleet_without_a_cluster_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with what to add."""
    assert run(["kube", "init", str(EXAMPLES / "minimal.yaml")]) == 2
    assert "add the `kubernetes` section" in capsys.readouterr().err


TITAN, TOKEN = "titan-01.cellar", "abcdef.0123456789abcdef"


@pytest.fixture
def site(members: Path, lab: Path) -> Path:
    """Return the folder of the members and of a machine of the site; the cluster has its authorities."""
    make_authorities(Terminal(lab), plan_of(Terminal(lab)))
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
    assert "control-3.us-west-2: no response on the SSH port" in capsys.readouterr().err
