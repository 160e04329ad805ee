"""Runs in the cluster: the JobSet that bp creates, and how it follows that to the end."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.programs.bp import pods
from bedplate.programs.bp.cluster import Api
from bedplate.programs.bp.hub import BpError
from bedplate.programs.bp.jobset import Cluster, jobset_of, name_of, secret_of
from bedplate.programs.bp.places import Place
from bedplate.programs.bp.pods import NotRunningError, Record, exit_code, follow, wait_reason
from tests.testlab.fakes.laptop import FakeHub

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = Cluster("https://api.lab.internal:6443", "PEM", "a-b", 20001, (20001, 30001), "true")
PODS_OF_GROUP = Place(
    "train",
    {"image": "r@sha256:1", "taints": ["nvidia.com/gpu=present:NoSchedule", "own:NoExecute"], "gpus": 8, "efa": 4},
    "train",
    {"bedplate/group": "train"},
)
RUN: Mapping[str, Any] = {
    "id": "a_b-1127-brave-otter",
    "run": "0" * 32,
    "experiment": "1",
    "hub": "https://hub.lab.internal",
    "address": "10.0.0.9",
    "certificate": "CERT",
    "token": "TOKEN",
    "tree": "a" * 40,
    "packs": ["p", "q"],
    "gpus": 2,
    "cpus": 4,
    "memory": 16,
    "for": 60,
    "launch": "",
    "grace": 100,
    "attempt": 0,
    "nodes": 1,
    "restarts": 2,
    "scratch_ok": "",
    "priority": "normal",
    "after": "",
    "checkpoints": "/home/a_b/.bedplate/checkpoints/a_b-1127-brave-otter",
    "environment": {"BEDPLATE_HUB": "x"},
    "secrets": {"KEY": "s3cret"},
    "params": {"lr": "1"},
    "command": ["python", "train.py"],
}


def _jobset(claims: Mapping[str, str], **values: object) -> Any:  # noqa: ANN401  a document
    return jobset_of({**RUN, **values}, PODS_OF_GROUP, CLUSTER, claims)


def _job(claims: Mapping[str, str], **values: object) -> Any:  # noqa: ANN401  a document
    (job,) = _jobset(claims, **values)["spec"]["replicatedJobs"]
    return job["template"]["spec"]


def _pod(claims: Mapping[str, str], **values: object) -> Any:  # noqa: ANN401  a document
    return _job(claims, **values)["template"]["spec"]


def _variables(claims: Mapping[str, str], **values: object) -> Mapping[str, Any]:
    (container,) = _pod(claims, **values)["containers"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def test_a_job_has_what_the_policies_of_the_cluster_require() -> None:
    """It runs once, as the person with their groups, on nodes of the group, whose taints it tolerates."""
    pod = _pod({"home": "/home/a_b"})
    (container,) = pod["containers"]

    assert pod["nodeSelector"] == {"bedplate/group": "train"}
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["nvidia.com/gpu", "own"]
    assert {key: pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "supplementalGroups")} == {
        "runAsUser": 20001,
        "runAsGroup": 20001,
        "supplementalGroups": [30001],
    }
    assert container["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": "2"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {mount["mountPath"] for mount in container["volumeMounts"]} > {"/dev/shm", "/home/a_b"}  # noqa: S108
    assert (_job({})["backoffLimit"], _job({})["completions"]) == (0, 1)


def test_an_array_is_a_job_with_an_index_for_each_element() -> None:
    """So many pods at a time, and no gang: one that fails ends no other one, and one that is lost is made again."""
    array = {"elements": "3,7-9", "at_once": 2}
    job, spec = _job({}, **array), _jobset({}, **array)["spec"]

    assert (job["completions"], job["parallelism"], job["completionMode"]) == (4, 2, "Indexed")
    assert (job["backoffLimitPerIndex"], job["maxFailedIndexes"], "backoffLimit" in job) == (0, 4, False)
    assert job["template"]["metadata"]["labels"] == {"bedplate/run": RUN["id"], "bedplate/gang": ""}
    assert [rule["action"] for rule in job["podFailurePolicy"]["rules"]] == ["Ignore", "FailIndex", "Ignore"]
    # A new JobSet would run elements again that have ended.
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    variables = _variables({}, **array)
    assert (variables["BEDPLATE_ELEMENTS"], variables["BEDPLATE_ARRAY"]) == ("3,7-9", RUN["id"])
    assert "job-completion-index" in variables["BEDPLATE_INDEX"]["fieldRef"]["fieldPath"]
    assert "BEDPLATE_RANK" not in variables


def test_objects_have_names_that_kubernetes_takes() -> None:
    """Also for a person `a_b`, whose namespace is `a-b`: the label has the id, and every name is the same."""
    jobset, secret = _jobset({}), secret_of(RUN, b"agent", "uid-of-the-jobset")
    (volume,) = (item["secret"] for item in _pod({})["volumes"] if "secret" in item)

    names = jobset["metadata"]["name"], secret["metadata"]["name"], secret["metadata"]["ownerReferences"][0]["name"]
    assert {*names, volume["secretName"]} == {"a-b-1127-brave-otter"}
    assert jobset["metadata"]["labels"]["bedplate/run"] == "a_b-1127-brave-otter"
    long = f"{'p' * 32}-1127-{'n' * 24}"
    assert re.fullmatch("[a-z][a-z0-9-]*", name_of(long))
    assert len(f"{name_of(long)}-n-0-9999-x7f2k") <= 63
    assert name_of(long) != name_of(f"{long[:-1]}o")


def test_no_secret_is_in_a_jobset() -> None:
    """Token, secrets and parameters are in the Secret only, which ends with its JobSet."""
    secret = secret_of(RUN, b"agent", "uid-of-the-jobset")

    assert not {"TOKEN", "s3cret", "CERT"} & set(json.dumps(_jobset({})).split('"'))
    assert set(secret["data"]) == {"token", "certificate", "agent", "secrets", "params"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-of-the-jobset"


def test_the_variables_of_the_agent_are_not_the_persons() -> None:
    """`--env` cannot replace a variable of the agent; without a home in this place, HOME is a folder of the pod."""
    variables = _variables({})

    assert variables["BEDPLATE_HUB"] == "https://hub.lab.internal"
    assert variables["BEDPLATE_PACKS"] == "p,q"
    assert variables["HOME"] == "/bedplate"
    # The agent tells them from those of the image.
    assert _variables({}, environment={"SEED": "1", "NCCL_PROTO": "Simple"})["BEDPLATE_ENV"] == "SEED NCCL_PROTO"


def test_all_nodes_start_and_restart_together() -> None:
    """One Job has a pod a node, with host names; a lost peer or node makes all again, and an end of a program none."""
    spec, job = _jobset({}, nodes=16)["spec"], _job({}, nodes=16)

    assert (job["parallelism"], job["completions"], job["completionMode"]) == (16, 16, "Indexed")
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert _jobset({})["spec"]["network"]["enableDNSHostnames"] is False
    variables = _variables({}, nodes=16)
    assert variables["BEDPLATE_MASTER"] == "a-b-1127-brave-otter-n-0-0.a-b-1127-brave-otter"
    assert (variables["BEDPLATE_NODES"], variables["BEDPLATE_PORT"], variables["BEDPLATE_RESTARTS"]) == (
        "16",
        "29399",
        "2",
    )
    assert "job-completion-index" in variables["BEDPLATE_RANK"]["fieldRef"]["fieldPath"]
    rules = spec["failurePolicy"]["rules"]
    # What the controller of Jobs writes. Source: pkg/controller/job/pod_failure_policy.go, Kubernetes 1.36.
    ended = "Container run for pod ada/x failed with exit code {} matching FailJob rule at index {}"
    lost = "Pod ada/x has condition DisruptionTarget matching FailJob rule at index 2"
    actions = {
        ended.format(137, 0): True,
        ended.format(143, 0): True,
        ended.format(255, 0): True,
        ended.format(200, 0): True,
        ended.format(201, 0): True,
        lost: True,
        ended.format(1, 1): False,
        ended.format(2, 1): False,
        ended.format(2000, 1): False,
        "Job has reached the specified backoff limit": False,
    }
    for message, is_repeated in actions.items():
        rule = next(rule for rule in rules if _applies(rule, message))
        assert (rule["action"] == "RestartJobSetAndIgnoreMaxRestarts") is is_repeated, message
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", rule["name"]) for rule in rules)


def _applies(rule: Mapping[str, Any], message: str) -> bool:
    patterns: Sequence[str] = rule.get("onJobFailureMessagePatterns", [""])
    return any(re.search(pattern, message) for pattern in patterns)


def test_a_run_waits_in_the_queue_of_its_person() -> None:
    """One that starts after another run is held until the controller releases it."""
    labels, held = _jobset({})["metadata"], _jobset({}, after="a_b-1126-x:ok", priority="spare")["metadata"]

    assert labels["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert labels["labels"]["kueue.x-k8s.io/priority-class"] == "normal"
    assert "annotations" not in labels
    assert held["labels"]["kueue.x-k8s.io/queue-name"] == "held"
    assert held["labels"]["kueue.x-k8s.io/priority-class"] == "spare"
    assert held["annotations"] == {"bedplate/after": "a_b-1126-x:ok"}
    # The class of pods stays the default: none ends pods of others.
    assert "priorityClassName" not in _pod({}, priority="spare")


@pytest.mark.parametrize(
    ("claims", "folder"),
    [
        ({"home": "/home/a_b"}, "/home/a_b/.bedplate/checkpoints/a_b-1127-brave-otter"),
        ({"data": "/data"}, "/bedplate/checkpoints"),
        ({}, "/bedplate/checkpoints"),
    ],
)
def test_checkpoints_are_on_a_store_of_the_pod(claims: Mapping[str, str], folder: str) -> None:
    """Without it they are in the pod, for restarts of its ranks."""
    assert _variables(claims)["BEDPLATE_CHECKPOINTS"] == folder


def test_several_nodes_have_their_part_of_the_fabric() -> None:
    """EFA interfaces and huge pages follow the GPUs; one node needs none."""
    limits = _pod({}, nodes=2, gpus=8)["containers"][0]["resources"]["limits"]
    half = _pod({}, nodes=2, gpus=4)["containers"][0]["resources"]["requests"]

    assert (limits["vpc.amazonaws.com/efa"], limits["hugepages-2Mi"]) == ("4", "5120Mi")
    assert (half["vpc.amazonaws.com/efa"], half["hugepages-2Mi"]) == ("2", "2560Mi")
    assert "vpc.amazonaws.com/efa" not in _pod({}, gpus=8)["containers"][0]["resources"]["limits"]


def _state(**state: object) -> Mapping[str, Any]:
    return {"status": {"containerStatuses": [{"name": "run", "state": state}]}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"status": {}}, ""),
        ({"status": {"conditions": [{"type": "PodScheduled", "message": "0/12 nodes"}]}}, "0/12 nodes"),
        (_state(waiting={"reason": "ContainerCreating"}), "ContainerCreating"),
        (_state(waiting={"reason": "ErrImagePull", "message": "not found"}), "ErrImagePull: not found"),
    ],
)
def test_a_pod_says_why_it_waits(status: Mapping[str, Any], reason: str) -> None:
    """The reason is that of kubelet, or else that of the scheduler."""
    assert wait_reason(status) == reason


def test_a_container_that_never_starts_is_an_error() -> None:
    """Otherwise kubelet repeats it until the run's time is over."""
    with pytest.raises(BpError, match="InvalidImageName"):
        wait_reason(_state(waiting={"reason": "InvalidImageName"}))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"status": {"reason": "Evicted", "message": "low on disk"}}, "Evicted: low on disk"),
        (_state(terminated={"exitCode": 128, "reason": "StartError", "message": "python3: not found"}), "no python3"),
        (_state(terminated={"exitCode": 128, "reason": "StartError", "message": "too long"}), "too long"),
    ],
)
def test_a_program_that_did_not_run_has_no_exit_code(status: Mapping[str, Any], message: str) -> None:
    """The person reads why, instead of a number of the runtime."""
    with pytest.raises(BpError, match=message):
        exit_code(status)


