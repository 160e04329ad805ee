"""`bedplate capacity decide` as a filter, and its JSON."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import memory_document, parse_observation, read_memory
from bedplate.cli import run
from bedplate.errors import InputError

Printed = pytest.CaptureFixture[str]
POOL = {
    "name": "train-us-west-2", "group": "train", "rung": 0, "region": "us-west-2", "zones": ["us-west-2a"],
    "type": "p5.48xlarge", "market": "on-demand", "gpus": 8, "cpus": 192, "memory": 2000.0, "price": 55.0,
    "labels": {"group": "train"}, "taints": ["nvidia.com/gpu"], "minimum": 0, "maximum": 4, "desired": 0,
}  # fmt: skip
POD = {
    "id": "job-1", "arrival": 0.0, "gpus": 8, "cpus": 5.0, "memory": 40, "selector": {"group": "train"},
    "tolerations": ["nvidia.com/gpu"], "gang": None, "movable": True, "node": None, "since": 0.0, "restarts": 0,
}  # fmt: skip
NODE = {
    "name": "n", "machine": "i-1", "labels": {}, "taints": [], "gpus": 8, "cpus": 8, "memory": 8, "free_gpus": 8,
    "free_cpus": 8, "free_memory": 8, "pods": [], "joined": 0, "idle_since": 0, "cordoned": None,
}  # fmt: skip
FAILURE = {
    "id": 7, "pool": "train-us-west-2", "zone": "us-west-2a", "time": 25.0, "ok": False,
    "code": "InsufficientInstanceCapacity", "count": 1, "before": 0, "after": 1,
}  # fmt: skip


def _line(**values: Any) -> str:  # noqa: ANN401
    empty: dict[str, object] = {"pods": [], "nodes": [], "machines": [], "pools": [POOL], "activities": []}
    return json.dumps({"time": 30.0, **empty, **values}) + "\n"


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> Any:  # noqa: ANN401
    """Return a function that runs the command with lines on stdin, and returns its status, decisions and stderr."""

    def call(*lines: str, options: tuple[str, ...] = ()) -> tuple[int, list[Any], str]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("".join(lines).encode())))
        status = run(["capacity", "decide", *options])
        printed = capsys.readouterr()
        return status, [json.loads(line) for line in printed.out.splitlines()], printed.err

    return call


def test_one_decision_a_line(decisions: Any) -> None:  # noqa: ANN401
    """Actions have a reason; a pod that fits nothing is reported in the first of two decisions."""
    large = {**POD, "id": "large", "gpus": 16}
    status, (first, second), _ = decisions(_line(pods=[POD, large]), _line(time=60.0, pods=[POD, large]))
    assert status == 0
    (action,) = first["actions"]
    assert action | {"reason": ""} == {"do": "set-desired", "pool": "train-us-west-2", "count": 1, "reason": ""}
    assert action["reason"]
    assert [report["pod"] for report in first["unplaced"]] == ["large"]
    assert second["unplaced"] == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "invalid JSON"),
        ("[]\n", "must be an object"),
        (_line(pods={}), "pods must be a list"),
        (_line(pods=[{**POD, "gpus": "8"}]), "pods[0].gpus must be an integer"),
        (_line(pods=[{**POD, "gpus": True}]), "pods[0].gpus must be an integer"),
        (_line(pods=[{"id": "a"}]), "pods[0].arrival is missing"),
        (_line(pods=[{**POD, "spread": "zone"}]), "pods[0].spread must be a list"),
        (_line(pods=[{**POD, "spread": [{"domain": "zone"}]}]), "pods[0].spread[0].pods is missing"),
        (_line(nodes=[{**NODE, "cordoned": "robot"}]), "nodes[0].cordoned must be '"),
        (_line(pools=[{**POOL, "zones": []}]), "pools[0].zones must not be empty"),
        (
            _line(machines=[{"id": "i-1", "pool": "gone", "zone": "a", "launched": 0}]),
            "machines[0].pool: no pool named",
        ),
        (_line(time=None), "time must be a number"),
        (_line(settings={"idle": "600"}), "settings.idle must be a number"),
    ],
)
def test_a_malformed_line_is_refused_by_its_number(decisions: Any, line: str, what: str) -> None:  # noqa: ANN401
    """Exit 2 with the place of the value; decisions on the lines before it stay."""
    status, documents, errors = decisions(_line(pods=[POD]), line)
    assert (status, len(documents)) == (2, 1)
    assert what in errors
    assert "stdin, line 2" in errors


def test_unknown_keys_are_ignored_and_optional_ones_have_defaults() -> None:
    """A newer writer and an older reader understand each other."""
    observation = parse_observation(_line(pods=[POD | {"later": 1}], more={}))
    assert (observation.settings.idle, observation.pods[0].spread, observation.pools[0].eligible) == (600.0, (), True)


def test_a_failure_of_a_zone_counts_for_the_pool_unless_it_is_zonal() -> None:
    """The protocol reports one failure for all zones of a pool; a recording of AWS has one for each zone."""
    pool = {**POOL, "zones": ["us-west-2a", "us-west-2b"], "desired": 1}
    whole = parse_observation(_line(pods=[POD], pools=[pool], activities=[FAILURE]))
    zonal = parse_observation(_line(pods=[POD], pools=[pool], activities=[FAILURE | {"zonal": True}]))
    assert decide(whole, Memory())[0].actions
    assert not decide(zonal, Memory())[0].actions


def test_the_state_file_keeps_the_memory(decisions: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """A second process knows the breakers of the first; another file is refused."""
    state = tmp_path / "state.json"
    decisions(_line(activities=[FAILURE]), options=("--state", str(state)))
    memory = read_memory(state.read_text(encoding="utf-8"))
    assert read_memory(memory_document(memory)) == memory
    _, (later,), _ = decisions(_line(time=60.0, pods=[POD]), options=("--state", str(state)))
    assert later["actions"] == []
    state.write_text('{"breakers": 3}', encoding="utf-8")
    status, _, errors = decisions(_line(), options=("--state", str(state)))
    assert status == 2
    assert "is not a state" in errors
    with pytest.raises(InputError):
        read_memory("[]")
