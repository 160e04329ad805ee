"""Sentences of `capacity explain`, the log and metrics, recorded observations, and rounds of the controller."""

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from lightkube import ApiError, Client

from bedplate.capacity.controller import Controller, Metrics, Outcome, Round, log_entry
from bedplate.capacity.ladder import Breaker
from bedplate.capacity.observation import (
    Action,
    Activity,
    Cordon,
    CordonNode,
    Decision,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    Reason,
    SetDesired,
    Settings,
    SetZones,
    Size,
    Spread,
    Terminate,
    Unplaced,
)
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import observation_document, parse_observation
from bedplate.errors import BedplateError, MachineError, PartialError
from bedplate.kubernetes.client import ClusterClient, Pauses, TooManyRequests
from bedplate.operate.capacity_loop import PERIOD, Loop, Outputs
from bedplate.report.capacity_state import CapacityState, explain_group, explain_pod, status_lines
from bedplate.spec.groups import Market

NOW = 1_795_410_000.0
EIGHT = Size(gpus=8, cpus=100, memory=1000)
WEST = Pool("west", "train", 0, "us-west-2", ("us-west-2a",), 0, 4, 2, size=EIGHT, price=50.0)
EAST = Pool("east", "train", 1, "us-east-1", ("us-east-1a",), 0, 8, 3, size=EIGHT, price=50.0, market=Market.SPOT)
POD = Pod("ada/llm-0", NOW - 240, Size(gpus=8, cpus=4))


def observation(count: int = 4, /, **changes: Any) -> Observation:  # noqa: ANN401
    """Return a failed first rung and a second one with an idle node, a booting machine and one not launched yet."""
    failed = Activity("1", "west", NOW - 120, ok=False, zone="us-west-2a", code="InsufficientInstanceCapacity")
    machines = (
        Machine("i-1", "east", "us-east-1a", NOW - 900, node="n1"),
        Machine("i-2", "east", "us-east-1a", NOW - 120),
    )
    node = Node("n1", "i-1", {}, frozenset(), EIGHT, EIGHT, joined=NOW - 700, idle_since=NOW - 60)
    waiting = tuple(replace(POD, id=f"ada/llm-{number}") for number in range(count))
    return replace(Observation(NOW, waiting, (node,), machines, (replace(WEST, desired=0), EAST), (failed,)), **changes)


def state(seen: Observation | None = None, memory: Memory | None = None, **changes: Any) -> CapacityState:  # noqa: ANN401
    """Return an observation with the planner's decision on it."""
    seen = seen or observation()
    decision, left = decide(seen, memory or Memory())
    fields = {"leader": "control-1", "breakers": left.breakers, **changes}
    return CapacityState(seen, **{"decision": decision, **fields})


def test_a_group_is_explained_in_sentences() -> None:
    """Machines, each rung with its reason, nodes, the place of each waiting pod, and the next action."""
    assert list(explain_group(state(), "train")) == EXPLAINED.splitlines()


