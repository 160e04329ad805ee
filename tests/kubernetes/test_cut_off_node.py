"""A real kubelet that is cut off from the API server: its pods run on, and no Job of a person runs twice.

kubelet, containerd and runc run in a network namespace; the machine has joined by the path of the roles.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import policy_objects
from roles.control.role import API_SERVER
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joined_node import CASES, Running, blank
from tests.testlab.kubernetes.real_node import pod


@pytest.fixture
def titan(tmp_path: Path) -> Iterator[Running]:
    """Yield another machine of a site, which has passed its gate."""
    with blank(CASES["site"], tmp_path / "root") as running:
        running.join()
        running.pass_gate()
        yield running


def test_a_node_that_is_cut_off_runs_no_job_twice(titan: Running) -> None:
    """Pods with the API server's toleration run on; a Job of a person starts another pod only when the first has ended.

    One second is the patience of the two Jobs, instead of days. Without the policy, a Job starts another pod at once.
    """
    plane, days = titan.approvers.plane, int(API_SERVER["default-unreachable-toleration-seconds"])
    assert isinstance(plane, ControlPlane)
    # If no node answers, Kubernetes evicts no pod.
    plane.start_kwok()
    plane.kubectl("cordon", *plane.add_nodes(1, {}))
    policy = [item for item in policy_objects("1.36") if item["metadata"]["name"] == "bedplate-jobs"]
    apply_objects(ClusterClient(plane.client()), policy)
    titan.kubectl("create", "namespace", "grace")
    titan.kubectl("label", "namespace", "grace", "bedplate/uid=20001")
    plane.wait_for_namespace("grace")
    titan.kubectl("create", "-f", "-", text=pod("patient", spec=waiting(titan, days)))
    jobs = {"grace": job("train", waiting(titan, 1)), "default": job("train", waiting(titan, 1))}
    probe = ("create", "-n", "grace", "-f", "-", "--dry-run=server", "-o=json")
    assert wait_until(lambda: '"podReplacementPolicy": "Failed"' in titan.kubectl(*probe, text=jobs["grace"]), 30)
    for namespace, text in jobs.items():
        titan.kubectl("create", "-n", namespace, "-f", "-", text=text)
    assert wait_until(lambda: [pods(titan, name) for name in jobs] == [["Running"], ["Running"]], 60)
    assert wait_until(lambda: titan.phase("patient") == "Running", 60)

    with titan.machine.cut():
        assert wait_until(lambda: len(pods(titan, "default")) == 2, 120), pods(titan, "default")
        time.sleep(5)
        assert pods(titan, "grace") == ["Terminating"]
        assert pods(titan, "default") == ["Pending", "Terminating"]
        assert "deletionTimestamp" not in titan.kubectl("get", "pod", "patient", "-o=json")

    assert wait_until(lambda: pods(titan, "grace") == ["Running"], 120), pods(titan, "grace")
    assert titan.kubectl("get", "pod", "patient", _RESTARTS) == "0"


_RESTARTS = "-o=jsonpath={.status.containerStatuses[0].restartCount}"


def waiting(running: Running, seconds: int) -> dict[str, Any]:
    """Return the part of a pod's spec that stays on the node for some seconds after it does not answer."""
    own = [{"key": taint.partition("=")[0], "operator": "Exists"} for taint in running.case.promised.taints]
    away = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    return {"tolerations": [*own, {**away, "tolerationSeconds": seconds}]}


def job(name: str, spec: Mapping[str, Any]) -> str:
    """Return a Job with one pod, which fails if it is ended."""
    document = json.loads(pod(name, spec=spec, command=["sleep", "infinity"]))
    template = {"spec": {**document["spec"], "restartPolicy": "Never"}}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return json.dumps({**document, "spec": {"template": template}})


def pods(running: Running, namespace: str) -> list[str]:
    """Return the phases of the pods of a namespace's Job; an evicted one is Terminating."""
    items = json.loads(running.kubectl("get", "pods", "-n", namespace, "-l=job-name=train", "-o=json"))["items"]
    return sorted(
        "Terminating" if "deletionTimestamp" in item["metadata"] else item["status"]["phase"] for item in items
    )
