"""The capacity controller on a real control plane with fake nodes, and Auto Scaling groups in moto."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from bedplate.account.client import AwsClient
from bedplate.account.groups import FleetGroups
from bedplate.capacity.observation import Action, Cordon, CordonNode, DrainNode, Observation, SetDesired, UncordonNode
from bedplate.cli import run
from bedplate.kubernetes.client import ClusterClient, Conflict, Expired, TooManyRequests, open_cluster
from bedplate.kubernetes.desired import volume_objects
from bedplate.kubernetes.lease import IDLE, NAMESPACE, Leadership, StateStore, read_holder
from bedplate.picture.timeline import timeline
from bedplate.spec.groups import Nodes, Rung
from roles.base import file_text
from tests.testlab.fleets.sketch import with_group
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.capacity import CapacityLab, capacity_lab, wait_for
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until

pytestmark = pytest.mark.nightly

REGIONS = ("us-west-2", "us-east-1", "eu-north-1")
NO_CAPACITY = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested."
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "capacity-real.svg"
COUNT, STAY = 200, 50


@pytest.fixture
def lab(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CapacityLab]:
    """Yield the lab with no machines."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    template = next(pool for pool in lab_plan().pools if pool.group == "train" and pool.market == "on-demand")
    ladder = tuple(Rung(region=region) for region in REGIONS)
    template = with_group(template, ladder=ladder, fabric=None, nodes=Nodes(min=0, max=200))
    pools = tuple(
        replace(template, name=f"gpu-{region}", group="gpu", zones=(f"{region}a",), rung=rung, min=0, max=most)
        for rung, (region, most) in enumerate(zip(REGIONS, (200, 120, 200), strict=True))
    )
    with capacity_lab(control_plane, namespace, replace(lab_plan(), pools=pools)) as lab:
        yield lab
    client = control_plane.client()
    client.deletecollection(Lease, namespace=NAMESPACE)
    for node in list(client.list(Node)):
        client.delete(Node, str(node.metadata.name if node.metadata else ""))
    # The next test must not see them: on a busy machine deletions take a while.
    assert wait_until(lambda: not list(client.list(Node)))


def test_a_burst_spills_over_three_regions_and_ends(lab: CapacityLab, request: pytest.FixtureRequest) -> None:
    """The first region has no capacity: every pod runs in the others, in ladder order; later only work stays.

    With `--rewrite` the timeline becomes the plot of docs/capacity.md.
    """
    lab.cloud.empty["lab-gpu-us-west-2"] = NO_CAPACITY
    control = lab.controller()
    control.step()
    lab.add_pods(COUNT, 8, annotations={"bedplate/movable": "false"})

    control.until(lambda: lab.running() == COUNT)

    assert lab.machines.launched == COUNT
    desired = {pool.name: pool.desired for pool in control.controller.observe(lab.now()).pools}
    assert desired == {"gpu-us-west-2": 0, "gpu-us-east-1": 120, "gpu-eu-north-1": COUNT - 120}
    # No launch template is proven: a few machines start in each region, then the others where there is capacity.
    few = zip(REGIONS, (4, 2, 2), strict=True)
    assert lab.cloud.requests[:3] == [(f"lab-gpu-{region}", count) for region, count in few]
    assert lab.cloud.requests[3] == ("lab-gpu-us-west-2", 0)

    def uids() -> set[str]:
        return {str(pod.metadata.uid) for pod in lab.pods() if pod.metadata}

    for number in range(STAY, COUNT):
        lab.client.delete(Pod, f"job-{number}", namespace=lab.namespace, grace_period=0)
    stay = uids()
    control.until(lambda: len(control.controller.observe(lab.now()).machines) == STAY, rounds=200)
    assert (uids(), lab.running()) == (stay, STAY), "work is not ended"

    lab.client.deletecollection(Pod, namespace=lab.namespace, grace_period=0)
    control.until(lambda: not control.controller.observe(lab.now()).machines, rounds=200)
    assert lab.machines.launched == COUNT
    if request.config.getoption("--rewrite"):
        begin = control.frames[0].time
        frames = [replace(frame, time=frame.time - begin) for frame in control.frames]
        title = "1,600 GPUs over three regions, the first without capacity: a real control plane"
        PICTURE.write_text(timeline(title, frames), encoding="utf-8")


