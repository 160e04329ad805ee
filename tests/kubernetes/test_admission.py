"""What a researcher can and cannot create, asked of a real API server with the researcher's token."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.kubernetes.apply import Applied, apply_objects, key_of
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import people_objects, policy_objects
from bedplate.plan.cluster import cluster_plan
from roles.control.role import ADMISSION
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until

Document = dict[str, Any]
UID = lab_plan().accounts.uids["grace"]
_GROUP = 50777
_STORE = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
_USER = {"runAsUser": UID, "runAsGroup": UID}
# The classes of the version before, which ended pods of others.
_OLD_CLASSES: tuple[Document, ...] = tuple(
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}
    for name, value, more in (("high", 1000, {}), ("normal", 0, {"globalDefault": True}), ("low", -5, {}))
)


@pytest.fixture(scope="module")
def applied(control_plane: ControlPlane) -> Iterator[Applied]:
    """Yield what an apply has changed that follows one of the version before."""
    client, plan = ClusterClient(control_plane.client()), lab_plan()
    cluster = cluster_plan(plan)
    assert cluster
    apply_objects(client, _OLD_CLASSES)
    yield apply_objects(client, (*policy_objects(cluster.version), *people_objects(plan.accounts, cluster.pods)))
    for name in ("grace", "ada"):
        control_plane.kubectl("delete", "pods,jobs,services,secrets", "--all", "-n", name, "--force")
    apply_objects(client, ())


@pytest.fixture(scope="module")
def grace(control_plane: ControlPlane, applied: Applied) -> str:
    """Return a token of a researcher, whose namespace accepts pods."""
    assert applied.changed
    control_plane.wait_for_namespace("grace")
    quotas = ("get", "quota", "-n", "grace", "-o", "jsonpath={range .items[*]}{.status.hard.pods} {end}")
    assert wait_until(lambda: len(control_plane.kubectl(*quotas).split()) == 2)
    # The API server learns of new policies by a watch.
    dry = ("create", "-n", "grace", "--dry-run=server", "-f", "-")
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=text(pod(nodeName="x"))).returncode)
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=text(pod())).returncode == 0)
    return control_plane.kubectl("create", "token", "grace", "-n", "people", "--duration", "1h").strip()


def document(kind: str, version: str = "v1", **fields: Any) -> Document:  # noqa: ANN401
    """Return an object with a name that the server generates."""
    return {"apiVersion": version, "kind": kind, "metadata": {"generateName": "x-"}, **fields}


def spec(container: Mapping[str, Any] | None = None, **fields: Any) -> Document:  # noqa: ANN401
    """Return the spec of a pod with one container."""
    return {"containers": [{"name": "main", "image": "none", **(container or {})}], **fields}


def pod(container: Mapping[str, Any] | None = None, **fields: Any) -> Document:  # noqa: ANN401
    """Return a pod with one container."""
    return document("Pod", spec=spec(container, **fields))


def with_store(
    context: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401
) -> Document:
    """Return a pod with the claim of homes that a researcher may create, but for the given fields."""
    limits = {"allowPrivilegeEscalation": False}
    mounts = [{"name": "home", "mountPath": "/home/grace"}]
    more = {"securityContext": limits, "volumeMounts": mounts, **(container or {})}
    return pod(more, volumes=_STORE, securityContext={**_USER, **(context or {})}, **fields)


def volume(**source: Any) -> Document:  # noqa: ANN401
    """Return a pod with one volume."""
    return pod(volumes=[{"name": "v", **source}])


def mount(**fields: str) -> Document:
    """Return a container that mounts a part of the store."""
    return {"volumeMounts": [{"name": "home", "mountPath": "/data", **fields}]}


def tolerating(**toleration: str) -> Document:
    """Return a pod with one toleration."""
    return pod(tolerations=[toleration])


def repelling(**others: object) -> Document:
    """Return a pod next to which no pod with a label is placed, in namespaces besides its own or in its own."""
    term = {"labelSelector": {}, "topologyKey": "kubernetes.io/os", **others}
    return pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def text(*documents: Document) -> str:
    """Return documents as kubectl reads them."""
    return "\n---\n".join(map(json.dumps, documents))


_NODE = {"apiVersion": "v1", "kind": "Node", "name": "train-1", "uid": "1"}
_TEMPLATE = {"accessModes": ["ReadWriteMany"], "volumeName": "grace.cellar-data", "storageClassName": ""}
_CLAIM = {"spec": {**_TEMPLATE, "resources": {"requests": {"storage": "1Ti"}}}}
_PORTS = [{"port": 2049}]
_PLUGIN = "Use of external IPs is denied"
_MEMBERS = "machines of the control plane"
_REFUSED: Mapping[str, tuple[Document, str]] = {
    "external address of a file server": (
        document("Service", spec={"ports": _PORTS, "externalIPs": ["192.168.40.5"]}),
        _PLUGIN,
    ),
    "port of machines": (document("Service", spec={"ports": _PORTS, "type": "NodePort"}), "exceeded quota"),
    "load balancer": (document("Service", spec={"ports": _PORTS, "type": "LoadBalancer"}), "exceeded quota"),
    "inline NFS": (volume(nfs={"server": "nas.cellar", "path": "/srv/home"}), "volumes may be"),
    "ephemeral claim of a store": (volume(ephemeral={"volumeClaimTemplate": _CLAIM}), "volumes may be"),
    "rbd": (volume(rbd={"monitors": ["10.0.0.1"], "image": "a"}), "volumes may be"),
    "flexVolume": (volume(flexVolume={"driver": "a/b"}), "volumes may be"),
    "fc": (volume(fc={"targetWWNs": ["50"], "lun": 1}), "volumes may be"),
    "EBS": (volume(awsElasticBlockStore={"volumeID": "vol-1"}), "volumes may be"),
    "CSI": (volume(csi={"driver": "a"}), "volumes may be"),
    "path of the machine": (volume(hostPath={"path": "/"}), "baseline"),
    "group of all files": (with_store({"fsGroup": UID}), "cannot have fsGroup"),
    "group changed at first mount": (with_store({"fsGroupChangePolicy": "OnRootMismatch"}), "cannot have fsGroup"),
    "groups of the image": (with_store({"supplementalGroupsPolicy": "Merge"}), "supplementalGroupsPolicy: Strict"),
    "foreign group": (with_store({"supplementalGroups": [_GROUP]}), "your groups only"),
    "folder below a closed one": (with_store(container=mount(subPath="ada/open")), "delete subPath"),
    "folder by a variable": (with_store(container=mount(subPathExpr="$(X)")), "delete subPath"),
    "root on a store": (with_store({"runAsUser": 0}), f"runAsUser: {UID}"),
    "machine by name": (pod(nodeName="control-1.us-west-2"), "only the scheduler"),
    "every taint": (tolerating(operator="Exists"), "without a key"),
    "every taint with an effect": (tolerating(operator="Exists", effect="NoSchedule"), "without a key"),
    "taint of members": (tolerating(operator="Exists", key="node-role.kubernetes.io/control-plane"), _MEMBERS),
    "taint of the gate": (tolerating(key="bedplate/gate", value="pending"), _MEMBERS),
    "scheduler of one's own": (pod(schedulerName="mine"), "delete schedulerName"),
    "static pod": (
        {**pod(), "metadata": {"generateName": "x-", "annotations": {"kubernetes.io/config.mirror": "x"}}},
        "must set spec.nodeName",
    ),
    "pod of a machine": (
        {**pod(), "metadata": {"generateName": "x-", "ownerReferences": [_NODE]}},
        "only kubelet creates",
    ),
    "repelling pods of others": (repelling(namespaceSelector={}), "exceeded quota: affinity-to-others"),
    "repelling pods of one person": (repelling(namespaces=["ada"]), "exceeded quota: affinity-to-others"),
    "class of the system": (
        pod(priorityClassName="system-node-critical"),
        "delete priorityClassName: system-node-critical",
    ),
    "class that preempts": (pod(priorityClassName="preempts"), "delete priorityClassName: preempts"),
    "preemption": (pod(preemptionPolicy="PreemptLowerPriority"), "PreemptionPolicy"),
    "raw packets": (pod({"securityContext": {"capabilities": {"add": ["NET_RAW"]}}}), "baseline"),
    "port of the machine": (pod({"ports": [{"containerPort": 80, "hostPort": 80}]}), "baseline"),
    "token without an end": (
        {
            **document("Secret", type="kubernetes.io/service-account-token"),
            "metadata": {"generateName": "t-", "annotations": {"kubernetes.io/service-account.name": "default"}},
        },
        "tokens end",
    ),
    "large Secret": (document("Secret", stringData={"a": "x" * 200_000, "b": "x" * 70_000}), "at most 256 KiB"),
    "large ConfigMap": (document("ConfigMap", data={"a": "x" * 270_000}), "at most 256 KiB"),
    "event": (
        document("Event", involvedObject={"namespace": "grace"}, message="x", reason="x", type="Normal"),
        "do not write events",
    ),
}
_PROJECTED = {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "a"}}]}
_LABELS = {"app": "x"}
_WORKLOAD = {"selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": spec()}}
_ONCE = {"template": {"spec": spec(restartPolicy="Never")}}
_ACCEPTED: Mapping[str, Document] = {
    "plain pod": pod(),
    "store as oneself": with_store(),
    "part of a ConfigMap": pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/etc/a", "subPath": "a"}]},
        volumes=[{"name": "v", "configMap": {"name": "a"}}],
    ),
    "group of files without a store": pod(
        volumes=[{"name": "v", "emptyDir": {}}], securityContext={"fsGroup": 1000, "fsGroupChangePolicy": "Always"}
    ),
    "Secret as a volume": volume(secret={"secretName": "a"}),
    "memory": volume(emptyDir={"medium": "Memory"}),
    "volume without a source": volume(),
    "projected": volume(projected=_PROJECTED),
    "downward API": volume(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}),
    "image": volume(image={"reference": "none"}),
    "GPUs": pod(
        {"resources": {"limits": {"nvidia.com/gpu": "8"}}},
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "lab.example/large", "value": "yes"}],
        nodeSelector={"kubernetes.io/hostname": "train-1"},
    ),
    "repelling own pods": repelling(),
    "resources of the whole pod": pod(resources={"requests": {"cpu": "1", "memory": "2Gi"}}),
    "default class by name": pod(priorityClassName="default"),
    "own capabilities": pod({"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}),
    "init container": pod(initContainers=[{"name": "first", "image": "none", "securityContext": {"runAsUser": 7}}]),
    "Deployment": document("Deployment", "apps/v1", spec={**_WORKLOAD, "replicas": 2}),
    "StatefulSet": document("StatefulSet", "apps/v1", spec={**_WORKLOAD, "serviceName": "x"}),
    "DaemonSet": document("DaemonSet", "apps/v1", spec=_WORKLOAD),
    "Job": document("Job", "batch/v1", spec=_ONCE),
    "CronJob": document("CronJob", "batch/v1", spec={"schedule": "0 0 1 1 *", "jobTemplate": {"spec": _ONCE}}),
    "Service": document("Service", spec={"ports": _PORTS, "selector": _LABELS}),
    "headless Service": document("Service", spec={"ports": _PORTS, "clusterIP": "None"}),
    "name of another host": document("Service", spec={"type": "ExternalName", "externalName": "example.org"}),
    "Ingress": document(
        "Ingress", "networking.k8s.io/v1", spec={"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}
    ),
    "budget": document("PodDisruptionBudget", "policy/v1", spec={"maxUnavailable": 1}),
    "Secret": document("Secret", stringData={"a": "x" * 260_000}),
    "ConfigMap": document("ConfigMap", data={"a": "x" * 130_000}, binaryData={"b": "eHh4" * 44_000}),
    "ServiceAccount": document("ServiceAccount"),
}


def create(plane: ControlPlane, token: str, *documents: Document) -> tuple[int, str]:
    """Create objects in a researcher's namespace with their token."""
    return plane.as_person(token, "create", "-n", "grace", "-f", "-", "-o", "json", text=text(*documents))


