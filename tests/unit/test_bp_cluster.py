"""Runs in the cluster: the Job that bp creates, and what it reads from the state of a pod."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.programs.bp.cluster import Cluster, exit_code, job_of, secret_of, wait_reason
from bedplate.programs.bp.hub import BpError
from bedplate.programs.bp.places import Place

CLUSTER = Cluster("https://api.lab.internal:6443", "PEM", "a-b", 20001, (20001, 30001), "true")
PODS_OF_GROUP = Place(
    "train",
    {"image": "r@sha256:1", "taints": ["nvidia.com/gpu=present:NoSchedule", "own:NoExecute"]},
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
    "environment": {"BEDPLATE_HUB": "x"},
    "secrets": {"KEY": "s3cret"},
    "params": {"lr": "1"},
    "command": ["python", "train.py"],
}


def _pod(claims: Mapping[str, str]) -> Any:  # noqa: ANN401
    job = job_of(RUN, PODS_OF_GROUP, CLUSTER, claims)
    return job["spec"]["template"]["spec"]


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
    assert job_of(RUN, PODS_OF_GROUP, CLUSTER, {})["spec"]["backoffLimit"] == 0


def test_objects_have_names_that_kubernetes_takes() -> None:
    """Also for a person `a_b`, whose namespace is `a-b`: the label has the id, and every name is the same."""
    job, secret = job_of(RUN, PODS_OF_GROUP, CLUSTER, {}), secret_of(RUN, b"agent", "uid-of-the-job")
    (volume,) = (item["secret"] for item in job["spec"]["template"]["spec"]["volumes"] if "secret" in item)

    names = job["metadata"]["name"], secret["metadata"]["name"], secret["metadata"]["ownerReferences"][0]["name"]
    assert {*names, volume["secretName"]} == {"a-b-1127-brave-otter"}
    assert job["metadata"]["labels"]["bedplate/run"] == "a_b-1127-brave-otter"


def test_no_secret_is_in_a_job() -> None:
    """Token, secrets and parameters are in the Secret only, which ends with its Job."""
    secret = secret_of(RUN, b"agent", "uid-of-the-job")

    assert not {"TOKEN", "s3cret", "CERT"} & set(json.dumps(job_of(RUN, PODS_OF_GROUP, CLUSTER, {})).split('"'))
    assert set(secret["data"]) == {"token", "certificate", "agent", "secrets", "params"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-of-the-job"


def test_the_variables_of_the_agent_are_not_the_persons() -> None:
    """`--env` cannot replace a variable of the agent; without a home in this place, HOME is a folder of the pod."""
    variables = {item["name"]: item.get("value") for item in _pod({})["containers"][0]["env"]}

    assert variables["BEDPLATE_HUB"] == "https://hub.lab.internal"
    assert variables["BEDPLATE_PACKS"] == "p,q"
    assert variables["HOME"] == "/bedplate"


def _state(**state: object) -> Mapping[str, Any]:
    return {"containerStatuses": [{"name": "run", "state": state}]}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, ""),
        ({"conditions": [{"type": "PodScheduled", "message": "0/12 nodes"}]}, "0/12 nodes"),
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
        ({"reason": "Evicted", "message": "low on disk"}, "Evicted: low on disk"),
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
