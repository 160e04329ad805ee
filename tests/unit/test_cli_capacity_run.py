"""`bedplate capacity status`, `explain`, `pause`, `resume` and `run` without a cluster, with groups in moto."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from moto import mock_aws

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.errors import InputError
from bedplate.operate.capacity_loop import check_cluster, read_plan
from bedplate.plan.capacity import capacity_document, capacity_plan
from bedplate.spec.sites import Use
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the deployed lab; its fleet file is in the current folder."""
    text = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8").replace("111122223333", "123456789012")
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
    with mock_aws():
        cloud = ScalingCloud(plan_of(tmp_path / "fleet.yaml"))
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: cloud)
        cloud.deploy()
        cloud.deploy(Use.KUBERNETES)
        yield cloud


def test_the_status_has_all_groups(cloud: ScalingCloud, capsys: Printed) -> None:
    """Those for SSH too; without a kubeconfig the number of waiting pods is null."""
    assert not cloud.requests
    assert run(["capacity", "status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    rungs = {rung["pool"]: rung for rung in document["rungs"]}
    assert rungs["workbench-gpu-us-west-2"]["machines"] == rungs["workbench-gpu-us-west-2"]["joined"] == 1
    assert rungs["sim-us-east-1-spot"]["state"] == "open"
    assert document["pending"] is None


def test_a_failed_rung_is_explained(cloud: ScalingCloud, capsys: Printed) -> None:
    """The text has AWS's reason and what can be changed; pods are unknown."""
    cloud.report("lab-burst-us-west-2-spot", "Max spot instance count exceeded", "us-west-2a")

    assert run(["capacity", "explain", "burst"]) == 0
    printed = capsys.readouterr().out
    assert "the spot quota is used up (MaxSpotInstanceCountExceeded)" in printed
    assert "Pods are not known without a kubeconfig" in printed


def test_a_pause_is_seen_until_it_is_resumed(cloud: ScalingCloud, capsys: Printed) -> None:
    """A pause applies to the named group, and the status says who has paused."""
    assert not cloud.requests
    assert run(["capacity", "pause", "burst"]) == 0
    assert run(["capacity", "status"]) == 0
    assert "burst: paused by ada" in capsys.readouterr().out
    assert run(["capacity", "resume"]) == 0
    capsys.readouterr()
    assert run(["capacity", "status"]) == 0
    assert "paused" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "brust"], "no group or pod named brust"),
        (["explain", "ada/llm-0"], "pods are not known without a kubeconfig"),
        (["pause", "workbench-cpu"], "workbench-cpu cannot be paused"),
        (["pause", "trian"], "fix  write train"),
        (["run"], "the controller needs the cluster's API"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_arguments_are_refused(cloud: ScalingCloud, words: list[str], message: str, capsys: Printed) -> None:
    """The exit status is 2, and nothing is changed."""
    assert not cloud.requests
    assert run(["capacity", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def member_files(tmp_path: Path) -> Path:
    """Return a folder with the plan of a member, of a fleet with a recorded etcd cluster."""
    plan = replace(lab_plan(), record=replace(lab_plan().record, etcd="1196aabbccddeeff"))
    (tmp_path / "capacity.json").write_text(capacity_document(capacity_plan(plan, load_catalog())))
    return tmp_path


@pytest.mark.parametrize("cluster", ["5985f0e1c2d3a4b5\n", "", None])
def test_a_member_of_another_etcd_cluster_changes_nothing(member_files: Path, cluster: str | None) -> None:
    """Another cluster, or an unknown one, lacks the nodes of the fleet: their machines would seem useless."""
    if cluster is not None:
        (member_files / "cluster").write_text(cluster)

    with pytest.raises(InputError, match=f"member has etcd cluster {(cluster or 'unknown').strip()}, the fleet "):
        check_cluster(read_plan(member_files / "capacity.json"), member_files / "cluster")


def test_the_program_on_a_member_writes_its_fatal_error_to_the_journal(member_files: Path) -> None:
    """Without an etcd cluster it ends before it asks AWS or the cluster, and systemd starts it anew later."""
    files = [f"--{option}={member_files / option}" for option in ("kubeconfig", "etcd-cluster", "metrics")]
    command = (sys.executable, "-m", "bedplate.machine.capacity", f"--plan={member_files / 'capacity.json'}", *files)

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert "member has etcd cluster unknown, the fleet 1196aabbccddeeff" in json.loads(ended.stdout)["error"]


def test_a_member_of_the_recorded_etcd_cluster_runs_the_controller(member_files: Path) -> None:
    """The id may end with a line feed; a plan that is missing is an error of its own."""
    (member_files / "cluster").write_text("1196aabbccddeeff\n")
    check_cluster(read_plan(member_files / "capacity.json"), member_files / "cluster")
    with pytest.raises(InputError, match="cannot read the plan: No such file or directory"):
        read_plan(member_files / "missing.json")