def created(plane: ControlPlane, token: str, item: Document) -> Document:
    """Return an object as the API server has stored it."""
    status, output = create(plane, token, item)
    assert status == 0, output
    stored: Document = json.loads(output)
    return stored


def as_admin(plane: ControlPlane, *words: str, item: Document | None = None) -> str:
    """Run kubectl as an administrator in the researcher's namespace."""
    return plane.kubectl(*words, "-n", "grace", text=text(item) if item else "")


@pytest.fixture(scope="module")
def preempting(control_plane: ControlPlane, applied: Applied) -> Iterator[None]:
    """Create a class that preempts, as an add-on may bring it."""
    item = {**_OLD_CLASSES[0], "metadata": {"name": "preempts"}}
    control_plane.kubectl("create", "-f", "-", text=text(item))
    yield
    control_plane.kubectl("delete", "priorityclass", "preempts")


@pytest.mark.parametrize(("item", "message"), _REFUSED.values(), ids=_REFUSED)
@pytest.mark.usefixtures("preempting")
def test_what_harms_others_is_refused(control_plane: ControlPlane, grace: str, item: Document, message: str) -> None:
    """The answer says what to change, in the first place that fits."""
    status, output = create(control_plane, grace, item)

    assert status != 0, output
    assert message in output


@pytest.mark.parametrize("item", _ACCEPTED.values(), ids=_ACCEPTED)
def test_ordinary_objects_are_accepted(control_plane: ControlPlane, grace: str, item: Document) -> None:
    """Nobody has to write settings for security."""
    status, output = create(control_plane, grace, item)

    assert status == 0, output


