"""The API of the cluster for runs: it creates, reads and deletes what a run has in the person's namespace."""

import http.client
import json
import re
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from ..connection import CERTIFICATE, CLOCK, REFUSED, Connection
from .hub import ARCHIVE, MISSING, WRONG, BpError, Settings
from .jobset import API_VERSION, CONTAINER, LABEL, STUDY, Cluster, Object, name_of

_TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)")
_SITE, _MOUNT, _OWN = "bedplate/site", "bedplate/mount", "bedplate-secrets"
_INDEX = "batch.kubernetes.io/job-completion-index"
# Seconds.
_TOKEN_TIMEOUT, _SILENCE = 60, 120.0
_ATTEMPTS = 3
_CONFLICT, _NOT_FOUND = 409, 404
_VPN = "connect the VPN; if it is connected, ask your operator about the cluster"


class Api(Connection):
    """The API of the cluster as the person reaches it. Methods raise BpError."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.server, cluster.authority, lambda _: _token(cluster.token))
        self.cluster = cluster
        core, jobsets = (f"/{group}/namespaces/{cluster.namespace}/" for group in ("api/v1", f"apis/{API_VERSION}"))
        self._pods, self._secrets, self._events = (f"{core}{kind}" for kind in ("pods", "secrets", "events"))
        self._claims, self._jobsets = f"{core}persistentvolumeclaims", f"{jobsets}jobsets"

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

    def start(self, jobset: Object, secret: Callable[[str], Object], found: Object = MappingProxyType({})) -> None:
        """Create a JobSet if none is `found`, then its Secret, for which its pods wait.

        After a failure or Ctrl-C the JobSet is deleted: its pods would hold their machines, and wait for ever.
        """
        try:
            created = found or self._create(self._jobsets, jobset)
            self._create(self._secrets, secret(created["metadata"]["uid"]))
        except BaseException as error:
            if getattr(error, "status", 0) == _NOT_FOUND:
                raise no_queue() from None
            # Also if the answer was lost: then it may be there.
            if not found:
                with suppress(BpError):
                    self._delete(f"{self._jobsets}/{jobset['metadata']['name']}")
            raise

    def _create(self, path: str, item: Object) -> Any:  # noqa: ANN401  an object of the API
        for attempt in range(_ATTEMPTS):
            try:
                return self.call(path, item)
            except BpError as error:
                # An answer was lost; or several requests changed the quota at once, and nothing was created.
                if error.status != _CONFLICT or attempt == _ATTEMPTS - 1:
                    raise
                # The driver of a search may read no Secret.
                if path == self._secrets and "already exists" in str(error):
                    return item
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

    def jobset(self, run: str) -> Object:
        """Return the JobSet of a run; empty without one."""
        found = dict[str, Any]()
        with _absent():
            found |= self.call(f"{self._jobsets}/{name_of(run)}")
        return found

    def trials(self, study: str) -> "tuple[Mapping[str, Object], Mapping[str, Object]]":
        """Return the JobSets of a study, and the newest pods of their first nodes, by the ids of their runs."""
        query = urlencode({"labelSelector": f"{STUDY}={study}"})
        jobsets, pods = self._items(f"{self._jobsets}?{query}"), self._newest(f"{self._pods}?{query}")
        firsts = [pod for pod in reversed(pods) if is_first(pod)]
        by_run = [{item["metadata"]["labels"][LABEL]: item for item in items} for items in (jobsets, firsts)]
        return by_run[0], by_run[1]

    def pods(self, run: str) -> Sequence[Object]:
        """Return the pods of a run, the newest first."""
        return self._newest(f"{self._pods}?{urlencode({'labelSelector': f'{LABEL}={run}'})}")

    def _newest(self, path: str) -> Sequence[Object]:
        return sorted(self._items(path), key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)

    def pod(self, run: str) -> Object:
        """Return the newest pod of a run's first node; empty before there is one."""
        return next(filter(is_first, self.pods(run)), {})

    def running_pod(self, run: str) -> str:
        """Return the address of a run's pod. Raises BpError if its container does not run."""
        pod = self.pod(run)
        if not is_running(pod):
            raise BpError(f"{run} has no running container", f"`bp show {run}` says why", WRONG)
        return f"{self._pods}/{pod['metadata']['name']}"

    def token(self) -> str:
        """Return the person's token."""
        return self._token("")

    def reason(self, jobset: Object) -> str:
        """Return why a JobSet that was admitted has no pods, by the last event of it or its Job."""
        facts, messages = jobset["metadata"], dict[str, str]()
        for name in (facts["name"], f"{facts['name']}-n-0"):
            events = self._items(f"{self._events}?{urlencode({'fieldSelector': f'involvedObject.name={name}'})}")
            messages |= {str(event.get("lastTimestamp")): str(event.get("message")) for event in events}
        return messages[max(messages)] if messages else ""

    def end(self, run: str, *, now: bool) -> None:
        """End a run: its program gets SIGTERM, and `now` SIGKILL after a second."""
        pods = self.pods(run) if now else ()
        with _absent():
            self._delete(f"{self._jobsets}/{name_of(run)}?propagationPolicy=Foreground")
        for pod in pods:
            with _absent():
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
                # The server filters by whole seconds. Its times have nine digits each. Kubelet itself writes a line
                # without one when the container is removed.
                time_of_line, _, text = line.partition(b" ")
                if _TIME.fullmatch(time_of_line) and time_of_line.decode() > since:
                    yield time_of_line.decode(), text


def is_first(pod: Object) -> bool:
    """Return whether a pod is that of the first node of its run."""
    return bool(pod["metadata"].get("labels", {}).get(_INDEX, "0") == "0")


def no_queue() -> BpError:
    """Return the exception of a cluster without Kueue and JobSet."""
    return BpError("the cluster has no queue for runs", "ask your operator: `jobs` of the fleet adds it")


def container_of(pod: Object) -> Object:
    """Return the state of the container of a run's pod; empty before kubelet knows it."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return next((item.get("state", {}) for item in statuses if item["name"] == CONTAINER), {})


def is_running(pod: Object) -> bool:
    """Return whether the agent of a pod runs."""
    return "running" in container_of(pod)


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


def _token(script: str) -> str:
    """Return a token of an hour; the script keeps it in the cache folder."""
    try:
        command, silent = ("/bin/sh", "-c", script), subprocess.DEVNULL
        done = subprocess.run(command, stdin=silent, capture_output=True, timeout=_TOKEN_TIMEOUT, check=False)  # noqa: S603
        return str(json.loads(done.stdout)["status"]["token"])
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
        raise BpError("the cluster gives no token by ssh", _VPN, MISSING) from None
