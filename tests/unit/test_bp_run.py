"""`bp run` as people have it: one file, a folder, git, a fake ssh with an agent, and a stand-in for the hub."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import pytest

from bedplate.programs.bp import records
from bedplate.programs.bp.places import Place
from tests.testlab.fakes.laptop import HOST, TOKEN, Answer, FakeHub, Laptop, oldest_python
from tests.testlab.fakes.runs import wait_for
from tests.testlab.run import need_root
from tests.unit.test_agent_start import Machine

API, FILES = "/api/2.0/mlflow/", "/api/2.0/mlflow-artifacts/artifacts/"
RUN_TOKEN = f"20001.1893456000.run:{'a' * 32}.{'R' * 24}"
_FACTS = {"place": "cellar", "ssh": True, "jobs": True, "group": None, "price": None, "cpus": 16, "memory_gib": 64}
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"
IMAGE = f"registry.lab.example/torch@sha256:{'1' * 64}"
_GROUP: Mapping[str, Any] = {
    "site": "",
    "rungs": ["spot in us-west-2", "on-demand in us-east-1"],
    "kubernetes": False,
    "jobs": True,
    "regions": ["us-west-2"],
    "image": None,
    "max": 4,
    "gpus": 8,
    "price": 2.0,
    "taints": [],
    "cpus": 96,
    "memory_gib": 512.0,
}
MACHINES = {
    "small.cellar": {**_FACTS, "address": "10.8.0.4", "host_key": _KEY, "gpus": 0},
    "titan-03.cellar": {**_FACTS, "address": "10.8.0.5", "host_key": _KEY, "gpus": 4, "cpus": None, "memory_gib": None},
    "gpu-1.us-west-2": {
        **_FACTS,
        "place": "us-west-2",
        "address": "10.8.0.6",
        "host_key": _KEY,
        "gpus": 8,
        "group": "gpu",
        "price": 3.5,
    },
    "disk.cellar": {**_FACTS, "address": "10.8.0.7", "host_key": _KEY, "gpus": 8, "jobs": False},
    "twin.cellar": {**_FACTS, "address": "10.8.0.8", "host_key": _KEY, "gpus": 0},
    "twin.attic": {**_FACTS, "address": "10.8.0.9", "host_key": _KEY, "gpus": 0, "place": "attic"},
    "node-1.cellar": {**_FACTS, "address": "10.8.0.10", "host_key": None, "gpus": 2, "ssh": False, "cpus": None},
}
FLEET: Mapping[str, Any] = {
    "schema": 1,
    "time": 1,
    "fleet": "lab",
    "domain": "lab.internal",
    "faults": [],
    "ask_above": 50,
    "for": None,
    "images": {"batch": IMAGE, "cpu": IMAGE.replace("1", "2")},
    "machines": MACHINES,
    "groups": {
        "gpu": _GROUP,
        "spare": _GROUP,
        "train": {**_GROUP, "kubernetes": True},
        "batch": {**_GROUP, "kubernetes": True, "image": IMAGE, "gpus": 16},
        "cellar": {
            **_GROUP,
            "kubernetes": True,
            "site": "cellar",
            "rungs": [],
            "gpus": 2,
            "cpus": None,
            "memory_gib": None,
        },
    },
}
# The agent's side of ssh: what `start` is given, and what the program of the run does.
SSH = f"""
case "$*" in
*"bp-token -") read -r scope; echo "$scope" >>"$here/scopes"; echo {RUN_TOKEN};;
*bp-token) echo {TOKEN};;
*bedplate-agent*)
    cat >"$here/given"
    [ ! -e "$here/before" ] || . "$here/before"
    echo "Welcome to titan-03"
    echo 5
    echo '{{"unit": "bp-x", "machine": "titan-03"}}'
    . "$here/program";;
