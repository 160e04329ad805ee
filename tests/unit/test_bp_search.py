"""`bp search` as people have it: a study file, a fake ssh with the real agent, a stand-in for the hub, and Optuna."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from bedplate.programs.bp import machine as machines
from tests.testlab.fakes.laptop import TOKEN, Laptop
from tests.testlab.fakes.runs import ROOT, wait_for
from tests.testlab.fakes.studies import SearchHub
from tests.unit.test_agent_start import Machine
from tests.unit.test_bp_run import FLEET, IMAGE, created, laptop_at_work, stand_in_for_the_cluster

STUDY = """[study]
name = lr
metric = loss
direction = minimize
trials = 5
parallel = 3
pruner = asha
first-step = 2
sampler = random

[parameters]
lr = float 0 1

[run]
command = python train.py {lr}
on = small
cpus = 1
"""
# Each step is one of the metric; a larger rate has a larger loss.
_TRAIN = """
import runpy, socket, sys, time
find = socket.getaddrinfo
socket.getaddrinfo = lambda host, *words, **more: find("127.0.0.1", *words, **more)
log = runpy.run_path(sys.argv[2])["log_metric"]
for step in range(1, 19):
    log("loss", float(sys.argv[1]) + 1 / step, step)
    time.sleep(PAUSE)
"""
# What the machine has as `python`: the driver looks more often than for people, and leaves its CPU time in a file.
_PYTHON = f"""#!{sys.executable}
import os, sys
if sys.argv[1:] == ["search.pyz"]:
    code = "import atexit, os, sys; sys.path.insert(0, 'search.pyz'); from pathlib import Path; "
    code += "atexit.register(lambda: Path(os.environ['CPU_FILE']).write_text(str(sum(os.times()[:4])))); "
    code += "import programs.search.__main__ as m; m._PAUSE = float(os.environ['DRIVER_PAUSE']); "
    code += "import programs.study as s; s._SETTLED = 0.2; s._LATE = 1; sys.exit(m.main(Path()))"
    sys.argv[1:] = ["-c", code]
os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
"""
# `systemd-run` asks the manager, which is the process of the test.
_ASK = f"""#!{sys.executable} -ISB
import os, sys, time
from pathlib import Path
path = Path("{{}}", str(os.getpid()))
path.write_text("\\n".join(sys.argv[1:]))
path.rename(path.with_suffix(".ask"))
for _ in range(3_000):
    if path.with_suffix(".done").exists():
        break
    time.sleep(0.02)
sys.exit(path.with_suffix(".done").read_text() or None)
"""
_NO_ENVIRONMENT = "run.Run._provide_environment = lambda *_: None"
_SSH = """
case "$*" in
*"bp-token -") read -r scope; echo "$scope" >>"$here/scopes"; echo 20001.1893456000.$scope.RRRRRRRRRRRRRRRRRRRRRRRR;;
*bp-token) echo {token};;
*bedplate-agent*) while [ "$1" != bedplate-agent ]; do shift; done; shift; eval exec env {environment} {agent} "$@";;
esac
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SearchHub]:
    """Yield a hub with records."""
    with SearchHub(tmp_path) as hub:
        hub.answer("/fleet.json", FLEET)
        yield hub


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Yield the machine of the trials."""
    with machine_of_units(tmp_path) as machine:
        yield machine


@contextmanager
def machine_of_units(tmp_path: Path) -> Iterator[Machine]:
    """Yield a machine whose units are no children of the driver that starts them."""
    machine, requests, is_over = Machine(tmp_path), tmp_path / "requests", Event()
    machine.environment |= {"CPU_FILE": f"{tmp_path}/cpu", "DRIVER_PAUSE": "0.3"}
    requests.mkdir()
    # Environments have tests of their own: the driver has that of these tests.
    for file in (tmp_path / "bin").iterdir():
        file.write_text(file.read_text().replace("run._REPORT", f"{_NO_ENVIRONMENT}; run._REPORT"))
    start = (tmp_path / "bin/systemd-run").rename(tmp_path / "start-unit")
    agent = "\n".join(("#!/bin/sh", f'exec {shlex.join(machine.command)} "$@"'))
    for name, text in (("python", _PYTHON), ("bedplate-agent", agent), ("systemd-run", _ASK.format(requests))):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def serve() -> None:
        while not is_over.wait(0.02):
            for path in requests.glob("*.ask"):
                words = [str(start), *path.read_text().split("\n")]
                path.unlink()
                # A pipe would be open for as long as the unit.
                with path.with_suffix(".new").open("w") as errors:
                    subprocess.run(words, env=machine.environment, stderr=errors, check=False)
                path.with_suffix(".new").rename(path.with_suffix(".done"))

    Thread(target=serve, daemon=True).start()
    yield machine
    is_over.set()


@pytest.fixture
def laptop(hub: SearchHub, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    """Yield ada's laptop in the folder of her program."""
    with laptop_of(hub, machine, tmp_path) as laptop:
        monkeypatch.chdir(tmp_path / "work")
        program(0.02)
        yield laptop