EXPLAINED = """\
train has 2 machines, 1 of them booting, for 100.00 USD per hour at list prices.
Rung 1 us-west-2a on-demand: 0 of at most 4 machines; skipped since 05:00 UTC: no capacity in us-west-2a \
(InsufficientInstanceCapacity). Pods use the next rungs. From 05:05 UTC a pending pod can start one machine as a \
probe. To change that: wait, or add a rung to the ladder: another zone, type, market or region.
Rung 2 us-east-1a spot: 2 of at most 8 machines; AWS is launching 1 more.
n1: idle for 1 min; it ends in 9 min unless a pod needs it.
4 pods wait that could run here, the oldest for 4 min: ada/llm-0, ada/llm-1, ada/llm-2, ada/llm-3.
4 of them have a place: on a machine that runs or boots, or that AWS is asked for next.
Next: raise the desired number of east from 3 to 4: 1 more because 4 pods wait; not used: west: no capacity in \
us-west-2a (next probe in 5 min).
"""
PROBED = Breaker(
    "InstanceNotReady", "3 machines did not become nodes", NOW - 600, NOW - 60, probe=NOW - 30, needs_node=True
)
LOST = replace(observation().nodes[0], not_ready_since=NOW - 3600)
DUE = Breaker(None, "no machine after 5 minutes", NOW - 600, NOW - 60)
STATES: Mapping[str, tuple[Observation, Breaker | None]] = {
    "as a probe; the rung is used again when its machine is a node. To change that: `bedplate node logs": (
        observation(0, activities=()),
        PROBED,
    ),
    "no machine after 5 minutes. Pods use the next rungs. The next pending pod starts one": (
        observation(0, activities=()),
        DUE,
    ),
    "ada/llm-3 and 2 more have no place yet: east: at its maximum of 3.": (
        observation(6, pools=(replace(EAST, max=3),)),
        None,
    ),
    "`groups.train.max_cost` (160) permits no more machines: 150.00 USD per hour are in use, and one more machine": (
        observation(6, settings=Settings(max_cost={"train": 160.0})),
        None,
    ),
    "ada/llm-3 has no place yet: west: no capacity in us-west-2a (next probe in 5 min); east: one more machine exceeds "
    "the ceiling of 160 USD per hour.": (observation(4, settings=Settings(fleet_max_cost=160.0)), None),
    "n1: it reports 0 CPUs, a machine of east has 100. Restart kubelet there, or end it by `bedplate node stop i-1`.": (
        observation(0, nodes=(replace(observation().nodes[0], size=Size(8, 0, 1000)),)),
        None,
    ),
    "n1: its health gate finds broken software: the machine stays, and takes no new pods. `kubectl describe node`": (
        observation(0, nodes=(replace(observation().nodes[0], failed="software"),)),
        None,
    ),
    "n1: its health gate finds broken hardware: the machine is drained and replaced, unless half of its pool": (
        observation(0, nodes=(replace(observation().nodes[0], failed="hardware"),)),
        None,
    ),
    "n1: its health gate finds no answer: the machine stays": (
        observation(0, nodes=(replace(observation().nodes[0], failed="unknown"),)),
        None,
    ),
    "n1: it reports 7 GPUs, a machine of east has 8. Its machine is replaced if that lasts": (
        observation(0, nodes=(replace(observation().nodes[0], size=Size(7, 100, 1000)),)),
        None,
    ),
    "n1: not ready since 2026-11-23 04:00 UTC; its machine is ended after an hour.": (
        observation(0, nodes=(LOST,)),
        None,
    ),
    "n1: not ready since 2026-11-23 04:00 UTC. Its machine runs on for pods a/1, a/2, a/3 and 1 more. If the machine "
    "is lost, `bedplate node stop i-1` ends it, and its pods start elsewhere.": (
        observation(0, nodes=(replace(LOST, pods=("a/1", "a/2", "a/3", "a/4")),)),
        None,
    ),
    "n1: its kubelet does not end the deleted pod ada/x; they do not keep it.": (
        observation(0, nodes=(replace(observation().nodes[0], stuck=("ada/x",)),)),
        None,
    ),
    "it stays: train keeps 1 spare machine.": (observation(0, settings=Settings(spare={"train": 1})), None),
    "it stays: east is at its minimum of 3.": (observation(0, pools=(replace(EAST, min=3),)), None),
}


@pytest.mark.parametrize("sentence", STATES)
def test_each_state_of_a_group_has_a_sentence(sentence: str) -> None:
    """`explain` says what happens, why, and what would change it."""
    seen, breaker = STATES[sentence]
    memory = Memory(breakers={"west": breaker} if breaker else {})

    assert sentence in "\n".join(explain_group(state(seen, memory), "train"))


def test_a_pod_says_where_its_place_is() -> None:
    """Each of the four kinds of places."""
    places = ("n1 has room now", "i-2 of east is booting", "AWS is launching a machine of east")
    for pod, place in zip(observation().pods, (*places, "a machine of east is launched next"), strict=True):
        assert f"It has a place: {place}." in list(explain_pod(state(), pod))


def test_a_gang_without_room_says_what_each_rung_lacks() -> None:
    """The pod waits with its whole gang."""
    gang = tuple(replace(POD, id=f"ada/g-{at}", gang="ada/g", gang_size=9) for at in range(9))
    lines = list(explain_pod(state(observation(pods=gang)), gang[0]))

    assert lines[0] == "ada/g-0 waits with the 9 pods of ada/g for 4 min. It asks for 8 GPUs, 4 CPUs."
    assert lines[3] == (
        "It has no place yet: no zone has room for all 9 pods of ada/g: west: no capacity in us-west-2a (next probe in "
        "5 min); east: room for 5 machines."
    )


