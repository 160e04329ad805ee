"""The add-ons on a real API server: accepted, applied without changes again, and removed.

The manifests are upstream's, from the Go module proxy. NVIDIA's two are not there: stand-ins take their place.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.addons import Object
from bedplate.kubernetes.apply import Key, apply_objects, close_namespace, delete_objects, key_of, read_inventory
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import desired_objects
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.upstream import MIRROR, available_pins, read_upstream
from tests.testlab.run import lack


def _cluster_plan(plane: ControlPlane) -> ClusterPlan:
    cluster = cluster_plan(lab_plan())
    assert cluster
    return replace(cluster, services=IPv4Network(plane.services))


@pytest.fixture(scope="module")
def objects(control_plane: ControlPlane) -> tuple[Object, ...]:
    """Return everything that the lab's cluster must have."""
    if not MIRROR.exists():
        lack("needs upstream's manifests: `python -m tests.testlab.kubernetes` fetches them")
    return desired_objects(lab_plan(), _cluster_plan(control_plane), available_pins(load_addons()), read_upstream)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, objects: tuple[Object, ...]) -> Iterator[ClusterClient]:
    """Yield a cluster to which the objects were applied once; they are deleted at the end."""
    client = ClusterClient(control_plane.client())
    apply_objects(client, objects)
    control_plane.wait_for_namespace("grace")
    yield client
    # Namespaces stay, and their pods would be work for the capacity controllers of other tests.
    control_plane.kubectl("delete", "pods", "--all", "--namespace=grace")
    apply_objects(client, ())


def _pod(uid: int | None = None, **extra: object) -> str:
    """Return a pod as JSON; with `uid` it mounts the claim of homes as that user."""
    container = {"name": "main", "image": "none", "securityContext": {"allowPrivilegeEscalation": False}}
    spec: dict[str, object] = {"containers": [container], **extra}
    if uid is not None:
        spec["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
        spec["securityContext"] = {"runAsUser": uid, "runAsGroup": uid}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec})


@pytest.fixture(scope="module")
def grace(control_plane: ControlPlane, cluster: ClusterClient) -> str:
    """Return a token of a researcher, as a member of the control plane makes it."""
    return control_plane.kubectl("create", "token", "grace", "-n", "people", "--duration", "1h").strip()


def test_a_second_apply_changes_nothing(cluster: ClusterClient, objects: tuple[Object, ...]) -> None:
    """Every object is accepted, and the same again is no change."""
    applied = apply_objects(cluster, objects)

    assert (applied.changed, applied.deleted, applied.kept) == ((), (), ())
    assert applied.total == len(objects)


