"""The objects of a run in the cluster: its JobSet, one pod a node, and the Secret that these wait for."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZipFile

from ..agent.restarts import REPEATED
from ..agent.sources import REQUIREMENTS
from ..elements import elements_of
from .places import FOLDER, Place

GANG = "bedplate/gang"
"""The label of pods, with an empty value, that may start without one another."""
LABEL, CONTAINER, KIND, API_VERSION = "bedplate/run", "run", "JobSet", "jobset.x-k8s.io/v1alpha2"
"""The label with a run's id, the container of its pods, and what bp creates."""
QUEUE, PRIORITY, AFTER = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class", "bedplate/after"
"""Labels of a JobSet, and the annotation with the run that must end before."""
STUDY, SEARCH = "bedplate/study", "bedplate-search"
"""The label of the trials of a study, and the account of the program that makes them."""
HELD = "held"
"""The queue of runs that wait for another one."""
_WORK, _SECRET = "/bedplate", "run"
# Seconds: an ended JobSet is kept so that `kubectl` shows it, too, that of a trial for less: they are many. Agents of a
# run listen on a port of its first pod.
_KEPT, _KEPT_TRIAL, _PORT = 86_400, 60, 29_399
# The pods of a JobSet are named `NAME-n-0-63-x7f2k`, which is one label of DNS, also for 9,999 of them.
_LONGEST_NAME, _HASH = 45, 8
_EFA, _HUGE_PAGES = "vpc.amazonaws.com/efa", 5_120
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Exit codes of agents that are made again, and all that end a run. An agent that has written the end has none of the
# former.
_AGAIN: Mapping[str, Any] = {"containerName": CONTAINER, "operator": "In", "values": [*REPEATED]}
_FINAL: Mapping[str, Any] = {**_AGAIN, "operator": "NotIn", "values": [0, *REPEATED]}
_START = """import sys
if sys.version_info < (3, 9):
    sys.exit("error: runs need Python 3.9 or newer in their image")
from programs.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
# What an agent needs nothing of.
_ELSEWHERE = ("programs/bp/", "programs/board/", "programs/search/")
Object = Mapping[str, Any]


@dataclass(frozen=True)
class Cluster:
    """The cluster of an archive: `token` is a shell script that prints an ExecCredential by ssh."""

    server: str
    authority: str
    namespace: str
    uid: int
    gids: Sequence[int]
    token: str


def name_of(run: str) -> str:
    """Return the name of a run's objects: it has no `_` of a person, and one that is too long ends in a digest."""
    name = run.replace("_", "-")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - _HASH - 1]}-{sha256(run.encode()).hexdigest()[:_HASH]}"


