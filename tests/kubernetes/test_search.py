"""Searches in a real cluster: driver and trials are pods of a real kubelet, by the rights and policies of the fleet."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bedplate.nodes.invitation import bp_program
from bedplate.plan.links import API_PORT
from tests.kubernetes.test_bp_cluster import UID
from tests.testlab.fakes.laptop import TOKEN, Laptop
from tests.testlab.fakes.runs import ROOT, wait_for
from tests.testlab.fakes.studies import SearchHub
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.images import PYTHON_IMAGE, python_image
from tests.testlab.kubernetes.joined_node import CASES, Running, cluster, machine
from tests.testlab.kubernetes.queues import Queues, job_set, queue_folder
from tests.testlab.kubernetes.real_node import HOST, NODE, PODS
from tests.unit.test_bp_run import FLEET, laptop_at_work
from tests.unit.test_bp_search import _SSH as SSH
from tests.unit.test_bp_search import STUDY, machine_of_units, processes, study

_CASE = CASES["pool"]
GROUP = _CASE.promised.labels["bedplate/group"]
FACTS = {**FLEET["groups"]["batch"], "image": PYTHON_IMAGE, "taints": _CASE.promised.taints, "gpus": 0, "cpus": 4}
# What the driver needs. Environments in pods have a test of their own.
_PACKAGES = re.findall(r"^([\w-]+)==", (ROOT / "bedplate/programs/search/requirements.txt").read_text(), re.MULTILINE)
_TRAIN = """
import runpy, sys, time
log = runpy.run_path("log.py")["log_metric"]
for step in range(1, 9):
    log("loss", float(sys.argv[1]) + 1 / step, step)
    time.sleep(0.5)
"""
_SSH = """
case "$*" in
*"bp-token -") read -r scope; echo 20001.1893456000.$scope.RRRRRRRRRRRRRRRRRRRRRRRR;;
*bp-token) echo {};;
esac
"""
# Programs look more often than for people, and the image has the packages of the driver.
_CHANGES = {
    "programs/search/__main__.py": ("_LONGEST_PAUSE = 0.02, 2.0,", "_LONGEST_PAUSE = 0.02, 0.5,"),
    "programs/bp/search.py": ('["python", _PROGRAM]', '["python3", _PROGRAM]'),
    # The node of the tests has two CPUs.
    "programs/bp/places.py": ('_SMALL = {"cpus": 1, "memory": 2}', '_SMALL = {"cpus": 0.1, "memory": 0.25}'),
    "programs/agent/run.py": ('if self._told["ENVIRONMENT_FILE"]:', "if False:"),
}


@contextmanager
def node_of_people(folder: Path, image: Path) -> Iterator[Running]:
    """Yield a node of a cluster with the fleet's people, policies and queue, and an image of runs."""
    with cluster() as approvers:
        assert isinstance(approvers.plane, ControlPlane)
        with (
            Queues(approvers.plane, queue_folder(), more={"pod-defaults", "volumes"}),
            machine(approvers, _CASE, folder) as running,
        ):
            running.machine.import_image(image)
            # Pods reach the stand-in of the hub, and the API server by the address of its service, as by kube-proxy.
            subprocess.run(("ip", "route", "add", PODS["ipam"]["ranges"][0][0]["subnet"], "via", NODE), check=True)
            service = running.kubectl("get", "service", "kubernetes", "-o=jsonpath={.spec.clusterIP}")
            words = f"-d {service} -p tcp --dport 443 -j DNAT --to-destination {HOST}:{API_PORT}"
            running.machine.shell(f"iptables -t nat -A PREROUTING {words}")
            running.machine.shell(f"mkdir -p /home/grace /data && chown {UID}:{UID} /home/grace")
            running.join()
            running.pass_gate()
            running.approvers.plane.wait_for_namespace("grace")
            yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a node whose image has the packages of the driver."""
    packages = [name for name in _PACKAGES if name != "colorama"]
    image = python_image(tmp_path_factory.mktemp("images"), packages=packages)
    with node_of_people(tmp_path_factory.mktemp("root"), image) as running:
        yield running


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SearchHub]:
    """Yield a hub with records, which pods reach."""
    with SearchHub(tmp_path, "grace", HOST) as hub:
        hub.answer("/fleet.json", {**FLEET, "machines": {}, "groups": {GROUP: FACTS}})
        yield hub


@pytest.fixture
def laptop(hub: SearchHub, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    """Yield grace's laptop in the folder of her program; what runs in the cluster then is deleted."""
    laptop, plane = laptop_at_work(hub, tmp_path), running.approvers.plane
    token = plane.kubectl("create", "token", "grace", "-n", "people", "--duration", "1h").strip()
    access: dict[str, object] = {"server": plane.server, "authority": plane.authority.certificate.read_text()}
    access |= {"namespace": "grace"}
    access |= {"uid": UID, "gids": [UID], "token": f"echo '{json.dumps({'status': {'token': token}})}'"}
    laptop.set(person="grace", address=HOST, cluster=access)
    laptop.ssh_answers(_SSH.format(TOKEN))
    (laptop.archive / "bp").write_bytes(_changed(bp_program(), _CHANGES))
    monkeypatch.chdir(tmp_path / "work")
    Path("log.py").write_bytes((ROOT / "examples/search/train.py").read_bytes())
    Path("train.py").write_text(_TRAIN)
    text = (
        STUDY.replace("on = small", f"group = {GROUP}")
        .replace("python train", "python3 train")
        .replace("cpus = 1\n", "")
    )
    Path("lr.ini").write_text(text)
    study("parallel = 3", "parallel = 2")
    yield laptop
    running.kubectl("delete", "jobsets", "--all", "-n", "grace", "--wait=false")
    running.kubectl("delete", "pods", "--all", "-n", "grace", "--grace-period=1")


