"""Searches: study files, and what a driver decides by the records of trials, also when it is killed at any request."""

import json
import runpy
import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.programs.bp import records
from bedplate.programs.search.edges import StudyRecord
from bedplate.programs.search.optimizer import Optimizer
from bedplate.programs.study import (
    COMPLETE,
    FAILED,
    OPEN,
    STOP,
    STOPPED,
    StudyError,
    command_of,
    grid_size,
    outcome,
    read_study,
    stored_study,
    used_hours,
)
from tests.testlab.fakes.studies import FILE, World, study_of

_LEFT = "bedplate.cause"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("metric = loss", "metrik = loss", "[study] has no `metrik`: write `metric`"),
        ("metric = loss", "", "[study] needs `metric`: the name of a metric that the program logs"),
        ("direction = minimize", "direction = down", "[study] `direction = down`: write minimize or maximize"),
        ("trials = 12", "trials = 0", "[study] `trials = 0`: write a number from 1 to 1000"),
        ("parallel = 4", "budget = 5 hours", "write such as 20 GPU-h, or 100 USD"),
        ("log 1e-5 1e-1", "log 0 1", "`lr = log 0 1`: LOW must be above 0"),
        ("log 1e-5 1e-1", "log 1 1e-5", "LOW must be below HIGH"),
        ("log 1e-5 1e-1", "uniform 0 1", "write float LOW HIGH [STEP], or log LOW HIGH, or int LOW HIGH [STEP]"),
        ("log 1e-5 1e-1", "choice a a", "write each value once"),
        ("int 1 8", "int 1 2.5", "write int LOW HIGH [STEP], as whole numbers"),
        ("int 1 8", "float 0 1e999", "write float LOW HIGH [STEP], as numbers"),
        ("parallel = 4", "sampler = grid", "a grid has no log without steps: write choice VALUE ..."),
        ("{{lr}}", "{{l_r}}", "[run] `command`: {l_r} is no parameter: write {lr}"),
        ("gpus = 1", "", "[run] has no `gpus`"),
        ("--layers", "--layers '", "[run] `command`: No closing quotation: close each quote"),
        ("gpus = 1", "gpus = 1\nenv = A='b c", "[run] `env`: No closing quotation: close each quote"),
        ("gpus = 1", "gpus = 1\ninclude = a\\", "[run] `include`: No escaped character"),
        ("[run]", "[runs]", "[runs] is no section: write [study], [parameters] and [run]"),
        ("[study]", "study", "File contains no section headers"),
        (
            "lr = log 1e-5 1e-1",
            "lr = log 1e-5 1e-1\nlr = int 1 2",
            "option 'lr' in section 'parameters' already exists",
        ),
    ],
)
def test_a_wrong_study_is_refused_with_its_fix(old: str, new: str, fault: str) -> None:
    """Before anything starts."""
    text = FILE.replace(old.replace("12", "{trials}"), new).format(
        more="budget = 1 GPU-h" if "gpus" in old else "", trials=12
    )

    with pytest.raises(StudyError) as caught:
        read_study(text)

    assert fault in "; ".join(caught.value.args)


def test_a_command_goes_on_after_a_backslash() -> None:
    """As in a shell."""
    text = FILE.replace("train.py --lr", "train.py \\\n  --lr").format(more="", trials=12)

    words = shlex.split(read_study(text)["run"]["command"])

    assert words == ["python", "train.py", "--lr", "{lr}", "--layers", "{layers}"]


def test_a_command_gets_the_values_of_a_trial() -> None:
    """Other braces stay."""
    assert command_of(["{lr}", "a{lr}{x}", "${HOME}"], {"lr": "0.1"}) == ["0.1", "a0.1{x}", "${HOME}"]
    assert grid_size("float 0 1 0.1") == 11