def test_a_pod_with_a_volume_of_a_site_starts_no_machine_in_the_cloud(lab: CapacityLab) -> None:
    """The volume of its claim is at the site: a machine of a region would stand empty beside it."""
    items = [
        item for item in volume_objects(lab_plan()) if item["metadata"]["name"] in ("grace.cellar-data", "cellar-data")
    ]
    volume = next(item for item in items if item["kind"] == "PersistentVolume")
    claim = next(item for item in items if item["metadata"].get("namespace") == "grace")
    claim["metadata"]["namespace"] = volume["spec"]["claimRef"]["namespace"] = lab.namespace
    container = {"name": "c", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": "cellar-data"}}
    spec = {"containers": [container], "volumes": [mount], "tolerations": [{"operator": "Exists"}]}
    lab.client.create(cast("PersistentVolume", PersistentVolume.from_dict(volume)))
    lab.client.create(cast("PersistentVolumeClaim", PersistentVolumeClaim.from_dict(claim)))
    try:
        control = lab.controller()
        metadata = {"name": "reader", "namespace": lab.namespace}
        lab.client.create(cast("Pod", Pod.from_dict({"metadata": metadata, "spec": spec})))
        wait_for(lambda: [pod.unsupported for pod in control.controller.observe(lab.now()).pods] == [""])

        result = control.step()

        assert result
        assert result.decision.actions == ()
        assert ["cellar" in report.reason for report in result.decision.unplaced] == [True]
    finally:
        lab.client.delete(PersistentVolume, "grace.cellar-data", grace_period=0)


def test_a_quiet_round_makes_as_many_calls_with_many_pods(lab: CapacityLab) -> None:
    """Pods and nodes come from watches: a round asks neither AWS nor the API server more often."""
    control = lab.controller()
    counts: list[Counter[str]] = []
    pods = 0
    for more in (2, 90):
        lab.add_pods(more, 0, prefix=f"of-{more}")
        pods += more
        control.until(lambda: lab.running() == pods)  # noqa: B023  called before the next turn
        control.step()
        with pytest.MonkeyPatch.context() as patch:
            counts.append(_counted(patch))
            result = control.step()
        assert result
        assert not result.decision.actions
        assert len(result.observation.pods) == pods

    assert counts[0] == counts[1]
    assert counts[0]["AwsClient.pages"] > 0


def _counted(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of the clients from now on."""
    calls: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            calls[f"{owner.__name__}.{name}"] += 1
            return real(*args, **options)

        patch.setattr(owner, name, wrapper)

    for owner, name in ((ClusterClient, "call"), (AwsClient, "call"), (AwsClient, "pages")):
        count(owner, name)
    return calls


def test_a_controller_that_is_killed_between_actions_is_continued(lab: CapacityLab) -> None:
    """Its successor sees what was done: no machine is started twice."""
    lab.add_pods(4, 8)
    first = lab.controller()
    done: list[Action] = []

    def killed(action: SetDesired, observed: Observation) -> None:
        FleetGroups.set_desired(first.groups, action, observed)
        done.append(action)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.groups, "set_desired", killed)
        with pytest.raises(KeyboardInterrupt):
            first.controller.round(lab.now())

    second = lab.controller()
    second.until(lambda: lab.running() == 4)
    assert (len(done), lab.machines.launched) == (1, 4)


def test_of_two_controllers_one_acts(lab: CapacityLab) -> None:
    """The other takes over when the Lease is released, and starts nothing a second time."""
    first, second = lab.controller(identity="a"), lab.controller(identity="b")
    lab.add_pods(2, 8)

    assert first.controller.round(lab.now()) is not None
    assert second.controller.round(lab.now()) is None
    leader = first.controller.leader
    assert isinstance(leader, Leadership)
    leader.release()
    second.until(lambda: lab.running() == 2)

    assert first.step() is None
    assert lab.machines.launched == 2


def test_two_controllers_without_an_election_double_nothing(lab: CapacityLab) -> None:
    """Both act on the same observation; numbers are absolute, and a changed group is left alone."""
    lab.add_pods(3, 8)
    runs = lab.controller(), lab.controller()
    seen = [control.controller.observe(lab.now()) for control in runs]
    for control, observation in zip(runs, seen, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control.controller, "observe", {0.0: observation}.__getitem__)
            control.controller.round(0.0)

    first = runs[0]
    first.until(lambda: lab.running() == 3)
    assert lab.machines.launched == 3


def test_a_cut_watch_is_continued(lab: CapacityLab) -> None:
    """While the API server is away nothing is decided on old copies for ever; after it, changes are seen again."""
    control = lab.controller()
    lab.plane.stop_server()
    time.sleep(1)
    lab.plane.start_server()
    lab.add_pods(1, 8)

    control.until(lambda: lab.running() == 1)


def test_an_expired_version_is_answered_by_a_new_list(lab: CapacityLab) -> None:
    """A watch from a version that the API server no longer has raises Expired."""
    client = ClusterClient(lab.client)
    lab.plane.stop_server()
    lab.plane.start_server()

    with pytest.raises(Expired):
        list(client.events(Node, "1", 1))


def test_a_disruption_budget_delays_a_drain(lab: CapacityLab) -> None:
    """The pod stays until the budget permits its eviction; a pod that may not move stays in any case."""
    control = lab.controller()
    lab.add_pods(1, 4, labels={"app": "x"}, annotations={"bedplate/movable": "true"})
    lab.add_pods(1, 4, prefix="fixed")
    control.until(lambda: lab.running() == 2)
    name = str(next(pod.spec.nodeName for pod in lab.pods() if pod.spec))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    meta = {"name": "b", "namespace": lab.namespace}
    document = {"metadata": meta, "spec": budget}
    lab.client.create(cast("PodDisruptionBudget", PodDisruptionBudget.from_dict(document)))
    time.sleep(1)

    with pytest.raises(TooManyRequests, match="disruption budgets keep"):
        control.live.apply(DrainNode(name, "spot notice"))
    assert lab.running() == 2
    lab.client.delete(PodDisruptionBudget, "b", namespace=lab.namespace)
    wait_for(lambda: control.node(name).cordoned is Cordon.PLANNER)
    control.live.apply(DrainNode(name, "spot notice"))
    wait_for(lambda: [pod.metadata.name for pod in lab.pods() if pod.metadata] == ["fixed-0"])
    with pytest.raises(Conflict, match="has work"):
        control.live.check_empty(name)


def test_a_pod_that_does_not_end_is_no_work(lab: CapacityLab) -> None:
    """A deleted pod with a finalizer stays: a quarter of an hour after its time to end, its node counts as empty."""
    control = lab.controller()
    lab.add_pods(1, 8, finalizers=["bedplate.test/stays"])
    control.until(lambda: lab.running() == 1)
    (name,) = control.live.nodes.objects()
    control.live.apply(CordonNode(name, "idle"))
    wait_for(lambda: control.node(name).cordoned is Cordon.PLANNER)
    lab.client.delete(Pod, "job-0", namespace=lab.namespace)
    try:
        with pytest.raises(Conflict, match="has work"):
            control.live.check_empty(name)
        lab.ahead += 1000
        control.live.check_empty(name)
        wait_for(lambda: control.node(name).stuck == (f"{lab.namespace}/job-0",))
        assert control.node(name).pods == ()
    finally:
        lab.client.patch(Pod, "job-0", {"metadata": {"finalizers": None}}, namespace=lab.namespace)


def test_a_cordon_of_a_person_stays(lab: CapacityLab) -> None:
    """The controller neither uncordons nor ends such a node, and forgets an own cordon that a person undid."""
    control = lab.controller()
    lab.add_pods(1, 8)
    control.until(lambda: lab.running() == 1)
    (node,) = control.live.nodes.objects()
    control.live.apply(CordonNode(node, "idle"))
    wait_for(lambda: control.node(node).cordoned is Cordon.PLANNER)
    lab.plane.kubectl("uncordon", node)
    wait_for(lambda: control.node(node).cordoned is None)
    control.live.forget_stale_cordons()
    lab.plane.kubectl("cordon", node)
    wait_for(lambda: control.node(node).cordoned is Cordon.HUMAN)

    with pytest.raises(Conflict, match="cordoned by a person"):
        control.live.apply(UncordonNode(node, "pending pods"))
    with pytest.raises(Conflict, match="not cordoned by the controller"):
        control.live.check_empty(node)


def test_a_stale_observation_changes_no_node(lab: CapacityLab) -> None:
    """A cordon is conditional on the version of the node that was observed."""
    control = lab.controller()
    lab.add_pods(1, 8)
    control.until(lambda: lab.running() == 1)
    ((name, stale),) = control.live.nodes.objects().items()
    lab.plane.kubectl("label", "node", name, "seen=no")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control.live.nodes, "objects", lambda: {name: stale})
        with pytest.raises(Conflict):
            control.live.apply(CordonNode(name, "idle"))


def test_the_role_gives_the_rights_that_the_controller_needs(lab: CapacityLab) -> None:
    """And no others: the user of a member's controller reads no Secret and deletes no node."""
    rights = file_text("capacity/rights.yaml")
    lab.plane.kubectl("apply", "-f", "-", text=rights)
    control = lab.controller(identity="a", client=open_cluster(lab.plane.kubeconfig("bedplate:capacity")))
    lab.add_pods(1, 8)
    control.until(lambda: lab.running() == 1)
    (node,) = control.live.nodes.objects()
    control.live.apply(CordonNode(node, "idle"))
    control.live.report(CordonNode(node, "idle"))
    StateStore(control.live.client).write({IDLE: control.live.state()})

    events = [event.message for event in lab.client.list(Event, namespace="default")]
    assert "idle" in events
    for words in (("get", "secrets"), ("delete", "node", node), ("get", "configmaps", "-n", "kube-system")):
        assert "forbidden" in lab.plane.try_kubectl(*words, user="bedplate:capacity").stderr


def test_the_command_runs_rounds_and_explains(
    lab: CapacityLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each action, metrics, the recorded observation; a dry run changes nothing."""
    monkeypatch.setattr("bedplate.operate.capacity.controller_inputs", lambda _: (lab.plan, AwsClient(lab.cloud)))
    metrics, record = tmp_path / "capacity.prom", tmp_path / "record.jsonl"
    common = ["--kubeconfig", str(lab.plane.kubeconfig()), "--once"]
    lab.add_pods(2, 8)

    assert run(["capacity", "run", *common, "--dry-run"]) == 0
    assert lab.cloud.requests == []
    assert run(["capacity", "run", *common, "--metrics", str(metrics), "--record", str(record)]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["do"], line["pool"], line["count"], line.get("dry_run")) for line in lines] == [
        ("set-desired", "gpu-us-west-2", 2, True),
        ("set-desired", "gpu-us-west-2", 2, None),
    ]
    assert "bedplate_capacity_pending_pods 2\n" in metrics.read_text()
    assert len(json.loads(record.read_text())["pods"]) == 2
    assert read_holder(ClusterClient(lab.client)) == ""


def test_a_successor_knows_since_when_nodes_are_idle(lab: CapacityLab) -> None:
    """The leader writes it, and the next one reads it; after a longer gap idle times begin anew."""
    first = lab.controller()
    lab.add_pods(1, 8)
    first.until(lambda: lab.running() == 1)
    lab.client.deletecollection(Pod, namespace=lab.namespace, grace_period=0)
    (name,) = first.live.nodes.objects()
    wait_for(lambda: first.node(name).idle_since is not None)
    state, since = first.live.state(), first.node(name).idle_since
    lab.ahead += 200
    second, third = lab.controller(), lab.controller()
    second.live.restore(state)
    lab.ahead += 200
    third.live.restore(state)

    assert second.node(name).idle_since == pytest.approx(since, abs=1)
    assert third.node(name).idle_since == pytest.approx(third.live.since)


def test_a_successor_knows_which_rungs_have_failed(lab: CapacityLab) -> None:
    """A rung whose breaker the last leader opened gets no machine, also when AWS's failure is too old to be read."""
    lab.cloud.empty["lab-gpu-us-west-2"] = NO_CAPACITY
    lab.add_pods(1, 8)
    first, second = lab.controller(identity="a"), lab.controller(identity="b")
    first.loop.run_once()
    lab.ahead += 200
    first.loop.run_once()
    assert [name for name, _ in lab.cloud.requests] == [
        f"lab-gpu-{region}" for region in REGIONS[:1] * 2 + REGIONS[1:2]
    ]
    assert isinstance(first.controller.leader, Leadership)
    first.controller.leader.release()

    lab.ahead += 200
    lab.add_pods(2, 8, prefix="later")
    wait_for(lambda: len(second.live.pods.objects()) == 3)
    second.loop.run_once()
    # No launch template is proven yet, so the third region starts a machine as well.
    assert {name for name, _ in lab.cloud.requests[3:]} == {"lab-gpu-us-east-1", "lab-gpu-eu-north-1"}