esac
"""


class Record(dict[str, Any]):
    """The runs of a stand-in for MLflow, and packs: answers of a FakeHub by their path."""

    def __init__(self, hub: FakeHub) -> None:
        super().__init__(hub.answers)
        self.hub, self.runs, self.packs, self.lost = hub, list[dict[str, Any]](), dict[str, bytes](), 0
        self.seconds_of_put = 0.0
        # A test finds processes by the id of a run, also in other tests.
        self.first = uuid4().hex[:24]
        hub.answers = self
        hub.answer(f"{API}experiments/get-by-name", {"experiment": {"experiment_id": "7"}})
        hub.answer("/fleet.json", FLEET)
        for name in ("search", "create", "log-batch", "update"):
            self[f"{API}runs/{name}"] = getattr(self, f"_{name.replace('-', '_')}")
        self[f"{API}runs/get"] = lambda: self._json({"run": self._run(self._query()["run_id"])})
        self[f"{API}artifacts/list"] = self._list

    def get(self, path: str, default: Any = None) -> Any:  # noqa: ANN401  as that of a dict
        """Return the answer of a path."""
        name = path.removeprefix(FILES)
        if name in self.packs and self.hub.requests[-1][0].startswith("GET"):
            return 200, {}, self.packs[name]
        is_put = self.hub.requests[-1][0].startswith("PUT")
        return self._put if name != path and is_put else super().get(path, default)

    def _body(self, name: str) -> Any:  # noqa: ANN401  a document
        bodies = (json.loads(body) for line, _, body in reversed(self.hub.requests) if line.endswith(f"runs/{name}"))
        return next(bodies)

    @staticmethod
    def _json(document: object) -> Answer:
        return 200, {}, json.dumps(document).encode()

    def _query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.hub.requests[-1][0].partition("?")[2]))

    def _run(self, run: str) -> Any:  # noqa: ANN401  a document
        return next(found for found in self.runs if found["info"]["run_id"] == run)

    def _list(self) -> Answer:
        query = self._query()
        above = f"7/{query['run_id']}/artifacts/{query['path']}/"
        files = dict[str, dict[str, object]]()
        for name in (name for name in self.packs if name.startswith(above)):
            first, _, rest = name.removeprefix(above).partition("/")
            # As MLflow's gateway writes numbers of 64 bits.
            facts = {"is_dir": True} if rest else {"is_dir": False, "file_size": str(len(self.packs[name]))}
            files[first] = {"path": f"{query['path']}/{first}", **facts}
        return self._json({"files": [*files.values()]} if files else {})

    def _search(self) -> Answer:
        word = self._body("search")["filter"].rpartition("= '")[2].rstrip("'")
        return self._json({"runs": [run for run in self.runs if run["info"]["run_name"] == word]})

    def _create(self) -> Answer:
        body = self._body("create")
        info = {
            "experiment_id": "7",
            "run_id": f"{self.first}{len(self.runs):08x}",
            "run_name": body["run_name"],
            "status": "RUNNING",
        }
        self.runs.append({"info": {**info, "start_time": body["start_time"]}, "data": {"tags": body["tags"]}})
        self.lost -= 1
        if self.lost >= 0:
            raise ConnectionError("the answer is lost")
        return self._json({"run": self.runs[-1]})

    def _log_batch(self) -> Answer:
        body = self._body("log-batch")
        for part in ("tags", "params"):
            self._run(body["run_id"])["data"].setdefault(part, []).extend(body.get(part, []))
        return self._json({})

    def _update(self) -> Answer:
        body = self._body("update")
        self._run(body["run_id"])["info"] |= body
        return self._json({})

    def _put(self) -> Answer:
        time.sleep(self.seconds_of_put)
        puts = [(line.removeprefix(f"PUT {FILES}"), body) for line, _, body in self.hub.requests if line[:3] == "PUT"]
        new = {name: body for name, body in puts if name not in self.packs}
        self.packs |= new
        return (201, {}, b"") if new else (409, {}, b'{"message": "written once"}')

    def add(self, name: str, **tags: str) -> None:
        """Add a run of ada that goes on."""
        info = {"experiment_id": "7", "run_id": f"{self.first}{len(self.runs):08x}", "run_name": name}
        known = {"id": name, "owner": "ada", "state": "running", **tags}
        rows = [{"key": f"bedplate.{key}", "value": value} for key, value in known.items()]
        self.runs.append({"info": {**info, "status": "RUNNING", "start_time": 1}, "data": {"tags": rows}})

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the newest run, without their prefix."""
        return {tag["key"].removeprefix("bedplate."): tag["value"] for tag in self.runs[-1]["data"]["tags"]}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a hub."""
    with FakeHub(tmp_path) as hub:
        yield hub


@pytest.fixture
def record(hub: FakeHub) -> Record:
    """Return the record of the hub."""
    return Record(hub)


@pytest.fixture
def laptop(hub: FakeHub, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return ada's laptop with git, in a folder of work."""
    del record
    laptop = laptop_at_work(hub, tmp_path)
    monkeypatch.chdir(tmp_path / "work")
    return laptop


def laptop_at_work(hub: FakeHub, tmp_path: Path) -> Laptop:
    """Return ada's laptop with git; its folder of work is `work`."""
    (tmp_path / "laptop").mkdir()
    laptop = Laptop(tmp_path / "laptop", hub, oldest_python())
    (laptop.programs / "git").symlink_to(shutil.which("git") or "")
    laptop.ssh_answers(SSH)
    program(laptop, "echo loss 0.5; exit 3")
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (work / "train.py").write_text("print('loss')\n")
    (work / ".gitignore").write_text("data/\n")
    return laptop