@contextmanager
def laptop_of(hub: SearchHub, machine: Machine, tmp_path: Path) -> Iterator[Laptop]:
    """Yield ada's laptop; what runs on the machine then is killed."""
    laptop = laptop_at_work(hub, tmp_path)
    environment = shlex.join(f"{name}={value}" for name, value in machine.environment.items())
    laptop.ssh_answers(_SSH.format(token=TOKEN, environment=environment, agent=tmp_path / "bin/bedplate-agent"))
    yield laptop
    for pid in processes(str(tmp_path)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def quick(laptop: Laptop) -> Laptop:
    """Return a laptop whose machine starts nothing, and notes what it was given."""
    answer = 'cat >"$here/given"; echo "$*" >>"$here/words"; echo \'{"unit": "bp-x", "machine": "small"}\';;\n'
    script = (laptop.programs / "answer").read_text()
    laptop.ssh_answers(re.sub(r"\*bedplate-agent\*\).*\n", lambda _: f"*bedplate-agent*) {answer}", script))
    return laptop


def study(old: str = "", new: str = "") -> None:
    """Change the study of the folder."""
    text = Path("lr.ini").read_text()
    assert old in text
    Path("lr.ini").write_text(text.replace(old, new))


def test_the_driver_gets_what_its_trials_need(quick: Laptop, hub: SearchHub) -> None:
    """A token as a secret, a folder and packages of its own, the index of the study, and this tree for its trials."""
    study("cpus = 1", "cpus = 1\nenv = SEED=7 UV_INDEX=https://index.lab\nfor = 2h\nscratch-ok = yes")

    done = quick.bp("search", "lr.ini", "-d")

    assert done.returncode == 0, done.stderr
    start = json.loads((quick.programs / "given").read_text())
    assert (start["command"], start["scratch_ok"], start["restarts"]) == (["python", "search.pyz"], "1", 3)
    assert start["grace"] == 90
    assert start["secrets"] == {"STUDY_TOKEN": f"20001.1893456000.study:ada-lr.{'R' * 24}"}
    (driver,) = hub.tagged("search", "ada-lr")
    tags = driver["tags"]
    assert tags["bedplate.command"] == "bp search lr.ini"
    facts = json.loads((quick.cache / "bedplate/lab/search/ada-lr/study.json").read_text())
    document = facts["document"]
    index = {"UV_INDEX": "https://index.lab"}
    assert (document["environment"], start["environment"]) == ({"SEED": "7", **index}, index)
    assert (document["for"], document["scratch_ok"]) == (7_200, "1")
    assert "environment of bp search: kept on each machine, and built if it is missing\n" in done.stderr
    packages = (quick.cache / "bedplate/lab/search/ada-lr/requirements.txt").read_text()
    assert packages.startswith("# packages of bp search\n")
    assert {f"packs/ada/{tree}-0.pack" for tree in (start["tree"], document["tree"])} == {*hub.files}
    assert (start["environment_file"], document["environment_file"]) == ("requirements.txt", "")
    assert (facts["parallel"], tags["bedplate.tree"]) == (3, start["tree"])
    assert "R" * 24 not in json.dumps(facts)


def test_in_the_cluster_the_driver_has_an_account_and_trials_have_a_price(quick: Laptop, hub: SearchHub) -> None:
    """The driver is a pod of the cheapest group without GPUs, and its JobSet has no secret."""
    cpu = {**FLEET["groups"]["batch"], "gpus": 0, "price": 0.1}
    hub.answer("/fleet.json", {**FLEET, "ask_above": None, "groups": {**FLEET["groups"], "cpu": cpu}})
    study("on = small\ncpus = 1", "group = batch\ngpus = 2\nnodes = 2\nscratch-ok = yes\nfor = 1h\npriority = spare")
    study("parallel = 3", "parallel = 3\nbudget = 7.50 USD")
    with stand_in_for_the_cluster(quick, quick.programs.parent / "api") as api:
        done = quick.bp("search", "lr.ini", "-d")
        jobset, pod = created(api), created(api)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]

    assert done.returncode == 0, done.stderr
    assert "trials on batch in the cluster, 4.00 USD an hour each, at most 7.50 USD" in done.stderr
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "normal"
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("bedplate-search", True)
    assert (pod["nodeSelector"], pod["containers"][0]["command"][-2:]) == (
        {"bedplate/group": "cpu"},
        ["python", "search.pyz"],
    )
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    (driver,) = hub.tagged("search", "ada-lr")
    assert {name: driver["tags"][f"bedplate.{name}"] for name in ("group", "price", "gpus")} == {
        "group": "cpu",
        "price": "0.1",
        "gpus": "0",
    }
    facts = json.loads((quick.cache / "bedplate/lab/search/ada-lr/study.json").read_text())
    assert {name: facts["tags"][name] for name in ("group", "price", "nodes")} == {
        "group": "batch",
        "price": 2.0,
        "nodes": 2,
    }
    assert (facts["parallel"], facts["claims"]) == (3, {"home": "/home"})
    # Its account is not for what code of trials has written to the stores.
    assert not [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    # The script for a token of the person has no use in a pod.
    assert facts["cluster"]["token"] == ""
    assert TOKEN not in json.dumps(jobset)


def test_the_driver_has_the_image_of_its_group(quick: Laptop, hub: SearchHub) -> None:
    """That of the trials may be for another architecture; it has that one where no group has an image of its own."""
    image, groups = "cpu", {**FLEET["groups"]}
    groups["arm"] = {**groups["batch"], "gpus": 0, "price": 0.1, "image": None}
    study("on = small\ncpus = 1", f"group = train\nimage = {image}\ngpus = 1")
    chosen = list[tuple[str, str]]()
    with stand_in_for_the_cluster(quick, quick.programs.parent / "api") as api:
        for name in ("first", "second"):
            hub.answer("/fleet.json", {**FLEET, "ask_above": None, "groups": groups})
            study("name = lr\n" if name == "first" else "name = first\n", f"name = {name}\n")
            done = quick.bp("search", "lr.ini", "-d")
            assert done.returncode == 0, done.stderr
            pod = created(api)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            chosen.append((pod["nodeSelector"]["bedplate/group"], pod["containers"][0]["image"]))
            api.requests.clear()
            groups.pop("batch", None)

    assert chosen == [("batch", IMAGE), ("train", FLEET["images"][image])]


def test_trials_in_the_cluster_are_asked_for_by_their_price(quick: Laptop, hub: SearchHub) -> None:
    """By their number and time, or a budget that is less; without a price, a budget in US dollars cannot be kept."""
    study("on = small\ncpus = 1", "group = batch\ngpus = 1\nfor = 10h")
    with stand_in_for_the_cluster(quick, quick.programs.parent / "api"):
        asked = quick.bp("search", "lr.ini", "-d")
        study("parallel = 3", "parallel = 3\nbudget = 10 GPU-h\ntime = 1h")
        done = quick.bp("search", "lr.ini", "-d")
        study("name = lr\n", "name = other\n")
        study("budget = 10 GPU-h", "budget = 10 USD")
        study("group = batch", f"group = cellar\nimage = {IMAGE}\ncpus = 1\nmemory = 1")
        cellar = {**FLEET["groups"]["cellar"], "price": None}
        hub.answer("/fleet.json", {**FLEET, "groups": {**FLEET["groups"], "cellar": cellar}})
        unknown = quick.bp("search", "lr.ini", "--dry-run")

    assert (asked.returncode, "`ask_above`" in asked.stderr) == (2, True), asked.stderr
    assert done.returncode == 0, done.stderr
    assert (unknown.returncode, "the price of cellar is unknown" in unknown.stderr) == (2, True), unknown.stderr


def test_a_second_driver_is_refused_and_a_changed_study_too(quick: Laptop, hub: SearchHub) -> None:
    """More trials, and a new end of the first driver, are no change. Before its first trial a study may change."""
    study("lr = float 0 1", "lr = float 0 3")
    quick.bp("search", "lr.ini", "-d")
    hub.tagged("search", "ada-lr")[0]["tags"]["bedplate.state"] = "ended"
    study("on = small", "on = titan-03")
    study("lr = float 0 3", "lr = float 0 1")
    edited = quick.bp("search", "lr.ini", "-d")
    assert (edited.returncode, "ada-lr is new" in edited.stderr) == (0, True), edited.stderr
    names = {run["tags"]["bedplate.machine"] for run in hub.tagged("search", "ada-lr")}
    assert names == {"small.cellar", "titan-03.cellar"}
    for run in hub.tagged("search", "ada-lr"):
        del hub.runs[run["run_id"]]
    study("on = titan-03", "on = small")
    quick.bp("search", "lr.ini", "-d")
    record(hub, "ada-lr-0000")
    (driver,) = hub.tagged("search", "ada-lr")
    second = quick.bp("search", "lr.ini")
    assert (second.returncode, f"{driver['run_name']} drives ada-lr" in second.stderr) == (5, True), second.stderr
    driver["tags"]["bedplate.state"] = "ended"
    study("lr = float 0 1", "lr = float 0 2")
    changed = quick.bp("search", "lr.ini", "-d")
    assert changed.returncode == 2
    assert "[parameters] lr: float 0 2, it was float 0 1" in changed.stderr
    study("lr = float 0 2", "lr = float 0 1")
    study("trials = 5", "trials = 9")

    again = quick.bp("search", "lr.ini", "-d")

    assert again.returncode == 0, again.stderr
    assert "ada-lr goes on with its trials, and their code" in again.stderr
    assert len(hub.tagged("search", "ada-lr")) == 2


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("trials = 5", "trials = many", "lr.ini: [study] `trials = many`: write a number from 1 to 1000"),
        ("on = small", "group = batch\nfor = 1d\npriority = interactive", "a run has at most 225m"),
        ("on = small", "image = none", "no image for runs is named none"),
        ("on = small", "nodes = 2\nscratch-ok = yes", "a trial has one machine: that of its search"),
        ("cpus = 1", "cpus = many", "argument --cpus: the value is not of the form N"),
        ("cpus = 1", "nodes = 2", "--on names one machine, and --nodes needs several"),
        ("cpus = 1", "cpus = many", "bp search: lr.ini: [run]: error: "),
        ("cpus = 1", "array = 1-2", "lr.ini: [run] has no `array`"),
        ("cpus = 1", "cpu = 1", "lr.ini: [run] has no `cpu`\n  fix  write `cpus`\n"),
        ("[study]", "[study", "lr.ini: File contains no section headers. file: 'lr.ini', line: 1"),
        ("parallel = 3", "budget = 5 USD", "the price is unknown, so --max-cost cannot be kept"),
    ],
)
def test_a_search_that_cannot_start_says_why(quick: Laptop, hub: SearchHub, old: str, new: str, error: str) -> None:
    """And records nothing."""
    study(old, new)

    done = quick.bp("search", "lr.ini")

    assert (done.returncode, error in done.stderr, hub.runs) == (2, True, {}), done.stderr