@pytest.mark.parametrize(
    ("status", "metrics", "age", "expected"),
    [
        ("RUNNING", {"loss": 1}, 9, (OPEN, "")),
        ("FINISHED", {"loss": 1}, 9, (COMPLETE, "")),
        ("FINISHED", {"loss": 1}, 1, (OPEN, "")),
        ("FINISHED", {"loss": "NaN"}, 9, (FAILED, "its loss is nan")),
        ("FINISHED", {"loss": "Infinity"}, 9, (FAILED, "its loss is inf")),
        ("FINISHED", {"los": 1, "acc": 1}, 9, (OPEN, "")),
        (
            "FINISHED",
            {"los": 1, "a": 1},
            31,
            (FAILED, "it has not logged loss: it has logged a, los, the nearest is los"),
        ),
        ("FINISHED", {}, 31, (FAILED, "it has not logged loss: it has logged no metric")),
    ],
)
def test_the_record_of_a_trial_says_its_outcome(
    status: str, metrics: dict[str, object], age: float, expected: tuple[str, str]
) -> None:
    """A metric may arrive some seconds after the end."""
    end = None if status == "RUNNING" else 1_000_000
    run = {"status": status, "metrics": metrics, "end_time": end, "tags": {"bedplate.state": "ended"}}

    assert outcome(run, study_of()["study"], 1_000 + age) == expected


@pytest.mark.parametrize(
    ("sampler", "pruner"), [("tpe", "asha"), ("random", "hyperband"), ("tpe", "median"), ("random", "none")]
)
def test_a_search_ends_with_all_trials(sampler: str, pruner: str) -> None:
    """With an early stop of some by each pruner."""
    world = World(study_of(f"sampler = {sampler}\npruner = {pruner}", 30), steps=27)

    driver = world.search()

    assert (len(world.runs), driver.ended, world.most) == (30, 30, 4)
    pruned = [cause for _, status, cause in world.states() if status == "KILLED"]
    assert all(cause.startswith("stopped by ada-lr: pruned at step ") for cause in pruned)
    assert bool(pruned) is (pruner != "none")
    assert world.lines[-2:][0] == "ada-lr ends: all 30 trials have ended"
    assert world.lines[-1].startswith("best: ada-lr-")


def test_a_grid_has_each_combination_once() -> None:
    """In their order; the number of trials may be larger."""
    text = FILE.replace("log 1e-5 1e-1", "choice 0.1 0.01").replace("int 1 8", "float 0.1 0.3 0.1")
    world = World(read_study(text.format(more="sampler = grid\npruner = none", trials=9)))

    world.search()

    params = [tuple(json.loads(run["tags"]["bedplate.trial"]).values()) for run in world.runs]
    assert params == [(lr, layers) for lr in ("0.1", "0.01") for layers in ("0.1", "0.2", "0.3")]
    assert "ada-lr ends: the grid has no more trials" in world.lines


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), sampler=st.sampled_from(["tpe", "random"]), budget=st.sampled_from(["", "0.4"]))
def test_a_driver_that_is_killed_at_any_request_loses_no_trial(seed: int, sampler: str, budget: str) -> None:
    """None is doubled or lost, no more run at once than may, and the budget is kept."""
    lines = f"sampler = {sampler}" + (f"\nbudget = {budget} GPU-h" if budget else "")
    world = World(study_of(lines), faults=0.05, seed=seed)

    world.search()

    assert all(status != "RUNNING" for _, status, _ in world.states())
    assert {*world.starts} == {run["name"] for run in world.runs}
    assert world.most <= 4
    counted = [cause for _, _, cause in world.states() if ": the search ended" not in cause]
    assert len(counted) == 12 or (budget and len(counted) < 12)
    assert used_hours(world.runs, world.now) <= float(budget or "inf")


def test_a_budget_that_ends_stops_the_trials() -> None:
    """In time for their checkpoints. A larger one goes on with the same parameters."""
    world = World(study_of("pruner = none\nbudget = 0.15 GPU-h", 8), steps=20)
    world.search()
    stopped = [run for run in world.runs if ": the search ended: the budget" in run["tags"][_LEFT]]
    assert len(stopped) == 4
    assert used_hours(world.runs, world.now) <= 0.15
    world.settings = study_of("pruner = none\nbudget = 9 GPU-h", 8)

    world.search()

    finished = [run["params"] for run in world.runs if run["status"] == "FINISHED"]
    assert len(finished) == 8
    assert all(run["params"] in finished for run in stopped)


