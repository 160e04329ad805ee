"""What a driver does in the cluster: its trials as JobSets, the ends of those without an agent, and its own end."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from bedplate.nodes.invitation import bp_program
from bedplate.programs.search import __main__ as program
from bedplate.programs.search import edges
from bedplate.programs.search.edges import StudyCluster, StudyHub
from tests.testlab.fakes.laptop import HOST, FakeHub
from tests.testlab.fakes.studies import SearchHub, World, study_of
from tests.unit.test_bp_cluster import PODS_OF_GROUP, RUN
from tests.unit.test_bp_search import record

JOBSETS, PODS, SECRETS = (
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets",
    "/api/v1/namespaces/ada/pods",
    "/api/v1/namespaces/ada/secrets",
)
NAME, SELECTOR = "ada-lr-0000", "?labelSelector=bedplate%2Fstudy%3Dada-lr"
_CONFLICT, _FORBIDDEN = 409, 403
_FULL = f'jobsets.jobset.x-k8s.io "{NAME}" is forbidden: exceeded quota: runs, used: 500, limited: 500'
_LOST = {"type": "Failed", "message": "job was lost"}
_NO_PYTHON = {"exitCode": 128, "reason": "StartError", "message": "python3: not found"}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SearchHub]:
    """Yield a hub with the record of a trial and of its driver."""
    with SearchHub(tmp_path) as hub:
        record(hub, NAME)
        record(hub, "ada-1128-x", id="ada-1128-x", study="", search="ada-lr")
        yield hub


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a stand-in for the API of the cluster."""
    (tmp_path / "api").mkdir()
    with FakeHub(tmp_path / "api", "localhost") as api:
        api.answer(JOBSETS, {"metadata": {"uid": "1"}, "items": []})
        api.answer(PODS, {"items": []})
        api.answer(SECRETS, {})
        yield api


@pytest.fixture
def cluster(hub: SearchHub, api: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StudyCluster]:
    """Yield what a driver in a pod has of the cluster."""
    access = api.cluster_of("ada")
    (tmp_path / "search.pyz").write_bytes(bp_program())
    monkeypatch.setattr("sys.argv", [str(tmp_path / "search.pyz")])
    monkeypatch.setattr(edges, "_PRINT", access["token"])
    values = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(api.server_address[1])}
    for name, value in {**values, "POD": "own", "MLFLOW_RUN_ID": run_id(hub, "ada-1128-x"), "KEY": "s3cret"}.items():
        monkeypatch.setenv(name, value)
    url = f"https://{HOST}:{hub.server_address[1]}"
    facts: dict[str, Any] = {"hub": url, "address": "127.0.0.1", "certificate": hub.certificate.read_text()}
    facts = {**facts, "name": "ada-lr", "settings": study_of(), "secrets": ["KEY"], "claims": {}, "cluster": access}
    facts |= {"document": {**RUN, **facts, "checkpoints": "", "secrets": {}}, "place": vars(PODS_OF_GROUP)}
    with closing(StudyHub(facts, f"20001.1893456000.study:ada-lr.{'R' * 24}")) as connection:
        cluster = StudyCluster(connection, facts)
        with closing(cluster._api):  # noqa: SLF001
            yield cluster


def run_id(hub: SearchHub, name: str) -> str:
    """Return MLflow's id of a run."""
    return next(str(run["run_id"]) for run in hub.runs.values() if run["run_name"] == name)


def trial(hub: SearchHub) -> Mapping[str, Any]:
    """Return the trial as the driver has it."""
    return {"run": run_id(hub, NAME), "name": NAME, "experiment": "7", "tags": {}, "end_time": None}


def cause(hub: SearchHub) -> str:
    """Return why the trial has ended; empty before."""
    return str(hub.runs[run_id(hub, NAME)]["tags"].get("bedplate.cause", ""))