def test_a_paused_group_says_who_has_paused_it() -> None:
    """The status also has the command that continues."""
    paused = observation(settings=Settings(paused=frozenset({"train"})))
    lines = list(explain_group(state(paused, paused={"train": "ada"}), "train"))

    assert "ada has paused it" in lines[1]
    assert "capacity resume train" in lines[1]
    assert lines[4] == "n1: idle for 1 min; it stays: train is paused."
    assert lines[-1] == "Next: no action until pods, machines or AWS change, or an idle time ends."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"selector": {"disk": "ssd"}}, "its disk is missing, not ssd"),
        ({"size": Size(gpus=16)}, "it has 8 GPUs, not 16"),
        ({"size": Size(memory=2000)}, "it has 1000 GiB of memory, not 2000"),
    ],
)
def test_a_pod_that_fits_no_rung_has_a_reason(change: Mapping[str, Any], words: str) -> None:
    """Each rung has a reason, and so has the planner."""
    pod = replace(POD, **change)
    lines = list(explain_pod(state(observation(pods=(pod,))), pod))

    assert lines[1] == f"train, rung 1 us-west-2a on-demand: does not suit the pod: {words}."
    assert lines[-1].startswith("No machine is started for it: no pool fits; ")


def test_a_pending_pod_has_the_words_of_the_scheduler() -> None:
    """Also while a node has room for it: the scheduler may know more."""
    pod = replace(POD, message="0/1 nodes are available: 1 node(s) had no free ports")
    lines = list(explain_pod(state(observation(pods=(pod,))), pod))

    assert "It has a place: n1 has room now." in lines
    assert "The scheduler says: 0/1 nodes are available: 1 node(s) had no free ports" in lines


def test_cordons_say_whose_they_are() -> None:
    """A person's cordon is never undone; the controller's own may be."""

    def sentence(cordon: Cordon, *pods: str) -> str:
        seen = observation(0)
        cordoned = replace(seen, nodes=(replace(seen.nodes[0], cordoned=cordon, pods=pods),))
        return next(line for line in explain_group(state(cordoned), "train") if "n1" in line)

    assert "a person has cordoned it, so it is neither used nor ended" in sentence(Cordon.HUMAN)
    assert "cordoned by the controller; it is used again if pods need it, else it ends" in sentence(Cordon.PLANNER)
    assert "drained by the controller, 1 pod left; it ends when it is empty" in sentence(Cordon.PLANNER, "ada/x")


def test_the_status_has_a_line_for_each_rung() -> None:
    """The line has machines, price and state; the leader and pods are below."""
    lines = list(status_lines(state()))

    assert [line.split()[-1] for line in lines[1:3]] == ["capacity", "launching"]
    assert lines[3:] == ["4 pods without a node", "the controller on control-1 acts"]
    assert list(status_lines(state(observation(0, nodes=(LOST,)))))[4].startswith("warning: n1: not ready since")


def test_a_recorded_observation_has_the_keys_of_the_protocol() -> None:
    """JSON with plain lists and numbers; sizes are flat."""
    document = json.loads(json.dumps(observation_document(observation())))

    assert {"id", "arrival", "gpus", "cpus", "memory", "selector", "tolerations", "gang", "movable"} <= set(
        document["pods"][0]
    )
    assert document["nodes"][0]["free_gpus"] == document["pools"][1]["gpus"] == 8
    assert document["pools"][1]["taints"] == []


def test_a_recorded_observation_is_read_as_it_was() -> None:
    """With limits of spread, and with nodes that are not ready."""
    limit = Spread("topology.kubernetes.io/zone", "spread: ada: app=web", 2, 3)
    pods = (replace(POD, spread=(limit,), kinds=frozenset({limit.pods}), deleted=True),)
    seen = observation(pods=pods, nodes=(replace(LOST, stuck=("ada/x",)),))

    read = parse_observation(json.dumps(observation_document(seen)))

    assert read.pods == seen.pods
    assert (read.nodes[0].stuck, read.nodes[0].not_ready_since) == (("ada/x",), NOW - 3600)