@pytest.fixture
def api(laptop: Laptop, tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a stand-in for the API of the cluster, which creates what it is given; ada has two homes."""
    with stand_in_for_the_cluster(laptop, tmp_path / "cluster") as api:
        yield api


@contextmanager
def stand_in_for_the_cluster(laptop: Laptop, folder: Path) -> Iterator[FakeHub]:
    """Yield a stand-in for the API of the cluster of a laptop."""
    folder.mkdir()
    with FakeHub(folder, "localhost") as api:
        laptop.set(cluster=api.cluster_of("ada"))
        homes = {"home": {}, "cellar-home": {"bedplate/site": "cellar"}}
        claims = [
            {"metadata": {"name": name, "annotations": {"bedplate/mount": "/home", **site}}}
            for name, site in homes.items()
        ]
        api.answer("/api/v1/namespaces/ada/persistentvolumeclaims", {"items": claims})
        api.answer("/api/v1/namespaces/ada/secrets", {"metadata": {}})
        api.answer("/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets", {"metadata": {"uid": "1"}})
        yield api


def created(api: FakeHub) -> Any:  # noqa: ANN401  a document
    """Return the JobSet that was created."""
    (jobset,) = (json.loads(body) for line, _, body in api.requests if line.endswith("/jobsets"))
    return jobset


def program(laptop: Laptop, script: str, before: str = "") -> None:
    """Let the program of the next run be a script, and another one run before the agent answers."""
    (laptop.programs / "program").write_text(script)
    if before:
        (laptop.programs / "before").write_text(before)


def given(laptop: Laptop) -> Mapping[str, Any]:
    """Return what the agent was given."""
    document: Mapping[str, Any] = json.loads((laptop.programs / "given").read_text())
    return document


def test_a_run_is_recorded_started_and_followed(laptop: Laptop, record: Record) -> None:
    """Its output and its exit code are those of the program; what bp says is on stderr."""
    done = laptop.bp("run", "--on", "titan-03", "--gpus", "2", "--", "python", "train.py", "--note", "it's")

    assert (done.returncode, done.stdout) == (3, "loss 0.5\n"), done.stderr
    tags, now = record.tags, time.gmtime()
    assert re.fullmatch(rf"ada-{now.tm_mon:02}{now.tm_mday:02}-[a-z]+-[a-z]+", tags["id"])
    assert record.runs[0]["info"]["run_name"] == tags["id"]
    expected = {"schema": "1", "owner": "ada", "state": "queued", "machine": "titan-03.cellar", "gpus": "2"}
    expected |= {
        "nodes": "1",
        "command": "python train.py --note 'it'\"'\"'s'",
        "left_out": "data/",
        "mlflow.user": "ada",
    }
    assert tags.items() >= expected.items()
    assert "group" not in tags
    start = given(laptop)
    assert start["command"] == ["python", "train.py", "--note", "it's"]
    assert (start["id"], start["run"], start["experiment"]) == (tags["id"], f"{record.first}{0:08x}", "7")
    assert (start["hub"], start["address"]) == (f"https://{HOST}:{laptop.settings['port']}", "127.0.0.1")
    assert (start["token"], start["tree"], start["gpus"], start["for"]) == (RUN_TOKEN, tags["tree"], 2, 86_400)
    assert start["certificate"] == laptop.settings["certificate"]
    assert start["packs"] == [f"packs/ada/{tags['tree']}-0.pack"] == [*record.packs]
    assert next(line.split(",")[0] for line in done.stderr.splitlines()) == "on titan-03.cellar of cellar"
    assert {"left out: data/", f"run {tags['id']}"} < {*done.stderr.splitlines()}


def test_tokens_are_in_no_list_of_processes(laptop: Laptop) -> None:
    """Neither the person's nor the run's: they are input of ssh, and in headers."""
    laptop.bp("run", "--on", "titan-03", "--env", "KEY=hidden", "--", "true")

    words = (laptop.programs / "ssh.log").read_text()
    assert not any(secret in words for secret in (TOKEN, RUN_TOKEN, "hidden"))
    assert "HostKeyAlias=titan-03.cellar.lab.internal" in words
    assert given(laptop)["environment"] == {"KEY": "hidden"}


def test_a_second_run_sends_what_has_changed(laptop: Laptop, record: Record) -> None:
    """Nothing if nothing has; the record has the tree of the full pack as `base`."""
    laptop.bp("run", "--", "true")
    first = record.tags["tree"]
    laptop.bp("run", "--", "true")
    assert len(record.packs) == 1
    Path("train.py").write_text("print('better')\n")

    laptop.bp("run", "--", "true")

    assert len(record.packs) == 2
    assert record.tags["base"] == first != record.tags["tree"]
    assert given(laptop)["packs"] == [f"packs/ada/{first}-0.pack", f"packs/ada/{record.tags['tree']}-{first}.pack"]
    assert len({run["info"]["run_name"] for run in record.runs}) == 3


def test_a_pack_that_the_hub_has_is_no_error(laptop: Laptop, record: Record) -> None:
    """Such as one whose answer was lost. After status 203, no code, all packs are sent again."""
    laptop.bp("run", "--", "true")
    shutil.rmtree(laptop.cache / "bedplate/lab/trees")
    program(laptop, "exit 203")

    assert laptop.bp("run", "--", "true").returncode == 203

    puts = [line for line, _, _ in record.hub.requests if line.startswith("PUT")]
    laptop.bp("run", "--", "true")
    assert [line for line, _, _ in record.hub.requests if line.startswith("PUT")] == [*puts, puts[0]]


def test_a_pack_of_a_month_ago_is_sent_again(laptop: Laptop, record: Record) -> None:
    """An operator may have removed it, and who does not wait for the end of a run hears nothing of its status 203."""
    laptop.bp("run", "-d", "--", "true")
    record.packs.clear()
    laptop.bp("run", "-d", "--", "true")
    assert not record.packs
    (marker,) = laptop.cache.glob("bedplate/lab/trees/*/objects/pack/*.sent")
    os.utime(marker, (time.time() - 31 * 86_400,) * 2)

    laptop.bp("run", "-d", "--", "true")

    assert [*record.packs] == given(laptop)["packs"]
    assert time.time() - marker.stat().st_mtime < 60


def test_options_reach_agent_and_record(laptop: Laptop, record: Record) -> None:
    """Variables without their values in the record."""
    words = (
        "--name",
        "lr-test",
        "--cpus",
        "4",
        "--memory",
        "32",
        "--for",
        "90m",
        "--param",
        "lr=0.1",
        "--param",
        "x=a=b",
    )
    done = laptop.bp("run", *words, "--env", "SEED=7", "--", "true")

    assert done.returncode == 3, done.stderr
    start, tags = given(laptop), record.tags
    assert tags["id"].endswith("-lr-test")
    assert (start["cpus"], start["memory"], start["for"]) == (4, 32, 5_400)
    assert start["params"] == {"lr": "0.1", "x": "a=b"}
    assert record.runs[0]["data"]["params"] == [{"key": "lr", "value": "0.1"}, {"key": "x", "value": "a=b"}]
    assert (tags["env"], tags["for"], tags["cpus"], tags["machine"]) == ("SEED", "5400", "4", "small.cellar")
    assert laptop.bp("run", "--name", "lr-test", "--", "true").returncode == 242


def test_a_run_with_notify_says_so_in_the_record(laptop: Laptop, record: Record) -> None:
    """It is refused for a person whom no message can reach, before anything starts."""
    refused = laptop.bp("run", "--notify", "--", "true")
    assert (refused.returncode, record.runs) == (242, [])
    assert "the fleet file has no `notify` for you" in refused.stderr
    record.hub.answer("/fleet.json", {**FLEET, "notify": ["ada"]})
    shutil.rmtree(laptop.cache)
    laptop.cache.mkdir()

    assert laptop.bp("run", "--notify", "--", "true").returncode == 3
    assert record.tags["notify"] == "True"
    laptop.bp("run", "--", "true")
    assert "notify" not in record.tags


@pytest.mark.parametrize(
    ("words", "machine"),
    [
        ([], "small.cellar"),
        (["--gpus", "1"], "titan-03.cellar"),
        (["--gpus", "5"], "gpu-1.us-west-2"),
        (["--group", "gpu"], "gpu-1.us-west-2"),
        (["--on", "gpu-1.us-west-2", "--gpus", "8"], "gpu-1.us-west-2"),
        (["--on", "titan-03", "--cpus", "64"], "titan-03.cellar"),
    ],
)
def test_the_place_is_the_smallest_that_is_enough(words: list[str], machine: str, laptop: Laptop) -> None:
    """Of those with the same number of GPUs the cheapest."""
    done = laptop.bp("run", "--dry-run", *words, "--", "true")

    assert (done.returncode, done.stderr.split()[1]) == (0, machine)


@pytest.mark.parametrize(
    ("words", "sentence", "fix"),
    [
        (["--on", "titan-3"], "no machine for runs is named titan-3", "titan-03.cellar"),
        (["--on", "twin"], "several machines are named twin", "write twin.attic or twin.cellar"),
        (["--image", "bach"], "no image for runs is named bach", "write batch"),
        (["--image", "torch:2.6"], "no image for runs is named torch:2.6", "@sha256:"),
        (["--image", "batch", "--on", "titan-03"], "titan-03 takes no image", "--group train or batch or cellar"),
        (["--image", "batch", "--group", "gpu"], "gpu takes no image", "--group train or batch or cellar"),
        (["--group", "cellar", "--gpus", "1", "--image", "cpu"], "CPUs and memory of cellar are unknown", "--memory"),
        (["--launch", "torchrun"], "argument --launch", ""),
        (["--on", "disk"], "no machine for runs is named disk", "write"),
        (["--group", "gpus"], "no group for runs is named gpus", "write gpu"),
        (["--gpus", "24"], "no machine for this has 24 GPUs", "at most 16, on batch"),
        (["--group", "gpu", "--gpus", "16"], "no machine for this has 16 GPUs", "at most 8, on gpu-1.us-west-2"),
        (["--on", "titan-03", "--gpus", "5"], "no machine for this has 5 GPUs", "at most 4, on titan-03.cellar"),
        (["--on", "titan-03", "--group", "gpu"], "titan-03.cellar is not in gpu", "leave --group out"),
        (["--node=2"], "unrecognized arguments: --node=2", ""),
        (["--for", "8"], "argument --for: the value is not of the form 8h", ""),
        (["--for", "0h"], "argument --for", ""),
        (["--for", "60d"], "at most 59d", "--for 59d"),
        (["--on", "titan-03", "--max-cost", "5"], "the price is unknown, so --max-cost cannot be kept", "--for"),
        (["--on", "gpu-1", "--max-cost", "0.05"], "--max-cost 0.05 pays for 51 seconds", "--max-cost 0.06"),
        (["--on", "gpu-1", "--max-cost", "-1"], "argument --max-cost", ""),
        (["--on", "gpu-1", "--max-cost", "1e3"], "argument --max-cost", ""),
        (["--gpus", "-1"], "argument --gpus", ""),
        (["--param", "lr"], "argument --param: the value is not of the form K=V: a parameter", ""),
        (["--env", "BEDPLATE_HUB=x"], "argument --env", "BEDPLATE_*, MLFLOW_*"),
        (["--memory", "16G"], "argument --memory", "GiB"),
        (["--name", "Lr"], "argument --name", "24 of a-z, 0-9"),
        # Kubernetes takes no more for a Job, with the longest person and the date, and no such end.
        (["--name", "a" * 25], "argument --name", ""),
        (["--name", "lr-"], "argument --name", ""),
        (["--include", "../secret"], "no such file", ""),
        (["python"], "unrecognized arguments: python", "bp run -- python train.py"),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(
    words: list[str], sentence: str, fix: str, laptop: Laptop, record: Record
) -> None:
    """Status 242, with the nearest right value; nothing is recorded."""
    done = laptop.bp("run", *words, "--", "true")

    assert (done.returncode, sentence in done.stderr, fix in done.stderr) == (242, True, True), done.stderr
    assert not record.runs
    assert not record.packs


@pytest.mark.parametrize("words", [["run"], ["run", "--"], ["run", "--", "x" * 6_000], ["run", "python", "x.py"]])
def test_a_command_is_needed(words: list[str], laptop: Laptop) -> None:
    """Of at most 5,000 characters: the record keeps it."""
    done = laptop.bp(*words)

    assert (done.returncode, "bp run -- python train.py" in done.stderr) == (242, True)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--gpu", "1", "--", "true"], "unrecognized arguments: --gpu 1; write --gpus\n"),
        (["--gpus", "1", "python", "x.py"], "unrecognized arguments: python x.py; write -- before the command\n"),
        (["--xyzzy", "--", "true"], "unrecognized arguments: --xyzzy\n"),
    ],
)
def test_an_unknown_word_has_the_nearest_right_one(words: list[str], hint: str, laptop: Laptop) -> None:
    """A command without its mark is no option."""
    done = laptop.bp("run", *words)

    assert (done.returncode, hint in done.stderr) == (242, True), done.stderr


def test_a_secret_in_the_folder_is_refused(laptop: Laptop, record: Record) -> None:
    """Status 242, and nothing is recorded or sent."""
    Path(".env").write_text("TOKEN=1")

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, "named as a secret: .env" in done.stderr) == (242, True)
    assert not record.runs
    assert laptop.bp("run", "--include", ".env", "--", "true").returncode == 3


def test_a_dry_run_starts_nothing(laptop: Laptop, record: Record) -> None:
    """It says place, price and bytes."""
    done = laptop.bp("run", "--dry-run", "--group", "gpu", "--for", "8h", "--", "true")

    assert done.returncode == 0
    assert "on gpu-1.us-west-2 of gpu, 3.50 USD an hour, at most 28.00 USD" in done.stderr
    assert re.search(r"sends 0.00 MB of 2 files with 0.00 MB", done.stderr)
    assert not record.runs
    assert not record.packs


def test_a_run_may_cost_no_more_than_its_person_says(laptop: Laptop, record: Record) -> None:
    """The limit shortens the time, which bp says before the start. It never lengthens that of --for."""
    for words, seconds in ((["--max-cost", "7"], 7_200), (["--max-cost", "7", "--for", "1h"], 3_600)):
        done = laptop.bp("run", "--on", "gpu-1", *words, "--", "true")

        assert given(laptop)["for"] == seconds
        assert f"at most {seconds * 3.5 / 3_600:.2f} USD" in done.stderr
        assert f"stopped after {seconds // 3_600}:00:00 at the latest: --max-cost 7" in done.stderr
        assert (record.tags["max_cost"], record.tags["for"]) == ("7", str(seconds))


def test_bp_says_what_is_left_of_a_budget(laptop: Laptop, record: Record) -> None:
    """Before the start; nothing starts when it is used up. Who has none is asked for none."""
    assert "budget" not in laptop.bp("run", "--on", "gpu-1", "--dry-run", "--", "true").stderr
    facts: dict[str, object] = {"spent": 412.5, "unknown": 0, "budget": 500, "month": "2027-01"}
    record.hub.answer("/fleet.json", {**FLEET, "budgets": {"ada": 500}})
    record.hub.answer("/bedplate/budget", facts)
    done = laptop.bp("run", "--on", "gpu-1", "--dry-run", "--", "true")
    assert "your budget for 2027-01: 412.50 of 500 USD are spent\n" in done.stderr
    assert "note: this run may cost" not in done.stderr

    record.hub.answer("/bedplate/budget", {**facts, "spent": 490, "unknown": 2})
    done = laptop.bp("run", "--on", "gpu-1", "--dry-run", "--", "true")
    assert "490.00 of 500 USD are spent, and 2 runs have no known price\n" in done.stderr
    assert "note: this run may cost more than the 10.00 USD that are left\n" in done.stderr

    record.hub.answer("/bedplate/budget", {})
    assert "your budget is unknown" in laptop.bp("run", "--on", "gpu-1", "--dry-run", "--", "true").stderr

    record.hub.answer("/bedplate/budget", {**facts, "spent": 500})
    done = laptop.bp("run", "--on", "gpu-1", "--", "true")
    assert (done.returncode, "your budget for 2027-01 is used up: 500.00 of 500 USD" in done.stderr) == (242, True)
    assert not record.runs


def test_a_run_that_may_cost_more_is_asked_for(laptop: Laptop, record: Record) -> None:
    """Without a terminal it is not started; -y answers."""
    words = ("run", "--group", "gpu", "--for", "2d", "--", "true")

    done = laptop.bp(*words)

    assert (done.returncode, "not started" in done.stderr, record.runs) == (242, True, [])
    assert laptop.bp("run", "-y", *words[1:]).returncode == 3


def test_detached_runs_are_not_followed(laptop: Laptop) -> None:
    """Status 0 once it has started."""
    program(laptop, "")

    done = laptop.bp("run", "-d", "--", "true")

    assert (done.returncode, done.stdout) == (0, "")
    assert "bedplate-agent start\n" in (laptop.programs / "ssh.log").read_text()


def test_ctrl_c_leaves_the_run_alone(laptop: Laptop, record: Record) -> None:
    """Status 130, with words on how to come back; a second Ctrl-C does nothing more."""
    program(laptop, "echo first; exec sleep 30")
    process = laptop.start("run", "--", "true")
    assert process.stdout
    assert process.stdout.readline() == "first\n"

    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)

    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (130, "")
    assert f"{record.tags['id']} goes on: `bp logs -f {record.tags['id']}`" in errors
    assert "Traceback" not in errors
    assert record.tags["state"] == "sent"


def test_the_login_for_a_token_opens_before_the_run_has_an_id(laptop: Laptop, record: Record) -> None:
    """The id follows on stdin: no login is waited for after the record was made."""
    create = record[f"{API}runs/create"]

    def create_later() -> Any:  # noqa: ANN401  an answer
        wait_for(lambda: any(line.endswith("bp-token -") for line in laptop.logins))
        return create()

    record[f"{API}runs/create"] = create_later
    assert laptop.bp("run", "--", "true").returncode == 3

    (scope,) = (laptop.programs / "scopes").read_text().split()
    assert scope == f"run:{record.runs[-1]['info']['run_id']}"


@pytest.mark.nightly
def test_a_login_that_the_hub_has_ended_is_made_again(laptop: Laptop, record: Record) -> None:
    """The hub waits ten seconds for the id of a run, and a large folder takes longer."""
    laptop.ssh_answers(SSH.replace("read -r scope;", "scope=$(timeout 9 head -n 1);"))
    create = record[f"{API}runs/create"]

    def create_late() -> Any:  # noqa: ANN401  an answer
        time.sleep(10)
        return create()

    record[f"{API}runs/create"] = create_late

    done = laptop.bp("run", "--", "true")

    assert done.returncode == 3, done.stderr
    assert len([line for line in laptop.logins if line.endswith("bp-token -")]) == 2


def test_ctrl_c_ends_an_upload(laptop: Laptop, record: Record) -> None:
    """At once, with status 130; the run has not started, and its record says so."""
    record.seconds_of_put = 20
    process = laptop.start("run", "--", "true")
    wait_for(lambda: any(line.startswith("PUT") for line, _, _ in record.hub.requests))
    wait_for(lambda: any("bp-token -" in line for line in laptop.logins))
    time.sleep(1)

    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert time.monotonic() - start < 10
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert (record.tags["state"], record.tags["cause"]) == ("ended", "it did not start: Ctrl-C")


def test_a_second_run_of_a_folder_says_what_it_waits_for(laptop: Laptop, record: Record) -> None:
    """The first one has the folder until its files are sent."""
    record.seconds_of_put = 3
    first = laptop.start("run", "--", "true")
    wait_for(lambda: any(line.startswith("PUT") for line, _, _ in record.hub.requests))

    second = laptop.bp("run", "--", "true")

    assert "waits until another `bp run` of this folder has sent its files" in second.stderr
    assert "waits until" not in first.communicate(timeout=60)[1]
    assert (first.returncode, second.returncode, len(record.packs)) == (3, 3, 1)


@pytest.mark.parametrize(
    ("words", "sentence", "fix"),
    [
        ("ada@10.8.0.4: Permission denied (publickey).", "small.cellar accepts none of your SSH keys", "README.txt"),
        ("Host key verification failed.", "bp has no host key of small.cellar", "ask your operator"),
        ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", "the host key of small.cellar is another", "operator"),
        ("ssh: Could not resolve hostname jump: unknown", "the name of small.cellar has no address", "~/.ssh/config"),
    ],
)
def test_an_ssh_that_can_never_connect_is_not_repeated(
    words: str, sentence: str, fix: str, laptop: Laptop, record: Record
) -> None:
    """Status 244 with the fix, and the record has the end."""
    log = """log=${*#* -E }; log=${log%% *}"""
    program(laptop, "", before=f"""{log}; echo '{words}' >>"$log"; exit 255""")

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, sentence in done.stderr, fix in done.stderr) == (244, True, True), done.stderr
    assert (laptop.programs / "ssh.log").read_text().count("bedplate-agent") == 1
    assert sentence in record.tags["cause"]


def test_a_closed_output_leaves_the_run_alone(laptop: Laptop, record: Record) -> None:
    """Such as `bp run | head -1`: status 244, one sentence, and the record stays as it is."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as target:
        process = laptop.start("run", "--", "true", stdout=target)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, "error: Broken pipe" in errors) == (244, True), errors
    assert "Exception" not in errors
    assert record.tags["state"] == "sent"


@pytest.mark.parametrize("loss", ["exit 255", "kill -9 $$"])
def test_a_lost_connection_is_made_again(loss: str, laptop: Laptop) -> None:
    """Before the start, and while the output comes: each line is printed once."""
    script = """[ -e "$here/second" ] || { touch "$here/second"; """ + loss + "; }"
    output = """case "$*" in *" 6") echo second; exit 5;; esac; echo first; """ + loss
    program(laptop, output, before=script)

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, done.stdout) == (5, "first\nsecond\n"), done.stderr


def test_a_program_may_return_the_status_of_a_lost_connection(laptop: Laptop, record: Record) -> None:
    """The record says that the run has ended."""
    program(laptop, "exit 255")
    original = record[f"{API}runs/create"]

    def create() -> Answer:
        answer: Answer = original()
        record.runs[-1]["data"]["tags"] = [{"key": "bedplate.state", "value": "ended"}]
        return answer

    record[f"{API}runs/create"] = create

    assert laptop.bp("run", "--", "true").returncode == 255


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_answer_makes_no_second_run(lost: int, laptop: Laptop, record: Record) -> None:
    """Before each repeat of a create bp searches for the id."""
    record.lost = lost

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, len(record.runs)) == (3, 1), done.stderr


def test_a_name_that_is_in_use_is_not_given_again(laptop: Laptop, record: Record) -> None:
    """A --name is refused, and other words are selected."""
    laptop.bp("run", "--name", "a", "--", "true")
    done = laptop.bp("run", "--name", "a", "--", "true")

    assert (done.returncode, "select another --name" in done.stderr) == (242, True), done.stderr


def test_a_new_name_is_found_where_all_words_are_in_use(laptop: Laptop, record: Record) -> None:
    """Then it ends with a number."""
    days = {time.strftime("%m%d", time.gmtime(time.time() + seconds)) for seconds in (0, 300)}
    for day, first, second in product(days, records._ADJECTIVES.split(), records._ANIMALS.split()):  # noqa: SLF001
        record.add(f"ada-{day}-{first}-{second}")

    laptop.bp("run", "-d", "--", "true")

    assert re.fullmatch("ada-[0-9]{4}-[a-z]+-[a-z]+-[0-9]{4}", record.runs[-1]["info"]["run_name"])


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ("echo 'bedplate-agent: command not found' >&2; exit 127", "does not start the run: status 127"),
        ("echo 'error: titan-03 has no program make' >&2; exit 204", "does not start the run: status 204"),
    ],
)
def test_a_run_that_does_not_start_ends_in_the_record(
    before: str, sentence: str, laptop: Laptop, record: Record
) -> None:
    """Status 244, with the cause."""
    program(laptop, "", before=before)

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, sentence in done.stderr) == (244, True)
    assert done.stderr.count("error: ") == 1
    assert (record.runs[0]["info"]["status"], record.runs[0]["data"]["tags"][-2]["value"]) == ("FAILED", "ended")
    assert sentence in record.runs[0]["data"]["tags"][-1]["value"]


def test_a_run_without_a_token_or_a_pack_ends_in_the_record(laptop: Laptop, record: Record) -> None:
    """Status 244; nothing is started."""
    laptop.ssh_answers(SSH.replace(f"echo {RUN_TOKEN}", "echo no >&2; exit 1"))

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, "the hub gives no token: no" in done.stderr) == (244, True), done.stderr
    assert record.runs[0]["info"]["status"] == "FAILED"
    assert not (laptop.programs / "given").exists() or not (laptop.programs / "given").read_text()


@pytest.mark.nightly
def test_a_machine_that_does_not_answer_is_named(laptop: Laptop, record: Record) -> None:
    """Status 246 after 30 s: the run may have started, so the record is left as it is."""
    program(laptop, "", before="exit 255")

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, "the run may have started" in done.stderr) == (246, True)
    assert record.tags["state"] == "sent"


@pytest.mark.nightly
def test_a_hub_that_is_away_starts_nothing(laptop: Laptop, hub: FakeHub) -> None:
    """Status 244; the copy of fleet.json still chooses the place."""
    laptop.bp("run", "--", "true")
    hub.shutdown()
    hub.server_close()
    (laptop.programs / "given").unlink()

    done = laptop.bp("run", "--", "true")

    assert (done.returncode, "on small.cellar" in done.stderr) == (244, True), done.stderr
    assert not (laptop.programs / "given").exists() or not (laptop.programs / "given").read_text()


@pytest.mark.nightly
def test_a_way_that_is_cut_during_an_upload_starts_nothing(laptop: Laptop, hub: FakeHub, record: Record) -> None:
    """Status 244 after the time of repeats; the hub's sweep ends the record. The next run sends the code again."""
    record.seconds_of_put = 2
    process = laptop.start("run", "--", "true")
    wait_for(lambda: any(line.startswith("PUT") for line, _, _ in hub.requests))
    hub.is_away = True
    hub.end_connections()

    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "the hub does not" in errors) == (244, True), errors
    assert not (laptop.programs / "given").exists() or not (laptop.programs / "given").read_text()

    hub.is_away, record.seconds_of_put = False, 0
    assert laptop.bp("run", "--", "true").returncode == 3
    assert given(laptop)["packs"] == [*record.packs]


