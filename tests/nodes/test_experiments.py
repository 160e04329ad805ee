"""The sentences of the second source, each by a test of its name, with the shipped examples and archives of people.

Hub, workbench and laptops are booted machines without an index of Python packages: wheels are on the hub.
"""

import json
import re
import shlex
import time
from base64 import b64encode
from itertools import count
from pathlib import Path

import pytest

from tests.nodes.test_hub_chain import open_page, pages
from tests.testlab.machines.layers import RELEASE, index_wheels
from tests.testlab.machines.whole_hub import result_of
from tests.testlab.machines.whole_runs import MACHINE, WholeRuns
from tests.unit.test_board import event_file

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(RELEASE != "bookworm", reason="a workbench with all roles has not passed on Debian 13 yet"),
]

ROOT = Path(__file__).parents[2]
_JUPYTER, _WHEELS = ROOT / "bedplate/programs/bp/jupyter.txt", "/srv/hub/artifacts/wheels"
_NUMBERS = count(time.time_ns() % 1_000_000)


@pytest.fixture(scope="module", autouse=True)
def _wheels(runs: WholeRuns) -> None:
    """Put the wheels of bp's own programs on the hub, as its page says."""
    hub, locks = runs.hub.node, [*sorted(ROOT.glob("bedplate/programs/*/requirements.txt")), _JUPYTER]
    (hub.root / "root/wheels.tar").write_bytes(index_wheels(*locks))
    hub.run(f"install -d {_WHEELS}; tar --extract --directory {_WHEELS} --file /root/wheels.tar", 120)


def copy_example(runs: WholeRuns, name: str) -> None:
    """Copy an example to the folder of grace, and nothing else."""
    grace = runs.laptops["grace"]
    grace.run("rm -rf ~/work; mkdir ~/work")
    for file in sorted((ROOT / "examples" / name).iterdir()):
        grace.write(file.name, file.read_text())


def in_work(runs: WholeRuns, *words: str, seconds: float = 120) -> str:
    """Return what a command of bp of grace prints in her folder; it must succeed."""
    grace = runs.laptops["grace"]
    done = grace.run(f"cd ~/work; exec ~/.ssh/lab/bp {shlex.join(words)}", seconds)
    assert done.returncode == 0, f"bp {shlex.join(words)}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def train(runs: WholeRuns, *words: str) -> str:
    """Return the name of a run of the shipped example with these options of its program."""
    word = f"spiral-{next(_NUMBERS)}"
    program = ("python", "train.py", "--epochs", "9", *words)
    in_work(runs, "run", "--name", word, "--param", f"options={' '.join(words)}", "--", *program, seconds=300)
    return runs.name_of(word)


def test_experiment_metadata_storage_and_visualization(runs: WholeRuns) -> None:
    """The record has command, code, parameters and the history of each metric; bp and MLflow's pages compare runs."""
    copy_example(runs, "search")
    rates = ("0.01", "0.1")
    names = [train(runs, "--rate", rate) for rate in rates]

    documents = [json.loads(in_work(runs, "show", name, "--json")) for name in names]
    compared = in_work(runs, "compare", *names)
    in_work(runs, "code", names[0], "copy")

    for rate, document in zip(rates, documents, strict=True):
        tags, grace = document["tags"], runs.laptops["grace"]
        assert (tags["bedplate.owner"], tags["bedplate.machine"], tags["bedplate.state"]) == ("grace", MACHINE, "ended")
        assert tags["bedplate.command"] == f"python train.py --epochs 9 --rate {rate}"
        assert (document["params"], document["status"]) == ({"options": f"--rate {rate}"}, "FINISHED")
        assert 0.5 <= float(document["metrics"]["accuracy"]) <= 1
    assert all(f"{document['metrics']['accuracy']:.3g}"[:4] in compared for document in documents), compared
    assert grace.run("diff ~/work/train.py ~/work/copy/train.py").returncode == 0
    with pages(grace) as address:
        server = re.sub("/login/.*", "", address)
        assert open_page(grace, address)[0] == "200"
        query = f"run_uuid={documents[0]['run']}&metric_key=accuracy&max_results=100"
        code, history = open_page(grace, f"'{server}/ajax-api/2.0/mlflow/metrics/get-history?{query}'")
    assert code == "200", history
    assert [metric["step"] for metric in json.loads(history)["metrics"]] == list(range(1, 10))