def test_a_parameter_that_may_be_read_by_nobody_is_named(quick: Laptop, hub: SearchHub) -> None:
    """It cannot be known: the program may read the file. US dollars are the time of the machine."""
    study("lr = float", "depth = int 1 3\nlr = float")
    study("on = small\ncpus = 1", "group = gpu\ngpus = 1")
    study("parallel = 3", "parallel = 20\nbudget = 7 USD")

    done = quick.bp("search", "lr.ini", "--dry-run")

    assert (done.returncode, hub.runs) == (0, {}), done.stderr
    assert "note: the command has no {depth}: its program must read $BEDPLATE_PARAMS" in done.stderr
    assert "5 trials, 5 at a time" in done.stderr
    assert "note: gpu-1.us-west-2 has no room for 20 trials at a time: each takes 1 of 8 GPUs" in done.stderr
    assert "stopped after 2:00:00 at the latest: --max-cost 7.00" in done.stderr


@pytest.mark.parametrize("words", [["show"], ["show", ""], ["best"], ["stop"], ["stop", ""]])
def test_a_study_needs_a_name(words: list[str], quick: Laptop) -> None:
    """Without one, no search is meant."""
    quick.bp("search", "lr.ini", "-d")

    done = quick.bp("search", *words)

    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: this takes the NAME of a study"), done.stderr