def test_a_program_has_its_own_exit_code() -> None:
    """Also after a signal, which is that of a container without memory."""
    assert exit_code(_state(terminated={"exitCode": 137, "reason": "OOMKilled"})) == 137


class _Cluster:
    """An API whose state changes with each look: the JobSet, the pod, and the lines of each pod."""

    cluster = CLUSTER

    def __init__(self, *looks: tuple[Mapping[str, Any], Mapping[str, Any]], reason: str = "") -> None:
        self._looks, self._reason, self.at = looks, reason, 0
        self.read: list[tuple[str, str]] = []

    def jobset(self, _: str) -> Mapping[str, Any]:
        self.at += 1
        return self._looks[min(self.at, len(self._looks)) - 1][0]

    def pod(self, _: str) -> Mapping[str, Any]:
        return self._looks[min(self.at, len(self._looks)) - 1][1]

    def log(self, pod: str, since: str) -> Iterator[tuple[str, bytes]]:
        self.read.append((pod, since))
        if not since:
            yield "2026", f"{pod}\n".encode()

    def reason(self, _: object) -> str:
        return self._reason

    def call(self, path: str, **_: object) -> Mapping[str, Any]:
        """Answer as an empty queue does."""
        return self.jobset("") if "/jobsets/" in path else {"items": []}