def test_prune_deletes_what_is_no_longer_declared(cluster: ClusterClient, objects: tuple[Object, ...]) -> None:
    """An object of an earlier apply is deleted; a namespace is closed, because it holds files and work of people."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "old"}}
    apply_objects(cluster, (*objects, namespace, config))

    applied = apply_objects(cluster, objects)

    assert applied.deleted == (key_of(config),)
    assert applied.kept == (key_of(namespace),)
    assert set(read_inventory(cluster)) == {key_of(item) for item in objects}


def test_an_object_that_was_changed_by_hand_is_applied_again(
    control_plane: ControlPlane, cluster: ClusterClient, objects: tuple[Object, ...]
) -> None:
    """A value that differs from the declared one, or a deleted object, is restored; nothing else is written."""
    control_plane.kubectl("label", "namespace", "grace", "bedplate/uid=1", "--overwrite")
    control_plane.kubectl("delete", "configmap", "kube-flannel-cfg", "-n", "kube-flannel")

    applied = apply_objects(cluster, objects)

    assert {str(key) for key in applied.changed} == {"Namespace grace", "ConfigMap kube-flannel/kube-flannel-cfg"}


def test_a_refused_object_stops_no_other(
    control_plane: ControlPlane, cluster: ClusterClient, objects: tuple[Object, ...]
) -> None:
    """The API server refuses one change: it is reported, and all others are made."""
    good = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good", "namespace": "default"}}
    bad = {**good, "metadata": {"name": "bad", "namespace": "default", "labels": {"a": "not valid!"}}}
    try:
        applied = apply_objects(cluster, (*objects, bad, good))

        assert [str(key) for key in applied.changed] == ["ConfigMap default/good"]
        assert ["not valid!" in failure.what for failure in applied.failures] == [True]
    finally:
        apply_objects(cluster, objects)


def test_a_deleted_claim_comes_back(
    control_plane: ControlPlane, cluster: ClusterClient, objects: tuple[Object, ...]
) -> None:
    """A person has deleted the claim of their home: the next apply creates it, bound to the same volume."""
    control_plane.kubectl("delete", "pvc", "home", "-n", "grace")
    assert wait_until(lambda: control_plane.kubectl(*_phase("pv/grace.home")) == "Released")

    apply_objects(cluster, objects)

    assert wait_until(lambda: control_plane.kubectl(*_phase("pvc/home", "-n", "grace")) == "Bound")


def _phase(name: str, *options: str) -> tuple[str, ...]:
    return ("get", name, *options, "--output", "jsonpath={.status.phase}")


def test_the_work_of_a_removed_person_ends(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    """Nothing starts in a closed namespace, whatever creates it, and running pods end unless they are kept."""
    container = {"name": "c", "image": "none"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    control_plane.kubectl("create", "namespace", "leaver")
    control_plane.kubectl("create", "quota", "default", "-n", "leaver", "--hard=pods=500")
    control_plane.wait_for_namespace("leaver")
    control_plane.kubectl("create", "-n", "leaver", "-f", "-", text=json.dumps(deployment))

    def pods() -> set[str]:
        return set(control_plane.kubectl("get", "pods", "-n", "leaver", "--output", "name").split())

    assert wait_until(lambda: len(pods()) == 2)
    before = pods()
    control_plane.kubectl("create", "secret", "generic", "bedplate-secrets", "-n", "leaver", "--from-literal=KEY=value")

    close_namespace(cluster, "leaver", ends_pods=False)
    control_plane.kubectl("scale", "deployment/d", "-n", "leaver", "--replicas=9")
    assert not wait_until(lambda: pods() != before, 5)

    close_namespace(cluster, "leaver")
    assert wait_until(lambda: not pods())
    assert not wait_until(pods, 5)
    assert not control_plane.kubectl("get", "secrets", "-n", "leaver", "--output", "name")
    control_plane.kubectl("delete", "namespace", "leaver", "--wait=false")


def test_pods_are_for_the_own_namespace_only(control_plane: ControlPlane, grace: str) -> None:
    """A researcher runs pods in their namespace, and not in others."""
    created, _ = control_plane.as_person(grace, "create", "-n", "grace", "-f", "-", text=_pod())
    refused, message = control_plane.as_person(grace, "create", "-n", "ada", "-f", "-", text=_pod())

    assert (created, refused) == (0, 1)
    assert "forbidden" in message


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("list secrets -n grace", "yes"),
        ("list secrets -n ada", "no"),
        ("list secrets -n kube-system", "no"),
        ("list secrets -n people", "no"),
        ("create serviceaccounts/token -n people", "no"),
        ("list nodes -n grace", "yes"),
        ("patch nodes -n grace", "no"),
        ("patch resourcequotas -n grace", "no"),
        ("create rolebindings -n grace", "no"),
    ],
)
def test_rights_of_researchers(control_plane: ControlPlane, grace: str, question: str, answer: str) -> None:
    """A researcher reads nodes, and nothing of others or of the system."""
    _, output = control_plane.as_person(grace, "auth", "can-i", *question.split())

    assert output.split()[-1] == answer


def test_administrators_have_all_rights(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    """An administrator of the fleet is one of the cluster."""
    token = control_plane.kubectl("create", "token", "ada", "-n", "people").strip()

    _, output = control_plane.as_person(token, "auth", "can-i", "*", "*", "--all-namespaces")

    assert output.split()[-1] == "yes"


_NFS = [{"name": "all", "nfs": {"server": "nas.cellar", "path": "/srv/home"}}]
UID = lab_plan().accounts.uids["grace"]


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(_pod(hostNetwork=True), "baseline", id="host network"),
        pytest.param(_pod(volumes=_NFS), "mount stores by the claims", id="inline NFS"),
        pytest.param(_pod(0), f"runAsUser: {UID}", id="root"),
        pytest.param(_pod(UID + 1), f"runAsUser: {UID}", id="somebody else"),
        pytest.param(
            _pod(UID).replace('"allowPrivilegeEscalation": false', ""), "allowPrivilegeEscalation", id="setuid"
        ),
        pytest.param(
            _pod(UID).replace('"runAsGroup"', '"supplementalGroups": [50001], "runAsGroup"'), "your groups", id="group"
        ),
        pytest.param(_pod(UID), "", id="own home as oneself"),
    ],
)
def test_pods_cannot_read_files_of_others(control_plane: ControlPlane, grace: str, pod: str, message: str) -> None:
    """A pod with a store runs as its person, and mounts nothing but the claims of the namespace."""
    status, output = control_plane.as_person(grace, "create", "-n", "grace", "-f", "-", text=pod)

    assert (status == 0) == (not message)
    assert message in output


def test_claims_are_bound_to_their_volumes(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    """Each store is a bound claim in each namespace; the home is the person's own folder."""

    def phases() -> set[str]:
        return set(
            control_plane.kubectl("get", "pvc", "-n", "grace", "-o", "jsonpath={.items[*].status.phase}").split()
        )

    assert wait_until(lambda: phases() == {"Bound"})
    assert control_plane.kubectl("get", "pv", "grace.home", "-o", "jsonpath={.spec.local.path}") == "/home/grace"


def test_tokens_of_a_removed_person_are_refused(
    control_plane: ControlPlane, cluster: ClusterClient, grace: str
) -> None:
    """Within a minute of the deletion of the account, as `person remove` does it, the API server refuses its tokens."""
    account = Key("v1", "ServiceAccount", "people", "grace")
    assert delete_objects(cluster, (account,)) == (account,)

    assert wait_until(lambda: "Unauthorized" in control_plane.as_person(grace, "get", "pods", "-n", "grace")[1], 60)