def test_a_search_without_trials_is_shown(quick: Laptop) -> None:
    """It has no states yet."""
    quick.bp("search", "lr.ini", "-d")

    assert "0 of 5 trials; 0.00 GPU-h\n" in quick.bp("search", "show", "lr").stdout


def test_the_resource_that_limits_trials_at_a_time_is_named(quick: Laptop, hub: SearchHub) -> None:
    """GPUs, or else CPUs: what a trial takes, and what there is, on a machine and in a group of the cluster."""
    notes = []
    study("parallel = 3", "parallel = 40")
    for line in ("on = titan-03\ngpus = 3", "on = small\ncpus = 3", "group = batch\ngpus = 8"):
        study("on = small\ncpus = 1", line)
        done = quick.bp("search", "lr.ini", "--dry-run")
        notes += [text for text in done.stderr.splitlines() if "no room" in text] or [done.stderr]
        study(line, "on = small\ncpus = 1")

    assert [text.removeprefix("note: ").removesuffix("; the search itself none") for text in notes] == [
        "titan-03.cellar has no room for 40 trials at a time: each takes 3 of 4 GPUs",
        "small.cellar has no room for 40 trials at a time: each takes 3 of 16 CPUs",
        "batch has no room for 40 trials at a time: each takes 8 of 16 GPUs of a machine, on 1 of at most 4 machines",
    ]


