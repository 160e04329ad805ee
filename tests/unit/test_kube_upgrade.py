"""The steps of an upgrade, what keeps a worker from being drained, and the rollout by groups."""

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Barrier, get_ident
from time import sleep

import pytest

from bedplate.errors import InputError, PartialError
from bedplate.kubernetes.upgrade import (
    Action,
    Versions,
    Worker,
    obstacles,
    parse_nodes,
    roll,
    upgrade_steps,
)
from bedplate.rounds import ask_each

OLD, NEW = Versions("v1.36.3", "2.2.1"), Versions("v1.37.2", "2.2.1")
PATCH, RUNTIME = Versions("v1.36.0", "2.2.1"), Versions("v1.36.3", "2.1.4")
OLDER, PLAN, NEWER = Versions("1.36.0", "2.2.1"), Versions("1.36.3", "2.2.1"), Versions("1.37.2", "2.2.1")
TITAN = Worker("titan-01.cellar", OLD, "bedplate://cellar/titan-01")
TRAIN = Worker("train-9f3c21aa.us-west-2", OLD, "aws:///us-west-2b/i-0123456789abcdef0")


def test_members_are_upgraded_before_workers() -> None:
    """After a snapshot, one member after the other; then machines of sites are upgraded, and instances replaced."""
    steps = upgrade_steps({"a": OLD, "b": OLD}, (TITAN, TRAIN), NEWER, NEWER)

    assert list(steps.items()) == [
        ("a", (Action.SNAPSHOT, Action.UPGRADE_MEMBER)),
        ("b", (Action.UPGRADE_MEMBER,)),
        (TITAN.name, (Action.DRAIN, Action.UPGRADE_WORKER, Action.UNCORDON)),
        (TRAIN.name, (Action.DRAIN, Action.REPLACE)),
    ]


@pytest.mark.parametrize("versions", [PATCH, RUNTIME], ids=["patch", "containerd"])
def test_a_patch_and_containerd_are_upgraded(versions: Versions) -> None:
    """Members and workers with another patch of Kubernetes, or another containerd, than planned have steps."""
    steps = upgrade_steps({"a": versions, "b": OLD}, (replace(TITAN, versions=versions), TRAIN), PLAN, PLAN)

    assert [*steps] == ["a", TITAN.name]


def test_a_second_run_continues() -> None:
    """A component that has its version has no step."""
    assert [*upgrade_steps({"a": NEW, "b": OLD}, (), NEWER, NEWER)] == ["b"]
    assert upgrade_steps({"a": NEW}, (Worker("w", NEW, ""),), NEWER, NEWER) == {}


def test_a_second_run_uncordons_an_upgraded_worker() -> None:
    """A run that ended between the packages and the last step has left its mark; a person who cordons leaves none."""
    marked, other = (replace(TITAN, versions=NEW, is_upgrading=is_upgrading) for is_upgrading in (True, False))

    assert upgrade_steps({"a": NEW}, (marked,), NEWER, NEWER) == {TITAN.name: (Action.UNCORDON,)}
    assert upgrade_steps({"a": NEW}, (other,), NEWER, NEWER) == {}


def test_workers_may_stay_older() -> None:
    """A fleet with `image.kubernetes` keeps the version of its workers."""
    assert [*upgrade_steps({"a": OLD}, (TITAN,), NEWER, PLAN)] == ["a"]


@pytest.mark.parametrize(
    ("members", "workers", "versions", "fix"),
    [
        ({"a": OLD}, (), (Versions("1.38.0", ""),) * 2, "write version: '1.37', upgrade, then write the next one"),
        ({"a": OLD}, (), (Versions("1.35.4", ""),) * 2, "write version: '1.36'"),
        ({"a": OLD}, (), (OLDER, OLDER), "write version: '1.36.3'"),
        ({"a": NEW}, (Worker("w", NEW, ""),), (NEWER, PLAN), "write image.kubernetes: '1.37'"),
        ({"a": OLD}, (Worker("w", Versions("v1.33.1", ""), ""),), (NEWER, NEWER), "upgrade the workers first"),
    ],
    ids=["two-steps", "back", "patch-back", "worker-back", "skew"],
)
def test_an_impossible_upgrade_has_no_steps(
    members: dict[str, Versions], workers: tuple[Worker, ...], versions: tuple[Versions, Versions], fix: str
) -> None:
    """Nothing is begun that Kubernetes does not support; the fix has the right value."""
    with pytest.raises(InputError) as refused:
        upgrade_steps(members, workers, *versions)

    assert fix in refused.value.fix