class _Ends:
    """A record whose agent writes an end after some looks."""

    def __init__(self, code: int | None, after: int = 1) -> None:
        self._code, self._after, self.causes = code, after, list[str]()

    def code(self) -> int | None:
        self._after -= 1
        return self._code if self._after <= 0 else None

    def cause(self) -> str:
        return "node-7 is lost"

    def end(self, cause: str) -> None:
        self.causes.append(cause)


GOES_ON: Mapping[str, Any] = {"metadata": {"name": "x", "uid": "1"}, "spec": {}, "status": {}}
OVER: Mapping[str, Any] = {"metadata": {"name": "x", "uid": "1"}, "status": {"terminalState": "Failed"}}


def _of(name: str, **state: object) -> Mapping[str, Any]:
    return {"metadata": {"name": name}, **_state(**state)}


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, bytes, list[str]]]:
    """Return a function that follows a run to its end: its exit code, its output and what was said."""
    monkeypatch.setattr(pods, "_POLL", 0.001)

    def run(cluster: _Cluster, record: _Ends) -> tuple[int, bytes, list[str]]:
        output, said = list[bytes](), list[str]()
        code = follow(cast("Api", cluster), "x", output.append, said.append, cast("Record", record))
        return code, b"".join(output), said

    return run


Followed = Callable[..., tuple[int, bytes, list[str]]]


