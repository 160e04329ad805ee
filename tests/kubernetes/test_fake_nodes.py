"""The control plane of the tests behaves as a real one: scheduling, rights, and an outage."""

from typing import cast

import pytest
from lightkube import ApiError
from lightkube.resources.core_v1 import Node, Pod

from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until


def _pod(name: str, gpus: int) -> Pod:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return cast("Pod", Pod.from_dict({"metadata": {"name": name}, "spec": {"containers": [container]}}))


def _phase(plane: ControlPlane, namespace: str, name: str) -> str:
    status = plane.client().get(Pod, name, namespace=namespace).status
    return (status and status.phase) or ""


def test_gpus_are_scheduled_on_fake_nodes(control_plane: ControlPlane, namespace: str) -> None:
    """A pod runs on a node with enough GPUs; one without a node stays pending."""
    client = control_plane.client()
    (node,) = control_plane.add_nodes(1, {"nvidia.com/gpu": "8"}, prefix="gpu")
    client.create(_pod("fits", 8), namespace=namespace)
    client.create(_pod("waits", 1), namespace=namespace)

    assert wait_until(lambda: _phase(control_plane, namespace, "fits") == "Running")
    assert _phase(control_plane, namespace, "waits") == "Pending"
    client.delete(Node, node)


def test_a_user_without_a_role_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    """RBAC is on: a certificate of the cluster gives no right by itself."""
    with pytest.raises(ApiError, match="forbidden"):
        list(control_plane.client("nobody").list(Pod, namespace=namespace))


def test_objects_survive_an_outage(control_plane: ControlPlane, namespace: str) -> None:
    """After the API server was killed and started, it has the same objects."""
    client = control_plane.client()
    client.create(_pod("stays", 1), namespace=namespace)

    control_plane.stop_server()
    control_plane.start_server()

    assert control_plane.client().get(Pod, "stays", namespace=namespace).metadata