def test_a_budget_in_dollars_counts_the_price_of_trials() -> None:
    """In the cluster each has one; on a machine none has, and the time of the search is paid for."""
    world = World(study_of("pruner = none\nbudget = 0.30 USD", 8), steps=20, price=2.0)
    world.search()
    free = World(study_of("pruner = none\nbudget = 0.30 USD", 8), steps=20)
    free.search()

    assert used_hours(world.runs, world.now) * 2 <= 0.30
    assert [run for run in world.runs if "the budget of 0.30 USD is used up, with 0." in run["tags"][_LEFT]]
    assert {status for _, status, _ in free.states()} == {"FINISHED"}


def test_trials_that_all_fail_end_the_search() -> None:
    """After so many failures in a row; those that go on may end."""
    world = World(study_of("failures = 3", 100), crash=lambda number: number > 1)

    driver = world.search()

    assert not [run for run in world.runs if run["status"] == "RUNNING"]
    assert len(world.runs) == 6
    assert "trials in a row have failed, the last one: the program ended with exit code 1" in driver.cause


def test_trials_wait_for_the_quota_of_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no JobSet yet, so none is looked for; they have not failed, and a stop ends them."""
    world, start, calls, most = World(study_of("pruner = none\nfailures = 1", 6)), World.start, list[object](), [9]

    def launch(world: World, run: dict[str, str], params: dict[str, str], seconds: float) -> str:
        calls.append(run["name"])
        full = 'the cluster refuses: jobsets "x" is forbidden: exceeded quota: runs (403)'
        return full if len(calls) <= most[0] else start(world, run, params, seconds)

    def check(world: World, runs: Iterable[dict[str, str]]) -> None:
        assert {run["name"] for run in runs} <= {*world.starts}

    monkeypatch.setattr(World, "start", launch)
    monkeypatch.setattr(World, "check", check)

    world.search()

    assert [status for _, status, _ in world.states()] == ["FINISHED"] * 6
    assert (len(calls), {*world.starts.values()}) == (15, {1})
    assert len([line for line in world.lines if "exceeded quota" in line]) == 4
    most[0] = 99
    world.settings = study_of("pruner = none\nfailures = 1", 8)
    driver = world.driver()
    driver.start()
    driver.step()
    driver.stop(STOP)
    driver.step()
    assert len(calls) == 17


def test_nan_on_the_way_prunes_a_trial() -> None:
    """And no NaN reaches Optuna as the value of a trial."""
    world = World(study_of("", 6), curve=lambda _, step: float("nan") if step > 1 else 1.0)

    world.search()

    assert {status for _, status, _ in world.states()} <= {"KILLED", "FAILED"}
    assert world.lines[-1] == "no trial is complete"


def test_a_trial_whose_record_was_changed_has_failed_for_optuna() -> None:
    """The others go on."""
    world = World(study_of("", 6))
    world.search()
    world.runs[2]["tags"]["bedplate.trial"] = '{"lr": "1e9"}'
    world.runs[3]["tags"]["bedplate.trial"] = "no document"
    world.settings = study_of("", 8)

    world.search()

    assert len(world.runs) == 8


@pytest.mark.parametrize(
    "params",
    [
        {"lr": "0.01", "layers": "$(id)"},
        {"lr": "1e9", "layers": "1"},
        {"lr": "0.01", "layers": "1" + "0" * 400},
        {"lr": " 0.01", "layers": "1"},
        {"lr": "0.01"},
        {"lr": "0.01", "layers": "1", "x": "1"},
    ],
)
def test_parameters_that_are_not_of_the_study_never_start(params: dict[str, str]) -> None:
    """Neither those of a trial that was stopped, nor those of one that has not started."""
    optimizer, world = Optimizer(study_of(), "ada-lr", 0), World(study_of("", 3))
    assert optimizer.add({"lr": "0.01", "layers": "1"})
    assert not optimizer.add(params)
    optimizer.tell(1, STOPPED, 0)
    assert optimizer.ask() != params
    world.create(0, params)

    world.search()

    assert "ada-lr-0000" not in world.starts
    assert world.runs[0]["tags"][_LEFT] == "its parameters are not of this study: its record was changed"
    assert [status for _, status, _ in world.states()].count("FAILED") == 1


def test_records_with_other_names_are_no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colleagues can write those, and a trial keeps the name that it had."""
    runs = [
        {"run": str(at), "name": name, "tags": {"bedplate.id": own}}
        for at, (name, own) in enumerate(
            [("ada-lr-0000", "ada-lr-0000"), ("ada-lr-1; id", "ada-lr-0001"), ("ada-lr-0002", "../x"), ("b", "b")]
        )
    ]
    monkeypatch.setattr(records, "tagged_runs", lambda *_, **__: runs)
    record = StudyRecord(None, {"name": "ada-lr", "settings": study_of()})  # type: ignore[arg-type]

    found = record.all()

    assert [run["name"] for run in found] == ["ada-lr-0000"]
    runs[0] = {**runs[0], "name": "--folder"}
    assert record.look({0: found[0]})[0]["name"] == "ada-lr-0000"