class _World:
    """AWS and a cluster that refuse some actions."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.done, self.reported = refused, [], []  # type: tuple[str, ...], list[str], list[str]

    def observe(self, _: Any) -> Observation:  # noqa: ANN401
        return observation()

    def _do(self, word: str) -> None:
        if word in self.refused:
            raise PartialError(f"{word} refused")
        self.done.append(word)

    def set_desired(self, action: SetDesired | SetZones, observed: Observation) -> None:
        assert observed.pools
        self._do(action.pool)

    set_zones = set_desired

    def terminate(self, action: Terminate, observed: Observation) -> None:
        assert observed.pools
        self._do(action.machine)

    def apply(self, action: Action) -> None:
        self._do(type(action).__name__)

    def check_empty(self, name: str) -> None:
        self._do(f"check {name}")

    def report(self, action: Action, *, failure: str = "") -> None:
        self.reported.append(f"{type(action).__name__} {failure}".strip())

    def report_unplaced(self, pod: str, reason: str) -> None:
        self.reported.append(f"{pod}: {reason}")


def _round(world: _World, *actions: Action, **options: Any) -> Round:  # noqa: ANN401
    decision = Decision(actions, (Unplaced("ada/x", Reason("too large")),))
    result = Controller(world, lambda _seen, memory: (decision, memory), None, world, **options).round(NOW)
    assert result
    return result


END = Terminate("i-1", decrement=True, reason="idle")


def test_a_machine_is_ended_only_after_its_node_was_found_empty() -> None:
    """The check asks the API server itself."""
    world = _World("check n1")
    result = _round(world, END, SetDesired("east", 4, "pods"))

    assert world.done == ["east"]
    assert result.outcomes[0].failure == "check n1 refused"
    assert world.reported == ["Terminate check n1 refused", "SetDesired", "ada/x: too large"]


def test_after_a_failure_the_same_machine_waits_for_the_next_round() -> None:
    """A machine whose cordon failed is not ended."""
    world = _World("CordonNode")
    _round(world, CordonNode("n1", "idle"), END)

    assert world.done == []


def test_a_dry_run_changes_nothing() -> None:
    """A dry run decides the same, and reports nothing either."""
    dry = _World()

    assert _round(dry, END, is_dry=True).decision.actions == (END,)
    assert dry.done == dry.reported == []


@pytest.mark.parametrize("error", [PartialError("no answer"), RecursionError("no answer"), OverflowError("no answer")])
def test_defect_failed_rounds_do_not_lengthen_the_pause(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The round after many failures of any kind comes as soon as after one, and each failure is a line of the log."""

    def fail(_: float) -> Observation:
        raise error

    world = _World()
    monkeypatch.setattr(world, "observe", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    nothing: Any = SimpleNamespace(restore=lambda _: None, read=dict)
    entries: list[Mapping[str, object]] = []
    outputs = Outputs(entries.append, pytest.fail)
    loop = Loop(Controller(world, decide, Memory(), world), outputs, nothing, nothing)
    pauses: list[float] = []
    stop: Any = SimpleNamespace(is_set=lambda: loop.counts.errors >= 8, wait=pauses.append)
    monkeypatch.setattr(loop, "_stopped", stop)
    loop.run()

    assert sum(pauses) == 8 * PERIOD
    assert sum("no answer" in str(entry["error"]) for entry in entries) == 8


def test_the_log_and_metrics_have_each_action() -> None:
    """One entry an action with its reason; counters by result, gauges by pool."""
    result = Round(
        observation(nodes=(replace(LOST, stuck=("ada/x",)),)),
        Decision((END,)),
        (Outcome(END), Outcome(SetDesired("east", 4, "pods"), "no")),
    )
    metrics = Metrics()
    metrics.add(result, 0.5)
    text = metrics.text()

    assert log_entry(result.outcomes[1], NOW) == {
        "time": NOW, "do": "set-desired", "pool": "east", "count": 4, "reason": "pods", "failure": "no",
    }  # fmt: skip
    assert 'bedplate_capacity_actions_total{do="terminate",result="done"} 1\n' in text
    assert 'bedplate_capacity_usd_per_hour{group="train",pool="east"} 100\n' in text
    assert f"bedplate_capacity_round_timestamp_seconds {NOW:.0f}\n" in text
    assert text.count("# TYPE bedplate_capacity_desired ") == 1
    assert "bedplate_capacity_not_ready_nodes 1\n" in text
    assert "bedplate_capacity_stuck_pods 1\n" in text


def _error(code: int) -> ApiError:
    response = httpx2.Response(code, json={"code": code, "message": "m"}, request=httpx2.Request("GET", "https://k"))
    return ApiError(request=response.request, response=response)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([_error(429), _error(500), _error(503)], None),
        ([httpx2.ConnectError("refused")], None),
        ([_error(429)] * 5, TooManyRequests),
        ([_error(403)], MachineError),
    ],
    ids=["throttled and faults", "no connection", "too many", "no rights"],
)
def test_calls_are_repeated_with_pauses(errors: list[Exception], expected: type[BedplateError] | None) -> None:
    """After 429, 5xx and lost connections, at most five times; other errors are final."""
    left, pauses = list(errors), list[float]()

    def answer(_: Client) -> str:
        if left:
            raise left.pop(0)
        return "ok"

    client = ClusterClient(None, Pauses(pauses.append, lambda: 1.0))  # type: ignore[arg-type]
    if expected:
        with pytest.raises(expected):
            client.call("list Pod", answer)
    else:
        assert client.call("list Pod", answer) == "ok"
        assert pauses == [0.4, 0.8, 1.6][: len(errors)]