def test_a_second_laptop_of_a_person_uses_what_the_first_has_sent(
    laptop: Laptop, hub: FakeHub, record: Record, tmp_path: Path
) -> None:
    """Its runs have the same packs, and it stops those of the first."""
    laptop.bp("run", "-d", "--on", "titan-03", "--name", "first", "--", "true")
    first, code = record.runs[0]["info"]["run_name"], record.tags["tree"]
    (tmp_path / "second").mkdir()
    (tmp_path / "second/laptop").mkdir()
    second = Laptop(tmp_path / "second/laptop", hub, oldest_python())
    (second.programs / "git").symlink_to(shutil.which("git") or "")
    second.ssh_answers(SSH)
    program(second, "exit 5")

    assert second.bp("run", "--", "true").returncode == 5

    assert (record.tags["tree"], len(record.packs), len(record.runs)) == (code, 1, 2)
    program(second, "")
    assert second.bp("stop", first).returncode == 0
    assert f"bedplate-agent stop {first}" in second.logins[-1]


def test_a_full_home_is_said(laptop: Laptop, record: Record) -> None:
    """Status 244 with the folder, and nothing is recorded; what needs no room goes on."""
    need_root()
    folder = laptop.cache
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)), check=True)
    try:
        with suppress(OSError):
            (folder / "full").write_bytes(b"x" * (1 << 20))
        done, listed = laptop.bp("run", "--", "true"), laptop.bp("runs")
    finally:
        subprocess.run(("umount", str(folder)), check=True)

    assert (done.returncode, "No space left" in done.stderr, str(folder) in done.stderr) == (244, True, True), done
    assert (listed.returncode, record.runs) == (0, []), listed.stderr