def test_a_stop_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next look, with the same reason; its error is printed once."""
    world, stop = World(study_of("", 4), curve=lambda _, step: float("nan") if step > 1 else 1.0), World.stop
    calls = list[tuple[object, str]]()

    def fail(world: World, run: dict[str, str], reason: str) -> str:
        calls.append((run["name"], reason))
        return "the machine is busy" if len(calls) <= 8 else stop(world, run, reason)

    monkeypatch.setattr(World, "stop", fail)

    world.search()

    assert {status for _, status, _ in world.states()} == {"KILLED"}
    assert (len(calls), len({*calls})) == (12, 4)
    assert len([line for line in world.lines if "the machine is busy" in line]) == 4


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 4_900, "{}", '{"study": 1}', '{"study": {}, "parameters": {}, "run": {}}']
)
def test_a_study_of_a_record_that_was_changed_is_none(text: str) -> None:
    """Colleagues can write records."""
    assert stored_study(json.dumps(study_of())) == study_of()
    with pytest.raises(StudyError):
        stored_study(text)


def test_the_lock_of_the_driver_is_that_of_the_tests() -> None:
    """So the Optuna of searches is the one that was tested."""
    own = Path("bedplate/programs/search/requirements.txt").read_text().splitlines()
    locked = {*Path("requirements.lock").read_text().splitlines()}

    assert {line for line in own if "==" in line} <= locked


def test_a_start_that_takes_long_delays_no_stop_of_another_trial() -> None:
    """The search looks while trials start and stop; its end waits for both, so that no trial is left."""
    gate, world = Event(), World(study_of("pruner = none", 8))
    start = world.start

    def slow(run: Mapping[str, Any], params: Mapping[str, str], seconds: float) -> str:
        assert run["name"] != "ada-lr-0003" or gate.wait(20)
        return start(run, params, seconds)

    world.start = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor() as pool:
        driver = world.driver(lambda: pool)
        driver.start()
        while len(world.runs) < 8:
            assert driver.step()
            world.pass_time(100)

        assert "ada-lr-0003" not in world.starts
        gate.set()
        driver.stop("stopped")

    world.pass_time(10)
    assert not [run["name"] for run in world.runs if run["end_time"] is None]


@pytest.mark.nightly
def test_early_stops_need_few_steps_of_a_full_search() -> None:
    """On the shipped example: at most 40 % of the steps, and a best value within 1 %."""
    folder = Path("examples/search")
    train = runpy.run_path(str(folder / "train.py"))["train"]
    text, best, steps = (folder / "study.ini").read_text(), {}, {}

    @cache
    def curve(rate: str, width: str, momentum: str) -> list[float]:
        return [*train(float(rate), int(width), float(momentum), 27, 300)]

    for pruner in ("none", "asha"):
        study = read_study(text.replace("pruner = asha", f"pruner = {pruner}"))
        world = World(study, lambda params, step: curve(**params)[step - 1], steps=27)
        world.search()
        steps[pruner] = sum(len(run["values"]) for run in world.runs)
        best[pruner] = max(run["metrics"]["accuracy"] for run in world.runs if run["status"] == "FINISHED")

    assert (steps["none"], len(world.runs)) == (40 * 27, 40)
    assert steps["asha"] <= 0.4 * steps["none"], steps
    assert best["asha"] >= 0.99 * best["none"], best
