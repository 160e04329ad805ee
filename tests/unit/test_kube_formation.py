"""What `kube init` decides from the answers of the members: at most one of them ever forms a cluster."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from bedplate.errors import InputError, PartialError
from bedplate.kubernetes.formation import Formation, adopted_id, etcd_cluster_id, plan_formation, remaining_members
from bedplate.kubernetes.members import EtcdMember, MemberStatus, parse_status
from bedplate.plan.cluster import ClusterPlan, cluster_plan, peer_url
from bedplate.plan.record import FORMING
from tests.testlab.fleets.variants import lab_plan

OURS, OTHER = "1196a0f3c2d4e5b6", "5985a0f3c2d4e5b6"
BLANK = MemberStatus("", has_data=False, is_restoring=False, is_ready=False, version="v1.36.3")
STOPPED = replace(BLANK, has_data=True, cluster=OURS)
RUNS = replace(STOPPED, is_ready=True)
FOREIGN = replace(RUNS, cluster=OTHER)
RESTORING = replace(STOPPED, is_restoring=True)


@pytest.fixture(scope="module")
def plan() -> ClusterPlan:
    """Return the cluster of three members, whose id is recorded."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    return replace(cluster, authority="a certificate", etcd=OURS)


def _decide(plan: ClusterPlan, *statuses: MemberStatus | None) -> Formation:
    named = dict(zip((member.name for member in plan.members), statuses, strict=True))
    answers = {name: status for name, status in named.items() if status}
    return plan_formation(plan, answers, [name for name, status in named.items() if status is None])


def _fixes(formation: Formation) -> Mapping[str, str]:
    return {name[:9]: str(error.fix) for name, error in formation.errors.items()}


@pytest.mark.parametrize("etcd", ["", FORMING, OURS])
def test_only_blank_members_of_a_new_fleet_form_a_cluster(plan: ClusterPlan, etcd: str) -> None:
    """For every combination of answers: one forms it only if all answer, all are blank and the start is recorded."""
    cluster = replace(plan, etcd=etcd)
    for statuses in product((BLANK, STOPPED, RUNS, RESTORING, None), repeat=3):
        decision = _decide(cluster, *statuses)

        may_form = etcd == FORMING and set(statuses) == {BLANK}
        assert bool(decision.first) == may_form, statuses
        names = dict(zip((member.name for member in cluster.members), statuses, strict=True))
        assert all(names[name] == STOPPED for name in decision.start), statuses
        assert all(names[name] == BLANK for name in decision.join), statuses


def test_a_blank_member_joins_what_is_recorded(plan: ClusterPlan) -> None:
    """Growth and a lost volume are the same: members with data start, the others copy it."""
    decision = _decide(plan, STOPPED, BLANK, None)

    assert (decision.start, decision.join) == ((plan.members[0].name,), (plan.members[1].name,))


def test_volumes_lost_before_ids_were_recorded_are_restored(plan: ClusterPlan) -> None:
    """A lock with an authority and without an id is of an older version: its cluster had data."""
    decision = _decide(replace(plan, etcd=""), BLANK, BLANK, BLANK)

    assert set(_fixes(decision).values()) == {"run `bedplate kube restore`"}


def test_data_of_another_cluster_is_named(plan: ClusterPlan) -> None:
    """So is data of a member that the others have removed from etcd; the message has the command that replaces it."""
    removed = tuple(EtcdMember(member.name, peer_url(member), is_learner=False) for member in plan.members[:2])

    decision = _decide(plan, replace(RUNS, etcd=removed), replace(FOREIGN, is_ready=False), STOPPED)

    assert not decision.start
    assert _fixes(decision) == {
        f"control-{number}": f"run `bedplate kube member replace control-{number}.us-west-2`, "
        "which keeps that data in data.before"
        for number in (2, 3)
    }


def test_two_clusters_are_never_recorded_as_one(plan: ClusterPlan) -> None:
    """Without a record, different ids are an error; a member without an answer could have another id."""
    unrecorded = replace(plan, etcd="")
    with pytest.raises(InputError, match=f"different etcd clusters: control-1.us-west-2 {OURS}, control-2.* {OTHER}"):
        _decide(unrecorded, RUNS, FOREIGN, BLANK)
    statuses = {plan.members[0].name: RUNS, plan.members[1].name: RUNS}

    assert adopted_id(unrecorded, statuses, ()) == OURS
    with pytest.raises(PartialError, match="control-3 may have another one"):
        adopted_id(unrecorded, statuses, ["control-3"])


def test_a_member_without_an_id_is_not_trusted(plan: ClusterPlan) -> None:
    """The program of an older role reports none."""
    decision = _decide(plan, replace(RUNS, cluster=""), RUNS, RUNS)

    assert _fixes(decision) == {"control-1": "run `bedplate node apply control-1.us-west-2`"}


def test_a_restore_without_members_needs_a_majority(plan: ClusterPlan) -> None:
    """The others may run where the operator does not reach them."""
    names = [member.name for member in plan.members]

    assert remaining_members(plan, names[2:]) == plan.members[:2]
    with pytest.raises(InputError, match="1 of 3 members are no majority"):
        remaining_members(plan, names[1:])
    with pytest.raises(InputError, match="no control plane member named control-9"):
        remaining_members(plan, ["control-9"])


def test_the_id_is_that_of_etcd(plan: ClusterPlan) -> None:
    """The id of three members and a token is known before they start; etcd 3.6.8 and 3.7.3 made this one."""
    assert etcd_cluster_id(plan.members, "lab-0123") == "284eb61e337f88ab"


def test_the_report_of_a_member_is_read() -> None:
    """The running etcd's id counts, else that on the volume; the report of an older role has neither."""
    old = {
        "authority": "",
        "has_data": True,
        "is_restoring": False,
        "is_ready": True,
        "version": "v1.36.3",
        "etcd": None,
    }
    endpoint = {"Status": {"header": {"cluster_id": 0x1196A0F3C2D4E5B6}, "dbSize": 20, "dbSizeInUse": 10}}
    members = {"members": [{"name": "control-1", "peerURLs": ["https://10.0.0.1:2380"], "isLearner": True}]}
    alarms = {"alarms": [{"memberID": 1, "alarm": "NOSPACE"}]}
    new = {**old, "cluster": OTHER, "endpoints": [endpoint], "etcd": members, "alarms": alarms, "snapshot": "a.db"}

    status = parse_status(new)

    assert (parse_status(old).cluster, parse_status({**new, "endpoints": None}).cluster) == ("", OTHER)
    assert (status.cluster, status.size, status.used, status.alarms) == (OURS, 20, 10, ("NOSPACE",))
    assert status.etcd == (EtcdMember("control-1", "https://10.0.0.1:2380", is_learner=True),)
