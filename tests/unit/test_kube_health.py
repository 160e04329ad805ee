"""Faults of etcd in `kube status`, and the part of the audit log that leaves a member."""

import gzip
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bedplate.errors import PartialError
from bedplate.kubernetes.health import etcd_faults
from bedplate.kubernetes.members import EtcdMember, MemberStatus
from bedplate.plan.cluster import ETCD_QUOTA, ClusterPlan, cluster_plan, peer_url
from bedplate.report.kube import etcd_document, etcd_lines
from roles.base import file_text
from roles.control.role import AUDIT_POLICY
from tests.testlab.fleets.variants import lab_plan

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
OURS, OTHER = "1196a0f3c2d4e5b6", "5985a0f3c2d4e5b6"
FIRST = "control-1.us-west-2"


def _snapshot(age: timedelta) -> str:
    return f"{FIRST}_{NOW - age:%Y%m%dT%H%M%SZ}_{OURS}_42_{'0' * 64}.db"


@pytest.fixture(scope="module")
def plan() -> ClusterPlan:
    """Return the cluster with its recorded id."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    return replace(cluster, authority="a certificate", etcd=OURS)


HEALTHY = MemberStatus(
    "",
    has_data=True,
    is_restoring=False,
    is_ready=True,
    version="v1.36.3",
    cluster=OURS,
    size=4096,
    used=2048,
    snapshot=_snapshot(timedelta(minutes=30)),
)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"cluster": OTHER},
            f"{FIRST} has data of etcd cluster {OTHER}, and the fleet has {OURS}: run `bedplate",
        ),
        ({"has_data": False}, f"{FIRST} has no data of etcd: run `bedplate kube init`"),
        ({"size": 0}, f"{FIRST}: etcd does not answer: `bedplate node logs {FIRST}`"),
        ({"alarms": ("NOSPACE",)}, f"{FIRST}: etcd has the alarm NOSPACE: delete what fills it"),
        ({"used": ETCD_QUOTA - 1}, f"{FIRST}: etcd uses 8,589,934,591 of 8,589,934,592 bytes"),
        ({"snapshot": _snapshot(timedelta(hours=3))}, f"{FIRST}: no signed snapshot of the last 2 hours"),
        ({"snapshot": "20261127T113000Z.db"}, f"{FIRST}: no signed snapshot of the last 2 hours"),
    ],
)
def test_a_fault_of_etcd_is_named_with_its_fix(plan: ClusterPlan, changes: dict[str, object], fault: str) -> None:
    """One fault for each; a healthy member has none."""
    assert not [*etcd_faults(plan, {FIRST: HEALTHY}, {}, NOW)]

    faults = [*etcd_faults(plan, {FIRST: replace(HEALTHY, **changes)}, {}, NOW)]  # type: ignore[arg-type]  # any field

    assert [text[: len(fault)] for text in faults] == [fault]


def test_faults_of_the_whole_etcd(plan: ClusterPlan) -> None:
    """A member without an answer, one without a vote, different clusters, and an id that is not recorded."""
    learner = EtcdMember("control-2.us-west-2", peer_url(plan.members[1]), is_learner=True)
    first = EtcdMember(FIRST, peer_url(plan.members[0]), is_learner=False)
    statuses = {FIRST: replace(HEALTHY, etcd=(first, learner)), "control-2.us-west-2": HEALTHY}
    errors = {"control-3": PartialError("control-3 not reached", fix="check the VPN")}

    assert [*etcd_faults(plan, statuses, errors, NOW)] == [
        "control-3 not reached: check the VPN",
        "control-2.us-west-2 has no vote in etcd: run `bedplate kube init`",
    ]
    unrecorded, other = replace(plan, etcd=""), {"control-2.us-west-2": replace(HEALTHY, cluster=OTHER)}
    assert "the id of the etcd cluster is not recorded" in next(etcd_faults(unrecorded, {FIRST: HEALTHY}, {}, NOW))
    assert "different etcd clusters" in next(etcd_faults(unrecorded, {FIRST: HEALTHY, **other}, {}, NOW))


def test_the_report_has_a_row_for_each_member() -> None:
    """With the id, the size, and the age of the newest snapshot; JSON has the same values."""
    head, row = etcd_lines({FIRST: HEALTHY}, NOW)

    assert head.split() == ["etcd", "cluster", "bytes", "used", "version", "snapshot"]
    assert row.split() == [FIRST, OURS, "4,096", "2,048", "v1.36.3", "30", "min", "ago"]
    (document,) = etcd_document({FIRST: HEALTHY})
    assert (document["cluster"], document["snapshot"]) == (OURS, HEALTHY.snapshot)


def test_the_audit_log_has_no_content_that_can_be_secret() -> None:
    """It leaves the machine: content is logged for kinds without secret values only, never for pods or tokens."""
    rules: Any = AUDIT_POLICY["rules"]
    contents = [rule for rule in rules if rule["level"] not in ("None", "Metadata")]

    groups = {entry["group"]: entry.get("resources") for rule in contents for entry in rule["resources"]}
    assert {"apps", "batch", "authentication.k8s.io"}.isdisjoint(groups)
    assert {"pods", "secrets", "configmaps", "serviceaccounts"}.isdisjoint(groups[""])
    assert rules[-1] == {"level": "Metadata"}


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of uploads of the program of a member in a folder of the test, with an empty log."""
    (tmp_path / "logs").mkdir()
    (uploads := tmp_path / "uploads").mkdir()
    bootstrap = tmp_path / "bootstrap"
    bootstrap.write_text(f'#!/bin/bash\n[[ "$FOLDER $1" == "audit put_file" ]] && cp "$FILE" {uploads}/\n')
    bootstrap.chmod(0o755)
    program = file_text("control/audit-upload").replace("/usr/local/lib/bedplate/bootstrap", str(bootstrap))
    program = program.replace("/var/log/kubernetes", f"{tmp_path}/logs").replace("/var/lib/etcd", str(tmp_path))
    (tmp_path / "program").write_text(program)
    monkeypatch.chdir(tmp_path)
    return uploads


def _upload(uploads: Path) -> str:
    """Run the program; return the text of all parts in the order of their names."""
    subprocess.run(["bash", "program"], check=True)
    return "".join(gzip.decompress(file.read_bytes()).decode() for file in sorted(uploads.iterdir()))


def test_every_line_of_the_audit_log_is_uploaded_once(uploads: Path, tmp_path: Path) -> None:
    """Also over rotations, of which several may happen between two runs, and after a failed upload."""
    log = tmp_path / "logs" / "audit.log"
    log.write_text("one\n")
    assert _upload(uploads) == "one\n"
    assert _upload(uploads) == "one\n"
    with log.open("a") as stream:
        stream.write("two\n")
    for number, line in enumerate(("three\n", "four\n")):
        log.rename(log.with_name(f"audit-2026-11-27T1{number}.log"))
        log.write_text(line)
    uploads.rename(tmp_path / "away")
    with pytest.raises(subprocess.CalledProcessError):
        _upload(uploads)
    (tmp_path / "away").rename(uploads)
    with log.open("a") as stream:
        stream.write("five\n")

    assert _upload(uploads) == "one\ntwo\nthree\nfour\nfive\n"
    assert not [*(tmp_path / "audit").glob("*.gz")]