def test_a_policy_refuses_external_addresses_by_itself(
    control_plane: ControlPlane, grace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member without the plug-in of this version refuses them too, once the policies are applied."""
    item, _ = _REFUSED["external address of a file server"]
    with monkeypatch.context() as patch:
        patch.setitem(ADMISSION, "enable-admission-plugins", "NodeRestriction")
        control_plane.stop_server()
        control_plane.start_server()
        # The policies are read after the start.
        assert wait_until(lambda: "delete externalIPs" in create(control_plane, grace, item)[1], 30)
    control_plane.stop_server()
    control_plane.start_server()


def test_no_policy_has_an_error_of_types(control_plane: ControlPlane, grace: str) -> None:
    """The API server knows every field that the policies name."""
    warnings = "jsonpath={.items[*].status.typeChecking.expressionWarnings}"

    assert not control_plane.kubectl("get", "validatingadmissionpolicies", "-o", warnings)


def test_pods_get_what_the_policies_require(control_plane: ControlPlane, grace: str) -> None:
    """Every container loses NET_RAW and keeps its other settings; stores ignore groups of the image."""
    limits = {"allowPrivilegeEscalation": False}
    item = with_store(container={"securityContext": {**limits, "capabilities": {"drop": ["ALL"]}}})
    second = {"name": "second", "image": "none", "securityContext": {**limits, "runAsUser": UID}}
    first = {"name": "first", "image": "none", "securityContext": {**limits, "capabilities": {"drop": ["MKNOD"]}}}
    item["spec"] |= {"containers": [*item["spec"]["containers"], second], "initContainers": [first]}

    stored = created(control_plane, grace, item)["spec"]

    drops = [
        entry["securityContext"]["capabilities"]["drop"] for entry in (*stored["initContainers"], *stored["containers"])
    ]
    assert drops == [["MKNOD", "NET_RAW"], ["ALL"], ["NET_RAW"]]
    assert stored["containers"][1]["securityContext"]["runAsUser"] == UID
    assert stored["securityContext"] == {**_USER, "supplementalGroupsPolicy": "Strict"}
    assert (stored["preemptionPolicy"], stored["priority"]) == ("Never", 0)
    assert stored["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "256Mi"}
    assert "limits" not in stored["containers"][0]["resources"]


def test_a_container_for_debugging_follows_the_same_rules(control_plane: ControlPlane, grace: str) -> None:
    """Administrators may add one: in a pod with a store as its person, without NET_RAW; one as root is refused."""
    name = created(control_plane, grace, with_store())["metadata"]["name"]
    patch = ("patch", "pod", name, "-n", "grace", "--subresource=ephemeralcontainers", "-p")

    def debug(**fields: object) -> str:
        container = {"name": "debug", "image": "none", "securityContext": {"allowPrivilegeEscalation": False, **fields}}
        done = control_plane.try_kubectl(*patch, json.dumps({"spec": {"ephemeralContainers": [container]}}))
        return done.stderr + done.stdout

    assert "must run as you" in debug(runAsUser=0)
    assert "patched" in debug()
    stored = json.loads(as_admin(control_plane, "get", "pod", name, "-o", "json"))["spec"]["ephemeralContainers"]
    assert stored[0]["securityContext"]["capabilities"]["drop"] == ["NET_RAW"]


def test_a_pod_cannot_be_changed_into_a_refused_one(control_plane: ControlPlane, grace: str) -> None:
    """Kubernetes permits new tolerations of a pod: those of members are refused, others are not."""
    name = created(control_plane, grace, tolerating(key="nvidia.com/gpu", operator="Exists"))["metadata"]["name"]

    def tolerate(**toleration: str) -> str:
        kept = json.loads(as_admin(control_plane, "get", "pod", name, "-o", "json"))["spec"]["tolerations"]
        patch = json.dumps({"spec": {"tolerations": [*kept, toleration]}})
        return control_plane.as_person(grace, "patch", "pod", name, "-n", "grace", "-p", patch)[1]

    assert _MEMBERS in tolerate(key="node-role.kubernetes.io/control-plane", operator="Exists")
    assert "without a key" in tolerate(operator="Exists")
    assert "patched" in tolerate(key="lab.example/large", operator="Exists")
    moved = json.dumps({"spec": {"nodeName": "control-1.us-west-2"}})
    assert "Forbidden" in control_plane.as_person(grace, "patch", "pod", name, "-n", "grace", "-p", moved)[1]


def test_a_service_cannot_be_changed_into_a_refused_one(control_plane: ControlPlane, grace: str) -> None:
    """An address outside the cluster is refused later, too; other changes are not."""
    name = created(control_plane, grace, _ACCEPTED["Service"])["metadata"]["name"]

    def change(**spec: object) -> str:
        words = ("patch", "service", name, "-n", "grace", "-p", json.dumps({"spec": spec}))
        return control_plane.as_person(grace, *words)[1]

    assert _PLUGIN in change(externalIPs=["10.64.32.16"])
    assert "exceeded quota" in change(type="NodePort")
    assert "patched" in change(selector={"app": "y"})


@pytest.mark.parametrize(
    ("kind", "version", "fields"),
    [
        ("DaemonSet", "apps/v1", {"tolerations": [{"operator": "Exists"}]}),
        ("Deployment", "apps/v1", {"nodeName": "control-1.us-west-2"}),
    ],
)
def test_controllers_cannot_create_what_people_cannot(
    control_plane: ControlPlane, grace: str, kind: str, version: str, fields: Document
) -> None:
    """The pods of a refused template never exist, and the event of its owner says why."""
    control_plane.add_nodes(1, {}, prefix="rules")
    workload = {**_WORKLOAD, "template": {"metadata": {"labels": _LABELS}, "spec": spec(**fields)}}
    name = created(control_plane, grace, document(kind, version, spec=workload))["metadata"]["name"]

    events = ("get", "events", "--field-selector=reason=FailedCreate", "-o", "jsonpath={.items[*].message}")
    assert wait_until(
        lambda: f"bedplate-{'tolerations' if kind == 'DaemonSet' else 'pods'}" in as_admin(control_plane, *events), 30
    )

    as_admin(control_plane, "delete", kind, name)
    control_plane.kubectl("delete", "node", "rules-0")


def test_a_helm_chart_runs(control_plane: ControlPlane, grace: str) -> None:
    """A typical chart is created as a whole, and its controllers create the pods."""
    labels = {"app.kubernetes.io/name": "board"}
    context = {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    probe = {"httpGet": {"path": "/", "port": "http"}}
    container = {
        "securityContext": context,
        "ports": [{"name": "http", "containerPort": 80}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "envFrom": [{"configMapRef": {"name": "board"}}, {"secretRef": {"name": "board"}}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  a mount in a container
    }
    template = {
        "metadata": {"labels": labels},
        "spec": spec(
            container,
            serviceAccountName="board",
            securityContext={"fsGroup": 2000},
            volumes=[{"name": "tmp", "emptyDir": {}}],
        ),
    }
    selector = {"matchLabels": labels}
    parts = (
        document("ServiceAccount"),
        document("Secret", stringData={"KEY": "x"}),
        document("ConfigMap", data={"RATE": "1"}),
        document("Service", spec={"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]}),
        document("Deployment", "apps/v1", spec={"selector": selector, "template": template, "replicas": 2}),
        document("PodDisruptionBudget", "policy/v1", spec={"maxUnavailable": 1, "selector": selector}),
    )
    for part in parts:
        part["metadata"] = {"name": "board", "labels": labels}

    status, output = create(control_plane, grace, *parts)

    assert status == 0, output
    count = ("get", "pods", "-l=app.kubernetes.io/name=board", "-o", "name")
    assert wait_until(lambda: len(as_admin(control_plane, *count).split()) == 2, 30)
    as_admin(control_plane, "delete", "deployment,service,secret,configmap,sa,pdb", "board")


@pytest.mark.parametrize("number", [1, 2])
def test_the_jobs_of_the_page_for_researchers_are_accepted(
    control_plane: ControlPlane, grace: str, number: int
) -> None:
    """Their text needs no change but the user id."""
    page = Path("docs/researchers.md").read_text().split("```yaml\n")[number].partition("```")[0]
    job = YAML(typ="safe").load(page.replace("20001", str(UID)))

    stored = created(control_plane, grace, job)

    pods = ("get", "pods", f"-l=batch.kubernetes.io/job-name={stored['metadata']['name']}", "-o", "name")
    assert wait_until(lambda: as_admin(control_plane, *pods), 30)


def test_a_policy_never_refuses_the_end_of_a_pod(control_plane: ControlPlane, grace: str) -> None:
    """A person leaves a group while a Job runs with it: the Job becomes complete, and its pod can be deleted."""
    gids = as_admin(control_plane, "get", "namespace", "grace", "-o", r"jsonpath={.metadata.annotations.bedplate/gids}")
    annotate = ("annotate", "namespace", "grace", "--overwrite")
    control_plane.kubectl(*annotate, f"bedplate/gids={gids},{_GROUP}")
    item = with_store({"supplementalGroups": [_GROUP]}, restartPolicy="Never")
    dry = ("create", "-n", "grace", "--dry-run=server", "-f", "-")
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=text(item)).returncode == 0)
    job = created(control_plane, grace, document("Job", "batch/v1", spec={"template": {"spec": item["spec"]}}))
    name = job["metadata"]["name"]
    pods = ("get", "pods", f"-l=batch.kubernetes.io/job-name={name}", "-o")
    assert wait_until(lambda: as_admin(control_plane, *pods, "name"), 30)

    control_plane.kubectl(*annotate, f"bedplate/gids={gids}")
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=text(item)).returncode)
    ended = json.dumps({"status": {"phase": "Succeeded"}})
    as_admin(
        control_plane, "patch", as_admin(control_plane, *pods, "name").strip(), "--subresource=status", "-p", ended
    )

    succeeded = ("get", "job", name, "-o", "jsonpath={.status.succeeded}")
    assert wait_until(lambda: as_admin(control_plane, *succeeded) == "1", 30)
    assert not as_admin(control_plane, *pods, "jsonpath={.items[*].metadata.finalizers}")
    as_admin(control_plane, "delete", "job", name)
    assert wait_until(lambda: not as_admin(control_plane, *pods, "name"), 30)


def test_tokens_end_within_a_day(control_plane: ControlPlane, grace: str) -> None:
    """A token of an own account is shortened, whatever a person asks for."""
    words = (
        "create",
        "token",
        "default",
        "-n",
        "grace",
        "--duration=87600h",
        "-o",
        "jsonpath={.status.expirationTimestamp}",
    )

    _, output = control_plane.as_person(grace, *words)

    end = datetime.strptime(output.split()[-1], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert end < datetime.now(UTC) + timedelta(hours=24, minutes=1)


def test_the_number_of_objects_is_limited(control_plane: ControlPlane, grace: str) -> None:
    """All share etcd: each kind that people can create has a quota."""
    writable = _writable(control_plane.as_person(grace, "auth", "can-i", "--list", "-n", "grace")[1])
    quota = json.loads(as_admin(control_plane, "get", "quota", "default", "-o", "json"))["spec"]["hard"]
    limited = {name.removeprefix("count/") for name in quota}

    # Events have a policy of their own; extensions is a former name of kinds that have one.
    others = {name for name in writable if not name.startswith("events") and ".extensions" not in name}
    assert not others - limited


def _writable(table: str) -> set[str]:
    """Return the kinds that `kubectl auth can-i --list` names with the right to create, without subresources."""
    rows = [
        line.split()
        for line in table.splitlines()
        if "create" in line.partition("[]")[2] and "/" not in line.split()[0]
    ]
    return {row[0] for row in rows if not row[0].startswith("self")}


def test_old_classes_are_removed_before_the_new_one_is_created(applied: Applied) -> None:
    """Kubernetes refuses a second default class, so an apply after an upgrade deletes the first one in time."""
    assert set(applied.deleted) == {key_of(item) for item in _OLD_CLASSES}
    assert "default" in {key.name for key in applied.changed if key.kind == "PriorityClass"}


def _right(words: str, answer: str) -> tuple[Sequence[str], str]:
    return words.split(), answer


_RIGHTS = (
    _right("create pods --subresource=binding", "no"),
    _right("patch pods --subresource=ephemeralcontainers", "no"),
    _right("create bindings", "no"),
    _right("patch pods --subresource=status", "no"),
    _right("patch services --subresource=status", "no"),
    _right("create endpoints", "no"),
    _right("create endpointslices.discovery.k8s.io", "no"),
    _right("create roles.rbac.authorization.k8s.io", "no"),
    _right("create certificatesigningrequests.certificates.k8s.io", "no"),
    _right("create validatingwebhookconfigurations.admissionregistration.k8s.io", "no"),
    _right("patch namespaces", "no"),
    _right("patch limitranges", "no"),
    _right("create priorityclasses.scheduling.k8s.io", "no"),
    _right("create persistentvolumes", "no"),
    _right("create pods --subresource=exec -n ada", "no"),
    _right("create pods --subresource=attach -n ada", "no"),
    _right("create pods --subresource=portforward -n ada", "no"),
    _right("get pods --subresource=log -n ada", "no"),
    _right("update leases.coordination.k8s.io -n kube-system", "no"),
    _right("impersonate users", "no"),
    _right("impersonate groups", "no"),
    _right("impersonate serviceaccounts -n people", "no"),
    _right("create nodes --subresource=proxy", "no"),
    _right("create pods --subresource=exec", "yes"),
    _right("create pods --subresource=portforward", "yes"),
    _right("create networkpolicies.networking.k8s.io", "yes"),
)


@pytest.mark.parametrize(("question", "answer"), _RIGHTS, ids=[" ".join(words) for words, _ in _RIGHTS])
def test_rights_that_lead_to_others(
    control_plane: ControlPlane, grace: str, question: Sequence[str], answer: str
) -> None:
    """Nobody redirects packets, binds pods, gives rights, or enters containers of others."""
    place = () if "-n" in question else ("-n", "grace")
    _, output = control_plane.as_person(grace, "auth", "can-i", *question, *place)

    assert output.split()[-1] == answer
