"""Runs in the cluster: Job and Secret in the person's namespace, why a pod waits, its output, and its end."""

import http.client
import json
import re
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from zipfile import ZIP_DEFLATED, ZipFile

from ..connection import CERTIFICATE, CLOCK, REFUSED, Connection
from .hub import ARCHIVE, MISSING, PARTLY, WRONG, BpError, Hub, Settings, say, write
from .places import Place
from .records import end_run

_LABEL, _SITE, _MOUNT = "bedplate/run", "bedplate/site", "bedplate/mount"
CONTAINER = "run"
"""The container of a run's pod."""
_FOLDER, _WORK, _SECRET, _OWN = "/run/bedplate/run", "/bedplate", "run", "bedplate-secrets"
# Seconds: an ended Job is kept so that `kubectl` shows it, too; quota allows 500.
_KEPT, _TOKEN_TIMEOUT, _SILENCE = 86_400, 60, 120.0
_POLL, _LONGEST_POLL, _FIRST_POLLS = 0.3, 5.0, 5
_ATTEMPTS = 3
_CONFLICT, _NOT_FOUND = 409, 404
# Reasons of a container that never starts. Source: kubelet's pkg/kubelet/images and kuberuntime, Kubernetes 1.36.
_FATAL = frozenset(("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "StartError"))
_START = """import sys
if sys.version_info < (3, 9):
    sys.exit("error: runs need Python 3.9 or newer in their image")
from programs.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
_VPN = "connect the VPN; if it is connected, ask your operator about the cluster"
Object = Mapping[str, Any]
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Cluster:
    """The cluster of an archive: `token` is a shell script that prints an ExecCredential by ssh."""

    server: str
    authority: str
    namespace: str
    uid: int
    gids: Sequence[int]
    token: str


def job_of(run: Mapping[str, Any], place: Place, cluster: Cluster, claims: Mapping[str, str]) -> Object:
    """Return the Job of a run; `claims` are the person's stores that its nodes mount, with their paths."""
    resources = {"cpu": str(run["cpus"]), "memory": f"{run['memory']}Gi"}
    limits = {"nvidia.com/gpu": str(run["gpus"])} if run["gpus"] else {}
    volumes: list[Object] = [
        # Readable by all: a pod with a store has no fsGroup. Only its own container sees the folder.
        {"name": _SECRET, "secret": {"secretName": name_of(run["id"]), "defaultMode": 0o444}},
        {"name": "work", "emptyDir": {}},
        # Loaders of PyTorch pass batches by it; containerd gives 64 MiB. It counts as memory of the pod.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        *({"name": f"store-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims),
    ]
    mounts = [
        {"name": _SECRET, "mountPath": _FOLDER, "readOnly": True},
        {"name": "work", "mountPath": _WORK},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  shared memory, not a temporary file
        *({"name": f"store-{name}", "mountPath": path} for name, path in claims.items()),
    ]
    container = {
        "name": CONTAINER,
        "image": place.facts["image"],
        "command": ["python3", f"{_FOLDER}/agent", "run", "--", *run["command"]],
        "env": [
            *({"name": name, "value": value} for name, value in _environment(run, claims).items()),
            {"name": "BEDPLATE_MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "workingDir": _WORK,
        "resources": {"requests": {**resources, **limits}, "limits": {"memory": resources["memory"], **limits}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}},
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
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
    labels = {_LABEL: run["id"]}
    spec = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _KEPT,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": name_of(run["id"]), "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def name_of(run: str) -> str:
    """Return the name of a run's objects, which has no `_` of a person."""
    return run.replace("_", "-")


def _environment(run: Mapping[str, Any], claims: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of the agent, and those of the program; secrets are in files only."""
    settings = {
        "HUB": run["hub"],
        "CERT": f"{_FOLDER}/certificate",
        "TOKEN_FILE": f"{_FOLDER}/token",
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
    }
    home = claims.get("home", _WORK)
    return {"HOME": home, **run["environment"], **{f"BEDPLATE_{name}": str(value) for name, value in settings.items()}}


def secret_of(run: Mapping[str, Any], agent: bytes, owner: str) -> Object:
    """Return the Secret of a run with its token; Kubernetes deletes it with the Job of this uid."""
    files = {name: str(run[name]).encode() for name in ("token", "certificate")}
    files |= {"agent": agent, **{name: json.dumps(run[name]).encode() for name in ("secrets", "params")}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": name_of(run["id"]), "uid": owner, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": job["name"], "labels": {_LABEL: run["id"]}, "ownerReferences": [job]},
        "data": {name: b64encode(content).decode() for name, content in files.items()},
    }


def agent_of(program: Path) -> bytes:
    """Return the agent as a program in one file, from the archive of bp."""
    buffer = BytesIO()
    with ZipFile(program) as own, ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _START)
        for name in own.namelist():
            if name.startswith("programs/") and not name.startswith("programs/bp/"):
                archive.writestr(name, own.read(name))
    return buffer.getvalue()


class Api(Connection):
    """The API of the cluster as the person reaches it. Methods raise BpError."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.server, cluster.authority, lambda _: _token(cluster.token))
        self.cluster = cluster
        core, jobs = (f"/{group}/namespaces/{cluster.namespace}/" for group in ("api/v1", "apis/batch/v1"))
        self._pods, self._secrets, self._events = (f"{core}{kind}" for kind in ("pods", "secrets", "events"))
        self._claims, self._jobs = f"{core}persistentvolumeclaims", f"{jobs}jobs"

    def failure(self, what: str, reason: str, status: int = 0) -> BpError:
        """Return the exception of a failure, with its fix."""
        what = what.replace("the hub", "the cluster")
        if reason == CLOCK:
            return BpError(what, "set the clock of this laptop")
        if reason == CERTIFICATE:
            return BpError(what, f"{ARCHIVE}, and tell your operator why")
        return BpError(what, "see the end of the message" if reason == REFUSED else _VPN, status=status)

    def claims(self, site: str) -> Mapping[str, str]:
        """Return the person's stores at a site, or in the regions if it is empty, with their paths on machines."""
        facts = [item["metadata"] for item in self._items(self._claims)]
        notes = {fact["name"]: fact.get("annotations", {}) for fact in facts}
        return {name: note[_MOUNT] for name, note in notes.items() if _MOUNT in note and note.get(_SITE, "") == site}

    def _items(self, path: str) -> Sequence[Any]:
        items: Sequence[Any] = self.call(path)["items"]
        return items

    def start(self, job: Object, secret: Callable[[str], Object]) -> None:
        """Create a Job, then its Secret, for which its pod waits; what exists of a run stays as it is."""
        created = self._create(self._jobs, job)
        self._create(self._secrets, secret(created["metadata"]["uid"]))

    def _create(self, path: str, item: Object) -> Any:  # noqa: ANN401  an object of the API
        for attempt in range(_ATTEMPTS):
            try:
                return self.call(path, item)
            except BpError as error:
                # An answer was lost; or several requests changed the quota at once, and nothing was created.
                if error.status != _CONFLICT or attempt == _ATTEMPTS - 1:
                    raise
            with suppress(BpError):
                return self.call(f"{path}/{item['metadata']['name']}")
        return None

    def secrets(self, changes: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Return time and value of the person's secrets before these changes; an empty value removes one."""
        path, facts = f"{self._secrets}/{_OWN}", dict[str, Any]()
        with _absent():
            facts = self.call(path)
        for name, value in changes.items():
            # Each name is a manager of its own: the server keeps its time, and removes what it declares no more.
            data = {name: b64encode(value.encode()).decode()} if value else {}
            item = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _OWN}, "data": data}
            self.call(f"{path}?fieldManager={name}&force=true", item, method="PATCH")
        times = {entry["manager"]: entry["time"] for entry in facts.get("metadata", {}).get("managedFields", ())}
        return {name: (times.get(name, ""), b64decode(value).decode()) for name, value in facts.get("data", {}).items()}

    def pod(self, run: str) -> Object:
        """Return the newest pod of a run; empty before there is one."""
        pods = self._items(f"{self._pods}?{urlencode({'labelSelector': f'{_LABEL}={run}'})}")
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default={})

    def running_pod(self, run: str) -> str:
        """Return the address of a run's pod. Raises BpError if its container does not run."""
        pod = self.pod(run)
        if not pod or "running" not in container_of(pod["status"]).get("state", {}):
            raise BpError(f"{run} has no running container", f"`bp show {run}` says why", WRONG)
        return f"{self._pods}/{pod['metadata']['name']}"

    def token(self) -> str:
        """Return the person's token."""
        return self._token("")

    def reason(self, run: str) -> str:
        """Return why a Job has no pod, by its last event. Raises BpError if there is no Job."""
        self.call(f"{self._jobs}/{name_of(run)}")
        query = urlencode({"fieldSelector": f"involvedObject.name={name_of(run)}"})
        events = self._items(f"{self._events}?{query}")
        messages = {str(event.get("lastTimestamp")): str(event.get("message")) for event in events}
        return messages[max(messages)] if messages else ""

    def end(self, run: str, *, now: bool) -> None:
        """End a run: its program gets SIGTERM, and `now` SIGKILL after a second."""
        pod = self.pod(run) if now else None
        with _absent():
            self._delete(f"{self._jobs}/{name_of(run)}?propagationPolicy=Foreground")
        with _absent():
            if pod:
                self._delete(f"{self._pods}/{pod['metadata']['name']}?gracePeriodSeconds=1")

    def _delete(self, path: str) -> None:
        self.call(path, method="DELETE")

    def log(self, pod: str, since: str) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of a pod after a time, each with its time, until they end, or the connection does."""
        query = {"container": CONTAINER, "follow": "true", "timestamps": "true"}
        query.update({"sinceTime": since} if since else {})
        connection = http.client.HTTPConnection(self.host)
        with suppress(http.client.HTTPException, OSError), closing(connection):
            connection.sock = self.connect(_SILENCE)
            headers = {"Authorization": f"Bearer {self.token()}"}
            connection.request("GET", f"{self._pods}/{pod}/log?{urlencode(query)}", headers=headers)
            response = connection.getresponse()
            while response.status == http.client.OK and (line := response.readline()):
                # The server filters by whole seconds. Its times have nine digits each.
                time_of_line, _, text = line.partition(b" ")
                if time_of_line.decode() > since:
                    yield time_of_line.decode(), text


@contextmanager
def _absent() -> Iterator[None]:
    """Accept that an object is gone."""
    try:
        yield
    except BpError as error:
        if error.status != _NOT_FOUND:
            raise


def api_of(settings: Settings) -> Api:
    """Return the API of the cluster of an archive. Raises BpError if there is none."""
    if not settings.cluster:
        raise BpError("the archive does not know the cluster", ARCHIVE)
    return Api(Cluster(**settings.cluster))


class NotRunningError(BpError):
    """The program of a run does not run, and never will."""


class Job:
    """A run in the cluster, with the methods of an agent on a machine."""

    def __init__(self, hub: Hub, place: Place, program: Path, *, is_followed: bool) -> None:
        self._api, self._where, self._is_followed = api_of(hub.settings), place, is_followed
        self._hub, self._agent = hub, agent_of(program)

    def run(self, document: Mapping[str, Any]) -> int:
        """Start a run, print its output until it ends, and return the exit code; 0 at once if nobody follows it."""
        api, run = self._api, str(document["id"])
        job = job_of(document, self._where, api.cluster, api.claims(self._where.facts["site"]))
        api.start(job, lambda uid: secret_of(document, self._agent, uid))
        end = partial(end_run, self._hub, document["run"])
        try:
            return follow(api, run, write, say, end) if self._is_followed else 0
        except NotRunningError as error:
            with suppress(BpError):
                end(str(error))
                api.end(run, now=True)
            raise
        except BpError as error:
            if error.status == _NOT_FOUND:
                end("its Job was deleted")
            raise BpError(f"{error}: the run may go on", f"`bp show {run}`", PARTLY) from None

    def close(self) -> None:
        """End the connections; the run goes on."""
        self._api.close()


def follow(api: Api, run: str, copy: Callable[[bytes], object], tell: Tell, end: Tell) -> int:
    """Write the output of a run until it ends, say why it waits, and return its exit code.

    `end` takes a cause, which counts if its agent has written none. Raises NotRunningError, or another BpError if the
    cluster does not answer.
    """
    said, since, name, pause, polls = "", "", "", _POLL, 0
    while True:
        pod, polls = api.pod(run), polls + 1
        if pod and container_of(pod["status"]).get("state", {}).keys() & {"running", "terminated"}:
            name = pod["metadata"]["name"]
            for time_of_line, line in api.log(name, since):
                since = time_of_line
                copy(line)
            pod = api.pod(run)
        if pod:
            name = pod["metadata"]["name"]
            if pod["status"].get("phase") in {"Succeeded", "Failed"}:
                code = exit_code(pod["status"])
                reason = container_of(pod["status"])["state"]["terminated"].get("reason")
                end(f"its container ended with exit code {code}: {reason}")
                return code
            text = wait_reason(pod["status"])
        elif name:
            raise NotRunningError("its pod was deleted", f"`bp show {run}` says how it ended", PARTLY)
        else:
            text = api.reason(run) if polls > _FIRST_POLLS else ""
        if text and text != said:
            tell(f"waiting: {text}")
            said = text
        time.sleep(pause)
        pause = _POLL if since else min(pause * 1.1, _LONGEST_POLL)


def container_of(status: Object) -> Object:
    """Return the state of a run's container; empty before kubelet knows it."""
    return next((item for item in status.get("containerStatuses", ()) if item["name"] == CONTAINER), {})


def wait_reason(status: Object) -> str:
    """Return why a pod does not run yet. Raises BpError if it never will."""
    waiting = container_of(status).get("state", {}).get("waiting", {})
    reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
    if reason in _FATAL:
        what = f"the container cannot start: {message or reason}"
        raise NotRunningError(what, "see `jobs.images` of the fleet", WRONG)
    if reason:
        return f"{reason}: {message}" if message else reason
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    return str(conditions.get("PodScheduled", {}).get("message", ""))


def exit_code(status: Object) -> int:
    """Return the exit code of a pod that has ended. Raises BpError if its program has not run."""
    ended = container_of(status).get("state", {}).get("terminated", {})
    message = str(ended.get("message", ""))
    if ended.get("reason") in _FATAL:
        missing = "python3" in message and "not found" in message
        what = "the image has no python3" if missing else f"the container cannot start: {message}"
        raise NotRunningError(what, "name an image with Python 3.9 or newer in `jobs.images`", WRONG)
    if "exitCode" not in ended:
        reason, message = status.get("reason", "unknown"), status.get("message", "")
        raise NotRunningError(f"the pod has ended: {reason}: {message}", "run it again")
    return int(ended["exitCode"])


def _token(script: str) -> str:
    """Return a token of an hour; the script keeps it in the cache folder."""
    try:
        command, silent = ("/bin/sh", "-c", script), subprocess.DEVNULL
        done = subprocess.run(command, stdin=silent, capture_output=True, timeout=_TOKEN_TIMEOUT, check=False)  # noqa: S603
        return str(json.loads(done.stdout)["status"]["token"])
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
        raise BpError("the cluster gives no token by ssh", _VPN, MISSING) from None