def test_a_search_whose_trials_have_all_failed_is_not_repeated(laptop: Laptop, hub: SearchHub) -> None:
    """Such as by a wrong name of the metric: the same driver would end the same way."""
    program(0.01)
    study("metric = loss", "metric = los")
    study("trials = 5", "trials = 1")

    done = laptop.bp("search", "lr.ini")

    assert (done.returncode, "no trial is complete" in done.stdout) == (78, True), done.stdout + done.stderr
    assert "it has not logged los: it has logged loss, the nearest is loss" in done.stdout
    (driver,) = hub.tagged("search", "ada-lr")
    assert (driver["status"], "bedplate.restart.1" in driver["tags"]) == ("FAILED", False)


def test_a_search_is_stopped_by_its_driver_or_by_its_trials(quick: Laptop, hub: SearchHub) -> None:
    """The driver stops its trials. One that waited or built its environment has not: bp looks at its end."""
    quick.bp("search", "lr.ini", "-d")
    (driver,) = hub.tagged("search", "ada-lr")
    record(hub, "ada-lr-0000")
    record(hub, "ada-lr-0001; touch hacked", id="ada-lr-0001")
    record(hub, "ada-lr-0002", state="ended")
    process = quick.start("search", "stop", "ada-lr")
    wait_for(lambda: f"stop {driver['run_name']}" in (quick.programs / "words").read_text(), 30)
    assert "stop ada-lr-0000" not in (quick.programs / "words").read_text()
    driver["tags"]["bedplate.state"] = "ended"

    _, errors = process.communicate(timeout=30)

    assert process.returncode == 0, errors
    stopped = [line for line in errors.splitlines() if "is being stopped" in line]
    assert stopped == [f"{name} is being stopped" for name in (driver["run_name"], "ada-lr-0000")]
    words = (quick.programs / "words").read_text()
    assert f"stop {driver['run_name']}" in words
    assert "stop ada-lr-0000 --by 'ada-lr: the search ended'" in words
    shown = quick.bp("search", "show", "lr")
    assert (shown.returncode, "2 of 5 trials: 2 running" in shown.stdout) == (0, True), shown.stdout
    assert quick.bp("search", "best", "lr").returncode == 4
    assert quick.bp("search", "show", "other").returncode == 2
    assert "drives a search" in quick.bp("again", driver["run_name"]).stderr
    driver["tags"]["bedplate.id"] = "x; touch hacked"
    assert quick.bp("search", "stop", "lr").returncode == 2