def jobset(**status: object) -> Mapping[str, object]:
    """Return the JobSet of the trial."""
    return {"metadata": {"name": NAME, "labels": {"bedplate/run": NAME}}, "status": status, "spec": {}}


def pod(phase: str, state: Mapping[str, object], name: str = "a", **facts: object) -> Mapping[str, object]:
    """Return a pod of the trial."""
    metadata = {"name": name, "labels": {"bedplate/run": NAME}, "creationTimestamp": "1", **facts}
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [{"name": "run", "state": state}]}}


def test_a_trial_is_a_jobset_of_its_study(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """It has a token of its own, the secrets of the driver, and a label; its pods have no account."""
    assert cluster.start(trial(hub), {"lr": "0.5"}, 600) == ""

    sent = [json.loads(body) for line, _, body in api.requests if line.startswith("POST")]
    assert [item["kind"] for item in sent] == ["JobSet", "Secret"]
    assert sent[0]["metadata"]["labels"]["bedplate/study"] == "ada-lr"
    assert sent[0]["spec"]["ttlSecondsAfterFinished"] == 60
    spec = sent[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert spec["metadata"]["labels"]["bedplate/study"] == "ada-lr"
    assert (spec["spec"]["automountServiceAccountToken"], "serviceAccountName" in spec["spec"]) == (False, False)
    assert hub.scopes == [f"run:{run_id(hub, NAME)}"]
    assert "s3cret" not in json.dumps(sent[0])
    assert hub.runs[run_id(hub, NAME)]["params"] == {"lr": "0.5"}


def test_a_trial_that_has_its_jobset_stays_as_it_is(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """A driver that was killed starts it again, also with a full quota, and may read no Secret."""
    api.answer(JOBSETS, {"message": _FULL}, _FORBIDDEN)
    api.answer(SECRETS, {"message": f'secrets "{NAME}" already exists'}, _CONFLICT)
    api.answer(f"{JOBSETS}/{NAME}", {"metadata": {"uid": "1"}})

    assert cluster.start(trial(hub), {}, 600) == ""

    lines = [line.partition(" ")[0] for line, _, _ in api.requests]
    assert lines == ["GET", "POST"]


def test_a_jobset_that_was_there_is_never_deleted(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """Also if its Secret is refused."""
    api.answer(SECRETS, {"message": "no"}, _FORBIDDEN)
    api.answer(f"{JOBSETS}/{NAME}", {"metadata": {"uid": "1"}})

    assert "no (403)" in cluster.start(trial(hub), {}, 600)

    assert not [line for line, _, _ in api.requests if line.startswith("DELETE")]


def test_a_full_quota_is_told_apart(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """Such a trial may start later."""
    api.answer(JOBSETS, {"message": _FULL}, _FORBIDDEN)

    assert edges.FULL in cluster.start(trial(hub), {}, 600)
    assert cause(hub) == ""


@pytest.mark.parametrize("status", [403, 422])
def test_a_trial_that_the_cluster_refuses_says_why(
    status: int, cluster: StudyCluster, hub: SearchHub, api: FakeHub
) -> None:
    """So the search ends after some of them."""
    api.answer(JOBSETS, {"message": "no priority named x: write interactive, normal or spare"}, status)

    assert "no priority named x" in cluster.start(trial(hub), {}, 600)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (([jobset()], [pod("Running", {"running": {}})]), ""),
        (([jobset()], [pod("Pending", {"waiting": {"reason": "ErrImagePull", "message": "no route"}})]), ""),
        (([jobset()], [pod("Pending", {"waiting": {"reason": "InvalidImageName"}})]), "the container cannot start"),
        (([], []), "its JobSet was deleted"),
        (([jobset(terminalState="Failed", conditions=[_LOST])], []), "its pods have ended: job was lost"),
        (([jobset(terminalState="Failed")], [pod("Failed", {"terminated": _NO_PYTHON})]), "the image has no python3"),
    ],
)
def test_a_trial_without_a_word_of_its_agent_gets_its_end(
    state: tuple[list[object], list[object]], expected: str, cluster: StudyCluster, hub: SearchHub, api: FakeHub
) -> None:
    """By its JobSet and its pod; one that waits is left alone, and one that never starts is deleted."""
    for path, items in zip((JOBSETS, PODS), state, strict=True):
        api.answer(path, {"items": items})
    api.answer(f"{JOBSETS}/{NAME}", {})

    cluster.check([trial(hub)])

    assert cause(hub).startswith(expected)
    assert bool(cause(hub)) is bool(expected)
    assert [line for line, _, _ in api.requests][:2] == [f"GET {JOBSETS}{SELECTOR}", f"GET {PODS}{SELECTOR}"]
    assert any(line.startswith("DELETE") for line, _, _ in api.requests) is ("cannot" in expected or "no p" in expected)


def test_the_end_that_an_agent_has_written_stays(cluster: StudyCluster, hub: SearchHub) -> None:
    """Its JobSet is deleted a minute later."""
    hub.runs[run_id(hub, NAME)]["tags"] |= {"bedplate.state": "ended", "bedplate.cause": "done"}

    cluster.check([trial(hub)])

    assert cause(hub) == "done"


def test_an_api_that_is_away_is_waited_for(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """No trial has failed by that."""
    api.answer(JOBSETS, {"items": [jobset()]})
    api.is_away = True
    Timer(0.5, setattr, (api, "is_away", False)).start()

    cluster.check([trial(hub)])

    assert cause(hub) == ""


def test_a_stop_says_who_and_why(cluster: StudyCluster, hub: SearchHub, api: FakeHub) -> None:
    """The agent writes that; without a running one the driver does."""
    api.answer(f"{JOBSETS}/{NAME}", {})

    assert cluster.stop(trial(hub), "pruned at step 9") == ""

    assert cause(hub) == "stopped by ada-lr: pruned at step 9"
    assert any(line.startswith(f"DELETE {JOBSETS}/{NAME}?") for line, _, _ in api.requests)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (([pod("Running", {}, "own", deletionTimestamp="2")], ""), True),
        (([pod("Running", {}, "next")], ""), True),
        (([pod("Running", {}, "own", deletionTimestamp="2")], "ada"), False),
        (([pod("Running", {}, "own")], ""), False),
    ],
)
def test_a_driver_whose_pod_is_made_again_leaves_its_trials_alone(
    state: tuple[list[object], str], *, expected: bool, cluster: StudyCluster, hub: SearchHub, api: FakeHub
) -> None:
    """One that its person has stopped, or whose time is over, stops them."""
    pods, by = state
    hub.runs[run_id(hub, "ada-1128-x")]["tags"] |= {"bedplate.stopped_by": by} if by else {}
    api.answer(PODS, {"items": pods})

    assert cluster.is_made_again() is expected


def test_of_two_drivers_one_ends(cluster: StudyCluster, hub: SearchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one sees the first; that one goes on after a kill, for its record says that it drives."""
    connection = cluster._hub  # noqa: SLF001
    assert program._other_driver(connection, "ada-lr") == ""  # noqa: SLF001
    record(hub, "ada-1128-y", id="ada-1128-y", study="", search="ada-lr")
    assert program._other_driver(connection, "ada-lr") == ""  # noqa: SLF001
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id(hub, "ada-1128-y"))

    assert program._other_driver(connection, "ada-lr") == "ada-1128-x"  # noqa: SLF001


def test_a_full_disk_ends_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver writes is a sign for its agent only; with room again it is there."""
    driver = World(study_of()).driver()
    monkeypatch.setenv("BEDPLATE_CHECKPOINTS", "/dev/full")
    program._keep(driver)  # noqa: SLF001
    monkeypatch.setenv("BEDPLATE_CHECKPOINTS", str(tmp_path))

    program._keep(driver)  # noqa: SLF001

    assert (tmp_path / "ended").read_text() == "0"