@pytest.mark.parametrize(
    ("code_of_agent", "cause"), [(200, "node-7 is lost"), (137, "its container ended with exit code 137: Error")]
)
def test_a_run_is_followed_over_its_attempts(followed: Followed, code_of_agent: int, cause: str) -> None:
    """After a lost node or agent the output of the new pod follows, once each; the exit code is that of the record."""
    lost = _of("first", terminated={"exitCode": code_of_agent, "reason": "Error"})
    cluster = _Cluster(
        (GOES_ON, {}),
        (GOES_ON, _of("first", running={})),
        (GOES_ON, lost),
        (GOES_ON, lost),
        (GOES_ON, {}),
        (GOES_ON, _of("second", waiting={"reason": "ContainerCreating"})),
        (GOES_ON, _of("second", running={})),
        (GOES_ON, _of("second", terminated={"exitCode": 3, "reason": "Error"})),
    )

    code, output, said = followed(cluster, _Ends(7))

    assert (code, output) == (7, b"first\nsecond\n")
    assert said == [f"{cause}; it starts again", "waiting: ContainerCreating"]


def test_a_controller_that_is_slow_ends_no_run(followed: Followed) -> None:
    """The container has ended, its JobSet not yet: bp waits, and writes no end of its own."""
    ended = _of("a", terminated={"exitCode": 0, "reason": "Completed"})
    record = _Ends(None)

    code, _, said = followed(_Cluster((GOES_ON, ended), (GOES_ON, ended), (OVER, ended)), record)

    assert (code, said) == (0, [])
    assert record.causes == ["its container ended with exit code 0: Completed"]


def test_who_follows_says_what_the_queue_says(followed: Followed) -> None:
    """What the line of the queue has, and of a run that was admitted why it has no pods."""
    jobset = _jobset({})
    meta = {**jobset["metadata"], "uid": "1", "namespace": "a-b", "creationTimestamp": "2026-11-28T01:00:00Z"}
    spec = {**jobset["spec"], "suspend": True}
    waits = {"metadata": {**meta, "annotations": {"bedplate/waits": "It waits for 16 GPUs of train."}}, "spec": spec}
    over = _of("a", terminated={"exitCode": 0})
    looks: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [(waits, {})] * 3 + [(GOES_ON, {})] * 9 + [(OVER, over)]

    _, _, said = followed(_Cluster(*looks, reason="exceeded quota"), _Ends(0))

    assert said == ["waiting: It waits for 16 GPUs of train.", "waiting: exceeded quota"]


def test_a_jobset_that_is_gone_has_an_end(followed: Followed) -> None:
    """Its agents write it while they end; without one, bp does."""
    running = _of("a", running={})
    gone: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = ({}, running), ({}, running), ({}, {})

    assert followed(_Cluster((GOES_ON, running), *gone), _Ends(201, after=3))[0] == 201

    record = _Ends(None)
    with pytest.raises(NotRunningError, match="its JobSet was deleted"):
        followed(_Cluster((GOES_ON, running), *gone), record)
    assert record.causes == ["its JobSet was deleted"]


def test_ctrl_c_before_the_secret_leaves_no_jobset(tmp_path: "Path") -> None:
    """The pods of such a run would hold their machines, and wait for the Secret for ever."""
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets"

    def interrupt(_: str) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    with FakeHub(tmp_path, "localhost") as hub, closing(Api(Cluster(**hub.cluster_of("ada")))) as api:  # type: ignore[arg-type]
        hub.answer(path, {"metadata": {"uid": "1"}})
        with pytest.raises(KeyboardInterrupt):
            api.start(_jobset({}), interrupt)

        assert hub.requests[-1][0] == f"DELETE {path}/a-b-1127-brave-otter"