def test_the_shell_of_a_machine_gets_the_name_of_a_run_as_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that no form was checked for."""
    given = list[str]()

    class Agent:
        def __init__(self, *words: object) -> None:
            given.extend(map(str, words[2:]))

        def call(self) -> tuple[int, int]:
            return 0, 0

    monkeypatch.setattr(machines, "Agent", Agent)

    machines.stop_agents(None, "a; touch hacked", ["small"], is_now=False)  # type: ignore[arg-type]

    assert shlex.split(" ".join(given)) == ["stop", "a; touch hacked"]


def test_code_of_trials_comes_from_the_first_start(quick: Laptop, hub: SearchHub) -> None:
    """Colleagues can write trials with code of theirs. Another laptop takes that of the record, and prints it."""
    foreign = "f" * 40
    record(hub, "ada-lr-0000", tree=foreign, base=foreign, size="1", owner="bob", environment="")
    refused = quick.bp("search", "lr.ini", "-d")
    assert (refused.returncode, "no search of yours" in refused.stderr) == (2, True), refused.stderr
    (trial,) = hub.runs.values()
    hub.runs.clear()
    assert quick.bp("search", "lr.ini", "-d").returncode == 0
    (driver,) = hub.tagged("search", "ada-lr")
    driver["tags"]["bedplate.state"] = "ended"
    hub.runs[trial["run_id"]] = trial
    file = quick.cache / "bedplate/lab/search/ada-lr/study.json"
    first = json.loads(file.read_text())["document"]["tree"]

    again = quick.bp("search", "lr.ini", "-d")

    assert again.returncode == 0, again.stderr
    assert f"code of the trials, by this laptop: {first}; no environment" in again.stderr
    assert json.loads(file.read_text())["document"]["tree"] == first
    for run in hub.tagged("search", "ada-lr"):
        run["tags"]["bedplate.state"] = "ended"
    file.unlink()
    other = quick.bp("search", "lr.ini", "-d", "--dry-run")
    assert f"code of the trials, by the record: {foreign}; no environment" in other.stderr


def record(hub: SearchHub, name: str, **tags: str) -> None:
    """Add the record of a trial that runs."""
    tags = {"study": "ada-lr", "id": name, "state": "running", **tags}
    facts = {"run_name": name, "status": "RUNNING", "start_time": 1, "end_time": 0, "params": {}, "rows": []}
    run = f"{len(hub.runs) + 100:032x}"
    hub.runs[run] = {"run_id": run, "tags": {f"bedplate.{key}": value for key, value in tags.items()}, **facts}


def program(pause: float, script: str = _TRAIN) -> None:
    """Write the program and the study."""
    Path("train.py").write_text(script.replace("PAUSE", str(pause)))
    study = STUDY.replace("train.py {lr}", f"train.py {{lr}} {ROOT / 'examples/search/train.py'}")
    Path("lr.ini").write_text(study)


def processes(word: str) -> list[int]:
    """Return the processes with a word in their command line or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