def _changed(program: bytes, changes: Mapping[str, tuple[str, str]]) -> bytes:
    """Return an archive of Python with other words in some files."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as old, zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            text = old.read(name).decode()
            for before, after in [changes[name]] if name in changes else []:
                assert before in text, name
                text = text.replace(before, after)
            archive.writestr(name, text)
    head = program[: program.index(b"PK\x03\x04")]
    return head + new.getvalue()


@contextmanager
def searching(laptop: Laptop, hub: SearchHub, running: Running) -> Iterator["subprocess.Popen[str]"]:
    """Yield a `bp search` that follows its driver; a failure of the test has its output and the pods."""
    process = laptop.start("search", "-y", "lr.ini")
    try:
        yield process
    except (AssertionError, ValueError) as error:
        process.kill()
        pods = running.kubectl("get", "pods,jobsets", "-n", "grace", "-o=wide")
        logs = running.kubectl("logs", "-n", "grace", "-l", "bedplate/run", "--tail=20", "--prefix")
        causes = [run["tags"].get("bedplate.cause") for run in hub.runs.values()]
        raise AssertionError(f"{error}\n{process.communicate()}\n{pods}\n{logs}\n{causes}") from error


def driver_process() -> int:
    """Return the process of a driver, which is not its agent."""
    own = b"python3\0search.pyz\0"
    # A fork of it asks for its token.
    return min(pid for pid in processes("search.pyz") if Path(f"/proc/{pid}/cmdline").read_bytes() == own)


def test_trials_are_pods_and_a_killed_driver_goes_on(laptop: Laptop, hub: SearchHub, running: Running) -> None:
    """Its program is killed, then its pod: no trial is doubled or lost, and each has its price and its end."""
    with searching(laptop, hub, running) as process:
        wait_for(lambda: len(hub.tagged("study", "grace-lr")) >= 1, 60)
        hub.lost = 1
        os.kill(driver_process(), signal.SIGKILL)
        wait_for(lambda: len(hub.tagged("study", "grace-lr")) >= 3, 60)
        (driver,) = hub.tagged("search", "grace-lr")
        label = f"bedplate/run={driver['run_name']}"
        running.kubectl("delete", "pods", "-n", "grace", "-l", label, "--grace-period=0", "--force")

        output, errors = process.communicate(timeout=240)

        assert process.returncode == 0, output + errors
    trials = hub.tagged("study", "grace-lr")
    assert [run["run_name"] for run in trials] == [f"grace-lr-{number:04}" for number in range(5)]
    assert {run["tags"]["bedplate.state"] for run in trials} == {"ended"}
    tags = [{name.removeprefix("bedplate."): value for name, value in run["tags"].items()} for run in trials]
    assert {(own["state"], own["price"], own["group"], own["owner"]) for own in tags} == {
        ("ended", "2.0", GROUP, "grace")
    }
    causes = [own["cause"] for own, run in zip(tags, trials, strict=True) if run["status"] == "KILLED"]
    assert all(cause.startswith("stopped by grace-lr: pruned at step ") for cause in causes)
    assert {run["status"] for run in trials} <= {"FINISHED", "KILLED"}, tags
    assert "grace-lr ends: all 5 trials have ended" in output
    assert driver["tags"]["bedplate.state"] == "ended"
    # The token of the study is in its Secret only, and that of each trial in its own.
    objects = running.kubectl("get", "jobsets,jobs,pods", "-n", "grace", "-o=json")
    assert "R" * 24 not in objects
    assert "study:grace-lr" not in "".join(map(json.dumps, hub.runs.values()))


def test_use_on_a_cluster_and_on_machines_without_a_cluster_manager(
    laptop: Laptop, hub: SearchHub, tmp_path: Path
) -> None:
    """The same command and options: output, files and record of a shipped example are the same, but for the place."""
    hub.answer("/fleet.json", {**FLEET, "groups": {GROUP: FACTS}})
    Path("simulate.py").write_bytes((ROOT / "examples/simulators/simulate.py").read_bytes())
    places = {"group": GROUP, "on": "small.cellar"}
    with machine_of_units(tmp_path) as machine:
        variables = shlex.join(f"{name}={value}" for name, value in machine.environment.items())
        laptop.ssh_answers(SSH.format(token=TOKEN, environment=variables, agent=tmp_path / "bin/bedplate-agent"))
        done = [
            laptop.bp("run", f"--{option}", place, "--param", "lr=1", "--", "python3", "simulate.py")
            for option, place in places.items()
        ]

    assert [result.returncode for result in done] == [0, 0], done
    assert done[0].stdout.startswith("element 1: gains ")
    assert done[0].stdout == done[1].stdout
    runs = [*hub.runs.values()]
    facts = [
        {name: run["tags"][f"bedplate.{name}"] for name in ("tree", "command", "state", "cause", "code")}
        | {"params": run["params"], "status": run["status"]}
        for run in runs
    ]
    assert (facts[0], facts[0]["status"]) == (facts[1], "FINISHED")
    assert [run["tags"].get("bedplate.group", "") for run in runs] == [GROUP, ""]
    assert runs[1]["tags"]["bedplate.machine"] == "small.cellar"
    files = [hub.files[f"7/{run['run_id']}/artifacts/output/result.json"] for run in runs]
    assert files[0] == files[1]


def test_a_drained_driver_goes_on_and_a_stopped_one_stops_its_trials(
    laptop: Laptop, hub: SearchHub, running: Running
) -> None:
    """A pod that is evicted leaves its trials alone; `bp search stop` ends them all, with the reason."""
    Path("train.py").write_text(_TRAIN.replace("0.5)", "30)"))
    with searching(laptop, hub, running) as process:
        wait_for(lambda: [run["rows"] for run in hub.tagged("study", "grace-lr")[:2] if run["rows"]], 120)
        (driver,) = hub.tagged("search", "grace-lr")
        label = f"bedplate/run={driver['run_name']}"
        running.kubectl("delete", "pods", "-n", "grace", "-l", label)
        wait_for(lambda: driver["tags"].get("bedplate.attempt") == "1", 120)
        states = [run["tags"].get("bedplate.state") for run in hub.tagged("study", "grace-lr")]
        assert "ended" not in states, states

        stopped = laptop.bp("search", "stop", "lr")

        output, _ = process.communicate(timeout=120)
        assert stopped.returncode == 0, stopped.stderr
        assert "grace-lr is stopped: `bp search FILE` goes on with it" in output
    trials = hub.tagged("study", "grace-lr")
    assert [(run["status"], run["tags"]["bedplate.cause"]) for run in trials] == [
        ("KILLED", "stopped by grace-lr: the search ended")
    ] * 2
    assert driver["tags"]["bedplate.cause"] == "stopped by grace"
    wait_for(lambda: not running.kubectl("get", "jobsets,pods", "-n", "grace", "-o=name"), 60)


_RIGHTS = {
    "create jobsets.jobset.x-k8s.io": "yes",
    "list jobsets.jobset.x-k8s.io": "yes",
    "delete jobsets.jobset.x-k8s.io": "yes",
    "create secrets": "yes",
    "list pods": "yes",
    "patch jobsets.jobset.x-k8s.io": "no",
    "deletecollection jobsets.jobset.x-k8s.io": "no",
    "create jobsets.jobset.x-k8s.io -n ada": "no",
    "list pods -n ada": "no",
    "get secrets": "no",
    "list secrets": "no",
    "delete secrets": "no",
    "create pods": "no",
    "delete pods": "no",
    "get pods --subresource=log": "no",
    "create pods --subresource=exec": "no",
    "create serviceaccounts --subresource=token": "no",
    "create roles.rbac.authorization.k8s.io": "no",
    "get nodes": "no",
}


def test_the_account_of_drivers_makes_jobsets_and_nothing_else(running: Running) -> None:
    """It has fewer rights than its person, and what it makes is judged as theirs."""
    plane = running.approvers.plane
    token = plane.kubectl("create", "token", "bedplate-search", "-n", "grace", "--duration", "1h").strip()

    def may(question: str) -> str:
        place = () if "-n" in question else ("-n", "grace")
        return plane.as_person(token, "auth", "can-i", *question.split(), *place)[1].split()[-1]

    assert {question: may(question) for question in _RIGHTS} == _RIGHTS
    other = job_set("evil", "grace", gpus=0, group="", priority="urgent")
    code, output = plane.as_person(token, "create", "-f", "-", text=json.dumps(other))
    assert (code, "no priority named urgent" in output) == (1, True), output