def test_a_run_goes_through_the_agent(laptop: Laptop, hub: FakeHub, record: Record, tmp_path: Path) -> None:
    """The agent fetches the packs, runs the program on the files of the folder, and writes the record."""
    machine = Machine(tmp_path)
    words = shlex.join((*machine.command, "start", "--follow"))
    environment = shlex.join(f"{name}={value}" for name, value in machine.environment.items())
    laptop.ssh_answers(SSH.replace('cat >"$here/given"', f"exec env {environment} {words}"))
    hub.tokens.add(RUN_TOKEN)
    hub.answer("/bedplate/end", {})
    Path("data/large").write_text("not sent")

    done = laptop.bp("run", "--param", "lr=1", "--", "sh", "-c", "cat train.py; ls; cat $BEDPLATE_PARAMS; exit 7")

    output = "print('loss')\ntrain.py\n" + '{"lr": "1"}'
    assert (done.returncode, done.stdout) == (7, output), done.stderr
    assert "the program ended with exit code 7" in done.stderr
    tags = {tag["key"]: tag["value"] for tag in record.runs[0]["data"]["tags"]}
    assert (tags["bedplate.state"], record.runs[0]["info"]["status"]) == ("ended", "FAILED")
    assert record.packs[f"7/{record.first}{0:08x}/artifacts/logs/0/0/000000"].startswith(b"print('loss')")


