"""Runs of people in the queue: the add-ons kueue and jobset on a real API server, as `kube addons apply` sets them."""

import json

from tests.testlab.kubernetes.control_plane import wait_until
from tests.testlab.kubernetes.queues import Queues, job_set


def test_a_run_gets_a_machine(queues: Queues) -> None:
    """A JobSet of a person is admitted, and its pods run, with the names of the contract."""
    queues.plane.add_nodes(1, {"nvidia.com/gpu": "8"}, {"bedplate/group": "train"}, prefix="first")

    queues.plane.kubectl("create", "-f", "-", text=json.dumps(job_set("one", "grace")))

    ask = ("get", "pods", "-n", "grace", "-l", "bedplate/run=one", "-o", "jsonpath={.items[*].status.phase}")
    assert wait_until(lambda: queues.plane.kubectl(*ask) == "Running", 30)