def jobset_of(run: Mapping[str, Any], place: Place, cluster: Cluster, claims: Mapping[str, str]) -> Object:
    """Return the JobSet of a run; `claims` are the person's stores that its nodes mount, with their paths.

    All pods are made again if a node or an agent is lost or gets a notice, and never if the program has ended.
    """
    labels, nodes, elements = {LABEL: run["id"]}, run["nodes"], run.get("elements", "")
    labels |= {STUDY: run["study"]} if "study" in run else {}
    job = {
        "parallelism": run["at_once"] if elements else nodes,
        "completions": (count := len(elements_of(elements)) if elements else nodes),
        "completionMode": "Indexed",
        # An element that fails ends no other one, and is not repeated.
        **({"backoffLimitPerIndex": 0, "maxFailedIndexes": count} if elements else {"backoffLimit": 0}),
        "podFailurePolicy": {"rules": [*(_element_rules() if elements else _pod_rules())]},
        "template": {
            # The queue does not place elements as one gang.
            "metadata": {"labels": {**labels, **({GANG: ""} if elements else {})}},
            "spec": _pod(run, place, cluster, claims),
        },
    }
    queue = {QUEUE: HELD if run["after"] else "default", PRIORITY: run["priority"]}
    metadata = {"name": name_of(run["id"]), "labels": {**labels, **queue}}
    metadata |= {"annotations": {AFTER: run["after"]}} if run["after"] else {}
    spec = {
        # Host names need a Service, and a namespace has at most so many.
        "network": {"enableDNSHostnames": nodes > 1, "publishNotReadyAddresses": True},
        # A JobSet that starts again would run the elements again that have ended.
        "failurePolicy": {"maxRestarts": 0, **({} if elements else {"rules": [*_rules()]})},
        "ttlSecondsAfterFinished": _KEPT_TRIAL if "study" in run else _KEPT,
        "replicatedJobs": [{"name": "n", "replicas": 1, "template": {"metadata": {"labels": labels}, "spec": job}}],
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _pod_rules() -> Iterator[Object]:
    """Yield which pods end their Job, in the order in which they are tried; its message has their code or condition."""
    yield {"action": "FailJob", "onExitCodes": _AGAIN}
    # What has ended by itself has ended, also while its node is drained.
    yield {"action": "FailJob", "onExitCodes": _FINAL}
    yield {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def _element_rules() -> Iterator[Object]:
    """Yield which elements have failed, and which are repeated: the latter are lost with their machine, or moved."""
    yield {"action": "Ignore", "onExitCodes": _AGAIN}
    yield {"action": "FailIndex", "onExitCodes": _FINAL}
    yield {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def _rules() -> Iterator[Object]:
    patterns = {"agent": f"exit code ({'|'.join(map(str, REPEATED))}) ", "node": "condition DisruptionTarget "}
    for name, pattern in patterns.items():
        reasons = {"onJobFailureReasons": ["PodFailurePolicy"], "onJobFailureMessagePatterns": [pattern]}
        yield {"name": name, "action": "RestartJobSetAndIgnoreMaxRestarts", **reasons}
    yield {"name": "other", "action": "FailJobSet"}


def _pod(run: Mapping[str, Any], place: Place, cluster: Cluster, claims: Mapping[str, str]) -> Object:
    resources, limits = {"cpu": str(run["cpus"]), "memory": f"{run['memory']}Gi"}, _devices(run, place)
    volumes: list[Object] = [
        # Readable by all: a pod with a store has no fsGroup. Only its own container sees the folder.
        {"name": _SECRET, "secret": {"secretName": name_of(run["id"]), "defaultMode": 0o444}},
        {"name": "work", "emptyDir": {}},
        # Loaders of PyTorch pass batches by it; containerd gives 64 MiB. It counts as memory of the pod.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        *({"name": f"store-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims),
    ]
    mounts = [
        {"name": _SECRET, "mountPath": FOLDER, "readOnly": True},
        {"name": "work", "mountPath": _WORK},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  shared memory, not a temporary file
        *({"name": f"store-{name}", "mountPath": path} for name, path in claims.items()),
    ]
    fields = {"BEDPLATE_MACHINE": "spec.nodeName"}
    fields |= {"POD": "metadata.name"} if run.get("is_driver") else {}
    # Each element is the only node of a run.
    fields["BEDPLATE_INDEX" if run.get("elements") else "BEDPLATE_RANK"] = _INDEX
    container = {
        "name": CONTAINER,
        "image": place.facts["image"],
        "command": ["python3", f"{FOLDER}/agent", "run", "--", *run["command"]],
        "env": [
            *({"name": name, "value": value} for name, value in _environment(run, claims).items()),
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        ],
        "workingDir": _WORK,
        "resources": {"requests": {**resources, **limits}, "limits": {"memory": resources["memory"], **limits}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}},
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",
        **({"serviceAccountName": SEARCH} if run.get("is_driver") else {}),
        "automountServiceAccountToken": bool(run.get("is_driver")),
        "enableServiceLinks": False,
        "nodeSelector": place.selector,
        "tolerations": [{"key": re.split("[=:]", taint)[0], "operator": "Exists"} for taint in place.facts["taints"]],
        "securityContext": {
            "runAsUser": cluster.uid,
            "runAsGroup": cluster.uid,
            "supplementalGroups": [gid for gid in cluster.gids if gid != cluster.uid],
            "supplementalGroupsPolicy": "Strict",
        },
        # Negative answers of DNS are cached: the address of the hub never changes.
        "hostAliases": [{"ip": run["address"], "hostnames": [urlsplit(run["hub"]).hostname]}],
        # Of the pod, not of the Job: the time in the queue does not count. The agent ends the program before.
        "activeDeadlineSeconds": run["for"] + run["grace"] + 600,
        "terminationGracePeriodSeconds": run["grace"] + 10,
        "containers": [container],
        "volumes": volumes,
    }


def _devices(run: Mapping[str, Any], place: Place) -> Mapping[str, str]:
    """Return the GPUs of a pod, and for several nodes with EFA as large a part of that, and of its huge pages."""
    devices = {"nvidia.com/gpu": str(run["gpus"])} if run["gpus"] else {}
    interfaces, gpus = place.facts.get("efa") or 0, place.facts["gpus"] or 0
    if run["nodes"] > 1 and interfaces and devices:
        devices[_EFA] = str(max(interfaces * run["gpus"] // gpus, 1))
        devices["hugepages-2Mi"] = f"{_HUGE_PAGES * run['gpus'] // gpus // 2 * 2}Mi"
    return devices


def _environment(run: Mapping[str, Any], claims: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of the agent, and those of the program; secrets are in files only."""
    name, folder = name_of(run["id"]), run["checkpoints"]
    settings = {
        "HUB": run["hub"],
        "CERT": f"{FOLDER}/certificate",
        "TOKEN_FILE": f"{FOLDER}/token",
        "RUN": run["run"],
        "EXPERIMENT": run["experiment"],
        "TREE": run["tree"],
        "PACKS": ",".join(run["packs"]),
        "ARTIFACTS": f"{run['experiment']}/{run['run']}/artifacts",
        "WORK": f"{_WORK}/work",
        "GPUS": run["gpus"],
        "ATTEMPT": run["attempt"],
        "GRACE": run["grace"],
        "FOR": run["for"],
        "LAUNCH": run["launch"],
        "NODES": run["nodes"],
        "MASTER": f"{name}-n-0-0.{name}" if run["nodes"] > 1 else "127.0.0.1",
        "PORT": _PORT,
        "RESTARTS": run["restarts"],
        "SCRATCH_OK": run["scratch_ok"],
        "ENVIRONMENT_FILE": run.get("environment_file", ""),
        **{name.upper(): run[name] for name in ("session", "idle", "key") if run.get(name)},
        **({"ELEMENTS": run["elements"], "ARRAY": run["id"]} if run.get("elements") else {}),
        # The other variables are those of the image.
        **({"ENV": " ".join(run["environment"])} if run["environment"] else {}),
    }
    # A store that this pod does not have is of no use; what is in the pod ends with it.
    is_shared = any(folder.startswith(f"{path}/") for path in claims.values())
    settings["CHECKPOINTS"] = folder if is_shared else f"{_WORK}/checkpoints"
    home = claims.get("home", _WORK)
    return {"HOME": home, **run["environment"], **{f"BEDPLATE_{name}": str(value) for name, value in settings.items()}}


def secret_of(run: Mapping[str, Any], agent: bytes, owner: str) -> Object:
    """Return the Secret of a run with its token; Kubernetes deletes it with the JobSet of this uid."""
    files = {name: str(run[name]).encode() for name in ("token", "certificate", REQUIREMENTS) if name in run}
    files |= {"agent": agent, **{name: json.dumps(run[name]).encode() for name in ("secrets", "params")}}
    jobset = {"apiVersion": API_VERSION, "kind": KIND, "name": name_of(run["id"]), "uid": owner, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": jobset["name"], "labels": {LABEL: run["id"]}, "ownerReferences": [jobset]},
        "data": {name: b64encode(content).decode() for name, content in files.items()},
    }


def agent_of(program: Path) -> bytes:
    """Return the agent as a program in one file, from the archive of bp."""
    buffer = BytesIO()
    with ZipFile(program) as own, ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _START)
        for name in own.namelist():
            if name.startswith("programs/") and not name.startswith(_ELSEWHERE):
                archive.writestr(name, own.read(name))
    return buffer.getvalue()