def test_other_commands_do_not_load_the_modules_of_run(laptop: Laptop) -> None:
    """`bp --help` starts in 0.1 s."""
    command = (oldest_python(), "-X", "importtime", str(laptop.archive / "bp"), "--help")
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert not re.search(r"programs\.bp\.(run|snapshot|places|machine)\b", done.stderr)
    assert " run " in done.stdout


def test_a_group_of_the_cluster_is_a_place(laptop: Laptop, record: Record) -> None:
    """The person reads it before the start; an archive without the cluster, or a group without an image, is refused."""
    done = laptop.bp("run", "--group", "batch", "--gpus", "2", "--dry-run", "--", "true")
    assert (done.returncode, "on batch in the cluster, 2.00 USD an hour" in done.stderr) == (0, True), done.stderr

    done = laptop.bp("run", "--gpus", "16", "--", "true")
    assert (done.returncode, "the archive does not know the cluster" in done.stderr) == (244, True)
    done = laptop.bp("run", "--group", "train", "--", "true")
    assert (done.returncode, "`jobs.images.train`" in done.stderr) == (244, True)
    assert record.runs == []


@pytest.mark.parametrize(
    ("run", "shares"),
    [
        ({"gpus": 0, "cpus": 0, "memory": 0}, {"cpus": 1, "memory": 2}),
        ({"gpus": 2, "cpus": 0, "memory": 0}, {"cpus": 20, "memory": 108}),
        ({"gpus": 8, "cpus": 0, "memory": 100}, {"cpus": 81, "memory": 100}),
    ],
)
def test_a_pod_has_a_part_of_its_machine(run: Mapping[str, int], shares: Mapping[str, int]) -> None:
    """CPUs and memory follow the GPUs, unless the person has set them."""
    assert Place("train", _GROUP, "train", {"bedplate/group": "train"}).shares(run) == shares


