"""`bp board` as people have it: a fake ssh with the real agent, a stand-in for the hub, TensorBoard, and Chromium."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.study import read_study
from tests.testlab.chromium import chromium
from tests.testlab.fakes.laptop import Laptop
from tests.testlab.fakes.runs import wait_for
from tests.testlab.fakes.studies import SearchHub
from tests.unit.test_board import NAME, event_file
from tests.unit.test_bp import Browser
from tests.unit.test_bp_run import created, stand_in_for_the_cluster
from tests.unit.test_bp_search import hub, laptop, machine, quick

__all__ = ["hub", "laptop", "machine", "quick"]

# The machine that the fixtures have, on which the run of a test is.
_TRAIN = f"""
import os, pathlib, shutil, sys, time
folder = pathlib.Path(os.environ["BEDPLATE_OUTPUT"])
shutil.copy(sys.argv[1], folder / "part")
(folder / "part").rename(folder / "{NAME}")
time.sleep(600)
"""


def given(laptop: Laptop) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the agent of a board was given, and the facts that travel with its program."""
    facts = (laptop.cache / "bedplate/lab/board/board.json").read_text()
    return json.loads((laptop.programs / "given").read_text()), json.loads(facts)


def test_a_board_is_a_session_beside_the_files_of_its_runs(quick: Laptop, hub: SearchHub) -> None:
    """On the machine of the first own run, without a GPU, for 12 hours; a colleague's run counts for no place."""
    runs = {"bo-one": hub.add_run("bo-one", owner="bo", machine="small.cellar")}
    runs["ada-two"] = hub.add_run("ada-two", machine="titan-03.cellar", state="ended")

    done = quick.bp("board", "-d", *runs)

    assert done.returncode == 0, done.stderr
    start, facts = given(quick)
    assert (start["command"], start["session"], start["for"]) == (["python", "board.pyz"], "board", 12 * 3_600)
    assert (start["gpus"], start["environment_file"], start["secrets"]) == (0, "requirements.txt", {})
    assert facts["runs"] == runs
    assert "R" * 24 not in json.dumps(facts)
    (board,) = hub.tagged("session", "board")
    assert board["tags"]["bedplate.command"] == "bp board bo-one ada-two"
    assert board["tags"]["bedplate.machine"] == "titan-03.cellar"


def test_a_board_has_packages_of_its_own_from_any_index(quick: Laptop, hub: SearchHub) -> None:
    """The plan names them without an option that a board lacks, and UV_INDEX names another index."""
    hub.add_run("ada-one")

    done = quick.bp("board", "-d", "--env", "UV_INDEX=https://index.lab", "ada-one")

    assert done.returncode == 0, done.stderr
    assert "environment of bp board: kept on each machine, and built if it is missing\n" in done.stderr
    assert given(quick)[0]["environment"] == {"UV_INDEX": "https://index.lab"}
    packages = (quick.cache / "bedplate/lab/board/requirements.txt").read_text()
    assert packages.startswith("# packages of bp board\n")


def test_a_board_of_a_study_has_its_settings(quick: Laptop, hub: SearchHub) -> None:
    """By the record of its driver; a record that was changed has none."""
    quick.bp("search", "lr.ini", "-d")

    done = quick.bp("board", "--search", "lr", "-d", "--for", "1h")

    assert done.returncode == 0, done.stderr
    start, facts = given(quick)
    assert start["for"] == 3_600
    assert (facts["name"], facts["settings"]["parameters"]) == ("ada-lr", {"lr": "float 0 1"})
    (driver,) = hub.tagged("search", "ada-lr")
    driver["tags"]["bedplate.file"] = driver["tags"]["bedplate.file"].replace("float 0 1", "float one")
    changed = quick.bp("board", "--search", "lr", "-d")
    assert (changed.returncode, "has no study" in changed.stderr) == (4, True), changed.stderr


@pytest.mark.parametrize("words", [[], ["ada-one", "--search", "lr"], ["ada-one"] * 101], ids=["none", "both", "many"])
def test_a_board_without_its_runs_is_refused(words: list[str], quick: Laptop, hub: SearchHub) -> None:
    """Before anything starts."""
    hub.add_run("ada-one")
    done = quick.bp("board", *words)

    assert (done.returncode, "write 1 to 100 RUNs, or --search NAME" in done.stderr) == (2, True), done.stderr
    assert not (quick.programs / "given").exists()