def driver_of(tmp_path: Path) -> int:
    """Return the process of the driver, once there is one."""

    def found() -> list[int]:
        own = {*processes(str(tmp_path))}
        return [pid for pid in processes("programs.search.__main__") if pid in own]

    wait_for(found, 30)
    return found()[0]


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.nightly)])
def test_automated_model_search_with_early_stopping(laptop: Laptop, hub: SearchHub, tmp_path: Path, count: int) -> None:
    """Trials are runs, and some are pruned. After kills of the driver and lost answers none is doubled or lost."""
    program(0.1)
    study("trials = 5", f"trials = {count}")
    process = laptop.start("search", "lr.ini")
    for least in (1, count - 1):
        wait_for(lambda least=least: len(hub.tagged("study", "ada-lr")) >= least, 60)  # type: ignore[misc]
        hub.lost = 1
        os.kill(driver_of(tmp_path), signal.SIGKILL)
        time.sleep(0.3)

    output, errors = process.communicate(timeout=120)

    assert process.returncode == 0, output + errors
    trials = hub.tagged("study", "ada-lr")
    assert [run["run_name"] for run in trials] == [f"ada-lr-{number:04}" for number in range(count)]
    assert {run["tags"]["bedplate.state"] for run in trials} == {"ended"}
    causes = [run["tags"]["bedplate.cause"] for run in trials if run["status"] == "KILLED"]
    assert causes
    assert all(cause.startswith("stopped by ada-lr: pruned at step ") for cause in causes)
    assert {run["status"] for run in trials} == {"FINISHED", "KILLED"}, errors
    assert f"ada-lr ends: all {count} trials have ended" in output
    (driver,) = hub.tagged("search", "ada-lr")
    assert "bedplate.restart.2" in driver["tags"]
    first = trials[0]["tags"]
    assert first["bedplate.command"].startswith(f"python train.py {trials[0]['params']['lr']} ")
    assert (first["bedplate.price"], first["bedplate.machine"], first["bedplate.given"]) == ("0", "small.cellar", "lr")
    assert {*hub.scopes} == {f"run:{run['run_id']}" for run in trials}
    shown = laptop.bp("search", "show", "lr")
    assert f"{count} of {count} trials: {count - len(causes)} complete, {len(causes)} pruned" in shown.stdout
    is_nightly = count == 12
    if is_nightly:
        Path("train.py").unlink()
        study(f"trials = {count}", f"trials = {count + 1}")
        assert laptop.bp("search", "lr.ini").returncode == 0
        added = hub.tagged("study", "ada-lr")[count]["tags"]
        assert (added["bedplate.tree"], added["bedplate.state"]) == (trials[0]["tags"]["bedplate.tree"], "ended")
    best = json.loads(laptop.bp("search", "best", "lr", "--json").stdout)
    assert best["value"] <= min(float(run["rows"][-1]["value"]) for run in trials if run["status"] == "FINISHED")