@pytest.mark.parametrize(
    ("words", "image", "selector"),
    [
        (["--group", "batch"], IMAGE, {"bedplate/group": "batch"}),
        (["--group", "batch", "--image", "cpu"], IMAGE.replace("1", "2"), {"bedplate/group": "batch"}),
        (
            ["--group", "train", "--image", f"other@sha256:{'3' * 64}"],
            f"other@sha256:{'3' * 64}",
            {"bedplate/group": "train"},
        ),
        (["--image", "cpu", "--gpus", "1"], IMAGE.replace("1", "2"), {"bedplate/group": "train"}),
        (["--group", "cellar", "--image", "batch"], IMAGE, {"bedplate/site": "cellar"}),
        (["--on", "node-1", "--image", "batch"], IMAGE, {"kubernetes.io/hostname": "node-1.cellar"}),
    ],
)
def test_an_image_is_one_of_the_fleet_or_has_a_digest(
    words: list[str], image: str, selector: Mapping[str, str], laptop: Laptop, api: FakeHub
) -> None:
    """A group without an image takes runs that have one. A machine of a site is a place of the cluster, too."""
    done = laptop.bp("run", "-d", "--cpus", "2", "--memory", "4", *words, "--", "true")

    assert (done.returncode, f"image {image}" in done.stderr) == (0, True), done.stderr
    pod = created(api)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["nodeSelector"]) == (image, selector)
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    }
    assert claims == {"cellar-home" if "cellar" in str(selector) else "home"}