def test_automated_model_search_with_early_stopping(runs: WholeRuns) -> None:
    """The shipped study, from the archive alone: most trials stop early, and the best one is better than the first."""
    copy_example(runs, "search")

    said = in_work(runs, "search", "study.ini", seconds=900)

    shown = in_work(runs, "search", "show", "spirals")
    best = json.loads(in_work(runs, "search", "best", "spirals", "--json"))
    assert "grace-spirals ends: all 40 trials have ended" in said
    pruned = int(re.search(r"(\d+) pruned", shown)[1])  # type: ignore[index]
    assert (pruned >= 16, best["value"] >= 0.95) == (True, True), shown
    assert json.loads(in_work(runs, "show", best["run"], "--json"))["metrics"]["accuracy"] == best["value"]
    words = {"experiment_ids": ["1"], "filter": "tags.`bedplate.study` = 'grace-spirals'", "max_results": 100}
    trials = runs.hub.call(runs.hub.token("grace"), "runs/search", **words)["runs"]
    steps = sum(metric["step"] for run in trials for metric in run["data"]["metrics"])
    assert (len(trials), steps < 0.45 * 40 * 27) == (40, True), steps


def test_boards_show_runs_and_searches(runs: WholeRuns) -> None:
    """By the archive alone: the curve of a run in TensorBoard, and the study of the search in optuna-dashboard."""
    copy_example(runs, "search")
    grace, word = runs.laptops["grace"], f"curve-{next(_NUMBERS)}"
    lines = b64encode(event_file(range(5))).decode()
    grace.write("curve.sh", f'echo {lines} | base64 -d >"$BEDPLATE_OUTPUT/events.out.tfevents.1"\n')
    in_work(runs, "run", "--name", word, "--", "sh", "curve.sh")
    study = (ROOT / "examples/search/study.ini").read_text().replace("name = spirals", f"name = {word}")
    grace.write("study.ini", study.replace("trials = 40", "trials = 2").replace("{rate}", "{rate} --points 100"))
    in_work(runs, "search", "study.ini", seconds=300)
    name = runs.name_of(word)

    found = dict[str, str]()
    pages_of = {
        "run": (f"board {name} --name tb{word}", "data/plugin/scalars/scalars_multirun"),
        "study": (f"board --search {word} --name od{word}", "api/studies/0"),
    }
    for kind, (words, path) in pages_of.items():
        with pages(grace, words, 300) as address:
            assert open_page(grace, address)[0] == "200"
            server = re.sub("/login/.*", "", address)
            more = ("--form", "tag=loss", "--form", f"runs={name}") if kind == "run" else ()
            code, found[kind] = open_page(grace, f"{server}/{path}", *more)
            assert code == "200", found[kind]
    for board in (f"tb{word}", f"od{word}"):
        in_work(runs, "stop", runs.name_of(board))

    assert [row[1] for row in json.loads(found["run"])[name]] == [*range(5)], found["run"]
    assert len(json.loads(found["study"])["trials"]) == 2


def test_a_run_in_a_session_starts_at_once(runs: WholeRuns) -> None:
    """JupyterLab opens by the archive alone; a run in the session has what was edited a moment before."""
    copy_example(runs, "simulators")
    grace, word = runs.laptops["grace"], f"lab-{next(_NUMBERS)}"
    with pages(grace, f"session start --jupyter --name {word}", 300) as address:
        assert open_page(grace, address)[0] == "200"
        code, page = open_page(grace, re.sub("/login/.*", "/lab", address))
        assert (code, "JupyterLab" in page) == ("200", True), page
        session, seconds = runs.name_of(word), list[float]()
        for number in range(4):
            grace.write("edited.py", f"print('edit {number}')\n")
            start = time.monotonic()
            said = in_work(runs, "run", "--in", session, "--", "python3", "edited.py")
            seconds.append(time.monotonic() - start)
            assert f"edit {number}\n" in said, said
        print(seconds)  # noqa: T201  with the output of a test that has failed, or by -rP
        in_work(runs, "stop", session)

    # From Enter to the end of bp, beside other tests.
    assert min(seconds[1:]) < 10, seconds
    assert runs.wait_for_end(word)["status"] == "KILLED"


def test_a_run_is_repeated_from_its_record_alone(runs: WholeRuns) -> None:
    """No file, no environment and no index is left: code and packages come from the hub."""
    copy_example(runs, "search")
    grace, words = runs.laptops["grace"], [f"kept-{next(_NUMBERS)}" for _ in range(2)]
    grace.write("requirements.txt", "optuna\n")
    script = "import optuna, sys; print(optuna.__version__, sys.prefix)"
    first = result_of(grace.start_run("--name", words[0], "--", "python", "-c", script), 300)
    grace.run("rm -rf ~/work/* ~/.cache/bedplate/lab/trees")
    runs.bench.as_person("grace", "rm -rf /scratch/grace/runs/environments /scratch/grace/runs/packs")

    again = grace.bp("again", runs.name_of(words[0]), "--name", words[1], seconds=300)

    assert first.returncode == 0, first.stderr
    assert (again.returncode, again.stdout.split()[0]) == (0, first.stdout.split()[0]), again.stderr
    assert "builds the environment" in again.stderr
    shown = runs.record(words[1])["environment"]
    assert shown == f"1/{runs.record(words[0])['run_id']}/artifacts/environment.txt"