def test_a_board_runs_in_no_other_session(quick: Laptop, hub: SearchHub) -> None:
    """It is one: `--in` is no option of it, and a board starts nowhere else than it was asked for."""
    hub.add_run("ada-one")
    done = quick.bp("board", "--in", "ada-notes", "ada-one")

    assert (done.returncode, "--in" in done.stderr) == (2, True), done.stderr
    assert not (quick.programs / "given").exists()


def test_runs_of_one_name_are_told_apart(quick: Laptop, hub: SearchHub) -> None:
    """By their ids, as a name that is no name of a folder."""
    runs = [hub.add_run("twin"), hub.add_run("twin"), hub.add_run("../up"), hub.add_run("ada-one")]

    assert quick.bp("board", "-d", *runs).returncode == 0

    assert given(quick)[1]["runs"] == {**{run: run for run in runs[:3]}, "ada-one": runs[3]}


def test_a_board_of_the_cluster_is_a_pod(quick: Laptop, hub: SearchHub, tmp_path: Path) -> None:
    """One, without a GPU, and with the program of sessions."""
    hub.add_run("ada-one", machine="titan-03.cellar")
    with stand_in_for_the_cluster(quick, tmp_path / "cluster") as api:
        done = quick.bp("board", "-d", "--group", "batch", "ada-one")

        assert done.returncode == 0, done.stderr
        (job,) = created(api)["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["python", "board.pyz"]
    assert {"name": "BEDPLATE_SESSION", "value": "board"} in container["env"]
    assert {*container["resources"]["limits"]} == {"memory"}


@pytest.fixture
def running(laptop: Laptop, tmp_path: Path) -> Iterator[str]:
    """Yield the name of a run that has written an event file, and goes on."""
    (tmp_path / "events").write_bytes(event_file(range(20)))
    Path("train.py").write_text(_TRAIN)
    done = laptop.bp(
        "run", "-d", "--on", "small", "--name", "curve", "--", "python", "train.py", str(tmp_path / "events")
    )
    assert done.returncode == 0, done.stderr
    name = re.findall(r"run (\S+)", done.stderr)[0]
    wait_for(lambda: any(tmp_path.rglob(f"{name}/output/{NAME}")))
    yield name
    laptop.bp("stop", "--now", name)


@pytest.mark.nightly
def test_a_browser_shows_a_run_that_goes_on(laptop: Laptop, running: str, tmp_path: Path) -> None:
    """In TensorBoard, through bp, ssh and the session, by the name of the run; Ctrl-C leaves the board alone."""
    board = Browser(laptop, "board", running)
    with chromium(tmp_path / "profile") as browser:
        browser.open(board.address)
        # A busy machine may serve the page before its first look, and TensorBoard asks again when it is loaded.
        with suppress(AssertionError):
            browser.wait_for(running, 20)
        browser.evaluate("location.reload()")
        browser.wait_for(running)
        browser.wait_for("loss")
    os.kill(board.process.pid, signal.SIGINT)
    _, errors = board.process.communicate(timeout=30)
    (name,) = re.findall(r"run (ada-\S+)", errors)

    assert f"{name} goes on" in errors
    assert laptop.bp("stop", name).returncode == 0


@pytest.mark.nightly
def test_a_browser_shows_a_search(laptop: Laptop, hub: SearchHub, tmp_path: Path) -> None:
    """In optuna-dashboard: the study, and each trial with its parameters."""
    hub.add_run("ada-driver", search="ada-lr", file=json.dumps(read_study(Path("lr.ini").read_text())))
    trial = hub.add_run("ada-lr-0000", study="ada-lr", trial='{"lr": "0.125"}')
    row = {"run_id": trial, "key": "loss", "value": 0.5, "step": 1, "timestamp": "5"}
    hub.runs[trial]["rows"] = [row]
    hub.end_run(trial)
    board = Browser(laptop, "board", "--search", "lr")
    with chromium(tmp_path / "profile") as browser:
        browser.open(board.address)
        browser.wait_for("ada-lr")
        browser.evaluate("location = '/dashboard/studies/0/trials'")
        browser.wait_for("0.125")
        browser.wait_for("ada-lr-0000")
    os.kill(board.process.pid, signal.SIGINT)
    _, errors = board.process.communicate(timeout=30)
    (name,) = re.findall(r"run (ada-\S+)", errors)

    assert laptop.bp("stop", name).returncode == 0