def test_the_machines_of_a_group_are_said_before_the_start(laptop: Laptop, record: Record) -> None:
    """Those that run, and the rungs of another one; what fleet.json does not know is unknown."""
    rungs = "; another one takes minutes: spot in us-west-2, else on-demand in us-east-1\n"

    def line(*words: str) -> str:
        lines = laptop.bp("run", "--dry-run", "--image", "cpu", *words, "--", "true").stderr.splitlines(keepends=True)
        return lines[-1]

    assert line("--group", "batch") == f"0 of at most 4 machines run{rungs}"
    assert line("--group", "cellar") == "1 of at most 4 machines run\n"
    assert " machines run" not in line("--on", "node-1")
    record.hub.answer("/fleet.json", {**FLEET, "faults": ["no answer from us-west-2"]})
    assert line("--group", "batch") == f"an unknown number of at most 4 machines run{rungs}"


def test_the_time_of_a_run_is_limited_by_the_fleet(laptop: Laptop, record: Record) -> None:
    """A run that says no time gets the operator's, and none gets more."""
    record.hub.answer("/fleet.json", {**FLEET, "for": "12h"})

    refused = laptop.bp("run", "--for", "13h", "--", "true")
    assert (refused.returncode, "at most 12h" in refused.stderr, "write --for 12h" in refused.stderr) == (
        242,
        True,
        True,
    )
    laptop.bp("run", "--", "true")
    assert (given(laptop)["for"], record.tags["for"]) == (43_200, "43200")
    laptop.bp("run", "--for", "30m", "--", "true")
    assert given(laptop)["for"] == 1_800


@pytest.mark.parametrize(
    ("words", "launch"),
    [
        (["--", "python", "a.py"], ""),
        (["--launch", "program", "--", "python", "-m", "torch.distributed.run", "a.py"], "program"),
        (["--", "/opt/bin/torchrun", "a.py"], "program"),
        (["--launch", "ranks", "--", "torchrun", "a.py"], "ranks"),
        (["--", "mpirun", "python", "a.py"], "program"),
    ],
)
def test_a_command_may_start_its_ranks_itself(words: list[str], launch: str, laptop: Laptop, record: Record) -> None:
    """Such as torchrun: it is started once, whatever the number of GPUs."""
    laptop.bp("run", "--on", "titan-03", "--gpus", "2", *words)

    assert given(laptop)["launch"] == launch
    assert record.tags.get("launch", "") == launch


@pytest.mark.parametrize(
    ("fleet", "words", "message"),
    [
        ({"machines": {}, "groups": {}}, [], "no machine of this fleet takes runs now\n  fix  ask your operator"),
        ({"groups": {}}, ["--group", "train"], "no group for runs is named train\n  fix  leave the option out"),
        ({"groups": {}}, ["--image", IMAGE], "this fleet takes no image\n  fix  leave --image out"),
        (
            {"groups": {}, "images": {}},
            ["--image", "a"],
            "no image for runs is named a\n  fix  write repository@sha256:",
        ),
        ({"machines": {}}, ["--on", "titan-03"], "no machine for runs is named titan-03\n  fix  leave the option out"),
        ({"machines": {}}, ["--group", "gpu"], "no machine of gpu takes runs now\n  fix  select another --group"),
    ],
)
def test_a_fleet_without_a_kind_of_place_says_so(
    fleet: Mapping[str, Any], words: list[str], message: str, laptop: Laptop, record: Record
) -> None:
    """A fleet without Kubernetes, and one without SSH machines."""
    record.hub.answer("/fleet.json", {**FLEET, **fleet})

    done = laptop.bp("run", *words, "--", "true")

    assert done.returncode in {242, 244}
    assert message in done.stderr