def test_nodes_are_read_with_their_state() -> None:
    """A node without a provider id counts as a machine of a site; one with the gate's taint takes no pods yet.

    A cordon without the mark of an upgrade is somebody's own.
    """
    text = (
        f"{TRAIN.name}\tv1.36.3\tcontainerd://2.2.1\t{TRAIN.provider}\t\tbedplate/gate nvidia.com/gpu\n"
        "bare.attic\tv1.36.3\tcontainerd://2.2.1\t\tupgrading\tnode.kubernetes.io/unschedulable\n"
        "kept.attic\tv1.36.3\tcontainerd://2.2.1\t\t\tnode.kubernetes.io/unschedulable\n"
    )

    nodes = tuple(parse_nodes(text).values())

    attic = (Worker("bare.attic", OLD, "", is_upgrading=True), Worker("kept.attic", OLD, "", is_kept=True))
    assert nodes == (replace(TRAIN, is_usable=False), *attic)
    assert [node.instance for node in nodes] == ["i-0123456789abcdef0", "", ""]
    assert [node.group for node in nodes] == ["train.us-west-2", "attic", "attic"]


def _pod(name: str, owner: str = "", node: str = "n", **metadata: object) -> Mapping[str, object]:
    owners = [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "1"}] if owner else []
    meta = {"name": name, "namespace": "ada", "ownerReferences": owners, "labels": {"app": name}, **metadata}
    spec = {"nodeName": node, "containers": []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}}


def _budget(app: str, allowed: int) -> Mapping[str, object]:
    spec = {"selector": {"matchLabels": {"app": app}}}
    meta, status = {"name": app, "namespace": "ada"}, {"disruptionsAllowed": allowed}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return {**kind, "metadata": meta, "spec": spec, "status": status}


def test_pods_that_may_not_move_are_obstacles() -> None:
    """Bare pods and jobs are, unless they are marked as movable; daemons and pods of controllers are not."""
    items = [_pod("bare"), _pod("job", "Job"), _pod("web", "ReplicaSet"), _pod("proxy", "DaemonSet")]
    items += [
        _pod("saved", "Job", annotations={"bedplate/movable": "true"}),
        _pod("pinned", "ReplicaSet", annotations={"bedplate/movable": "false"}),
    ]

    text = json.dumps({"items": items})

    assert obstacles(text, ends_work=False) == {"n": "pod ada/bare and 2 more: it may not be moved"}
    assert not obstacles(text, ends_work=True)


def test_a_budget_that_allows_no_eviction_is_an_obstacle() -> None:
    """Also if work may be ended: kubectl would try for 15 minutes."""
    items = [_pod("web", "ReplicaSet"), _budget("web", 0), _pod("api", "ReplicaSet", "m"), _budget("api", 1)]

    found = obstacles(json.dumps({"items": items}), ends_work=True)

    assert found == {"n": "pod ada/web: its disruption budget allows no eviction"}


_NODES = {group: [f"{group}{number}" for number in range(4)] for group in "ab"}


def test_groups_are_upgraded_at_the_same_time() -> None:
    """Each node waits for one of the other group: by default a group of fewer than 20 has one under way."""
    both = Barrier(2)

    assert roll(_NODES, None, lambda _: both.wait(10) and None) == ()


def test_a_group_may_have_several_nodes_under_way() -> None:
    """Each node waits for another one of its group."""
    pairs = {group: Barrier(2) for group in _NODES}

    assert roll(_NODES, 2, lambda node: pairs[node[0]].wait(10) and None) == ()


def test_no_node_is_begun_after_an_error() -> None:
    """The error is returned, and the nodes after it are left alone."""
    begun = []

    def run(node: str) -> None:
        begun.append(node)
        raise PartialError(node, fix="")

    (error,) = roll({"a": ["x", "y", "z"]}, None, run)

    assert (error.what, begun) == ("x", ["x"])


@pytest.mark.parametrize(
    "carry_out",
    [
        lambda run: roll({"a": ["a0", "a1"], "b": ["b0", "b1"]}, None, run),
        lambda run: ask_each(["a0", "b0", "c0"], run, 2),
    ],
    ids=["roll", "ask_each"],
)
def test_an_interrupt_waits_for_what_is_begun(carry_out: Callable[[Callable[[str], None]], object]) -> None:
    """It still needs the lock and the connections of the caller; nothing else is begun."""
    handler, main = signal.signal(signal.SIGINT, signal.default_int_handler), get_ident()
    begun, ended = list[str](), list[str]()

    def run(node: str) -> None:
        begun.append(node)
        sleep(0.1)
        if node == "a0":
            signal.pthread_kill(main, signal.SIGINT)
        sleep(0.1)
        ended.append(node)

    try:
        with pytest.raises(KeyboardInterrupt):
            carry_out(run)
        assert sorted(begun) == sorted(ended) == ["a0", "b0"]
    finally:
        signal.signal(signal.SIGINT, handler)
