"""The client of one cluster: lightkube with retries, messages with a fix, and a local copy of all objects of a kind."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import httpx2
from lightkube import ApiError, Client, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import WatchDriver
from lightkube.core.resource import NamespacedResource
from lightkube.resources.core_v1 import Namespace
from lightkube.types import PatchType

from bedplate.errors import BedplateError, InputError, MachineError, PartialError

MANAGER = "bedplate-capacity"
"""The field manager of changes, and the reporter of events."""
# Characters of an error of Kubernetes in a message.
_MAX_MESSAGE = 200
_CONNECT = 5.0
_TIMEOUT = httpx2.Timeout(20.0, connect=_CONNECT)
# Attempts of one call, and half of the longest first pause in seconds; each further pause may be twice as long.
_ATTEMPTS, _PAUSE = 5, 0.2
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 401, 403, 429
_SERVER_FAULT = 500


class Missing(PartialError):
    """The object does not exist."""


class Conflict(PartialError):
    """The object has changed since it was read, or exists already."""


class TooManyRequests(PartialError):
    """Status 429: the API server limits requests, or a disruption budget does not permit an eviction now."""


class Invalid(PartialError):
    """The API server refuses the values of an object, or a change of them."""


class Expired(PartialError):
    """The version from which a watch was to continue is too old."""


_CLASSES = MappingProxyType({404: Missing, 409: Conflict, 410: Expired, 422: Invalid})


@dataclass(frozen=True, slots=True)
class Pauses:
    """Full jitter: a pause before attempt N is random, up to a limit that doubles; tests replace `sleep`."""

    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random

    def before(self, attempt: int) -> None:
        """Wait before a repeated attempt; the first repeat is attempt 1."""
        self.sleep(self.random() * _PAUSE * 2**attempt)


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ClusterClient:
    """A client of one cluster. Every call may be repeated: writes are idempotent or check the resourceVersion."""

    api: Client
    pauses: Pauses = field(default_factory=Pauses)

    def call(self, operation: str, function: Callable[[Client], ResultT], *, attempts: int = _ATTEMPTS) -> ResultT:
        """Return the result of a call; retry after 429, 5xx and lost connections. Raises BedplateError."""
        for attempt in range(1, attempts + 1):
            try:
                return function(self.api)
            except (httpx2.HTTPError, ConfigError) as error:
                if attempt == attempts or not is_transient(error):
                    raise translate_error(error, operation) from None
            self.pauses.before(attempt)
        raise AssertionError

    def objects(self, kind: type[Any], **query: Any) -> tuple[tuple[Any, ...], str]:  # noqa: ANN401  lightkube's own
        """Return the objects of a kind, in all namespaces or the given one, and the resourceVersion of the list."""

        def read(api: Client) -> tuple[tuple[Any, ...], str]:
            listing = cast("Any", api).list(kind, chunk_size=_PAGE, **{**_scope(kind), **query})
            items = tuple(listing)
            return items, listing.resourceVersion

        return self.call(f"list {kind.__name__}", read)

    def find(self, kind: type[ResultT], name: str, namespace: str = "", *, attempts: int = _ATTEMPTS) -> ResultT | None:
        """Return an object; None if it does not exist."""

        def get(api: Any) -> ResultT | None:  # noqa: ANN401  lightkube's own types
            return cast("ResultT", api.get(kind, name, namespace=namespace or None))

        try:
            return self.call(f"get {kind.__name__} {name}", get, attempts=attempts)
        except Missing:
            return None

    def delete(self, kind: type[Any], name: str, namespace: str = "") -> bool:
        """Delete an object, and return whether it existed."""
        try:
            self.call(f"delete {kind.__name__} {name}", lambda api: api.delete(kind, name, namespace=namespace or None))
        except Missing:
            return False
        return True

    def patch(self, kind: type[Any], name: str, change: Mapping[str, object], namespace: str = "") -> None:
        """Merge a change into an object."""
        options: Any = {"namespace": namespace or None, "patch_type": PatchType.MERGE}
        self.call(f"patch {kind.__name__} {name}", lambda api: api.patch(kind, name, change, **options))

    def events(self, kind: type[Any], version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        """Yield changes and bookmarks since a resourceVersion, for a limited time; raise Expired if it is too old.

        lightkube's own watch opens the next request itself, waits for ever on a dead connection, and has no bookmarks.
        """
        generic: Any = self.api._client  # noqa: SLF001
        params = {"timeoutSeconds": seconds, "resourceVersion": version, "allowWatchBookmarks": "true"}
        request = generic.prepare_request("list", res=kind, watch=True, params=params, **_scope(kind))
        driver: Any = cast("Any", WatchDriver)(request, generic._client.build_request)  # noqa: SLF001
        try:
            reply = generic.send(driver.get_request(httpx2.Timeout(_CONNECT, read=seconds + _GRACE)), stream=True)
            try:
                reply.raise_for_status()
                yield from (_bookmark(line) or driver.process_one_line(line) for line in reply.iter_lines())
            finally:
                reply.close()
        except httpx2.HTTPError as error:
            raise translate_error(error, f"watch {kind.__name__}") from None


BOOKMARK = "BOOKMARK"
"""The type of an event that says only how far a watch has come."""
# Objects in one reply of a list.
_PAGE = 1000
# Seconds after the end of a watch until a connection without data counts as dead.
_GRACE = 30.0
# The first characters of an event contain its type.
_HEAD = 40


def _scope(kind: type[Any]) -> dict[str, str]:
    return {"namespace": "*"} if issubclass(kind, NamespacedResource) else {}


def _bookmark(line: str) -> tuple[str, Any] | None:
    """Return a bookmark; its object has only a resourceVersion, so Namespace stands for every kind."""
    event = json.loads(line) if '"BOOKMARK"' in line[:_HEAD] else {}
    if event.get("type") != BOOKMARK:
        return None
    return BOOKMARK, Namespace.from_dict({"metadata": event["object"]["metadata"]})


def open_cluster(kubeconfig: Path | None = None) -> ClusterClient:
    """Return a client from a kubeconfig: the given one, $KUBECONFIG or ~/.kube/config; makes no call yet."""
    fix = "set KUBECONFIG, or name a file by --kubeconfig"
    try:
        chosen = (KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()).get()
    except (ConfigError, OSError, ValueError, KeyError) as error:
        where = str(kubeconfig) if kubeconfig else ""
        raise InputError(f"cannot read the kubeconfig: {error}", where=where, fix=fix) from None
    if chosen is None:
        raise InputError("no kubeconfig found", fix=fix)
    return connect(chosen)


def connect(config: SingleConfig) -> ClusterClient:
    """Return a client by a configuration in memory."""
    return ClusterClient(Client(config, namespace="default", timeout=_TIMEOUT, field_manager=MANAGER))


def is_transient(error: Exception) -> bool:
    """Return whether the same call may succeed later: throttled, a fault of the server, or no reply."""
    code = status_code(error)
    if code is not None:
        return code == _TOO_MANY or code >= _SERVER_FAULT
    return isinstance(error, httpx2.TransportError)


def status_code(error: Exception) -> int | None:
    """Return the HTTP status of a failed call; None if there was no reply."""
    if isinstance(error, ApiError) and error.status is not None:
        return error.status.code
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None


def _address(error: Exception) -> str:
    """Return the server that a failed request was for."""
    with suppress(RuntimeError):  # an error before the request was built has none
        if isinstance(error, httpx2.RequestError):
            return f" at {error.request.url.host}"
    return ""


def translate_error(error: Exception, operation: str) -> BedplateError:
    """Return the BedplateError for a failed call, which a command prints."""
    text = f"Kubernetes: {operation}: {str(error)[:_MAX_MESSAGE]}"
    match status_code(error):
        case None:
            return PartialError(
                f"cannot connect to the Kubernetes API{_address(error)}: {str(error)[:_MAX_MESSAGE]}",
                fix="check the VPN and the address in the kubeconfig",
            )
        case code if code == _UNAUTHORIZED:
            return MachineError("the Kubernetes API rejected the credentials", fix="renew the kubeconfig")
        case code if code == _FORBIDDEN:
            return MachineError(text, fix="bind a role that permits it to the user of the kubeconfig")
        case code if code in _CLASSES:
            return _CLASSES[code](text)
        case code if code == _TOO_MANY:
            return TooManyRequests(text, fix="try again in a minute")
        case _:
            return PartialError(text, fix="try again; the logs of the API server say more")


_WATCH = 60
# An older copy has missed at least one whole watch: decisions from it could be wrong.
_STALE = 150.0


class ObjectCache:
    """The objects of a kind by `namespace/name`; a thread keeps it up to date until `stop`.

    `on_event` receives every change after the first list, in the order of the API server.
    """

    def __init__(
        self, client: ClusterClient, kind: type[Any], on_event: Callable[[str, Any], None] = lambda _type, _object: None
    ) -> None:
        self._client, self._kind, self._on_event = client, kind, on_event
        self._objects: dict[str, Any] = {}
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._confirmed: float | None = None
        self._failures = 0
        self._error: BedplateError | None = None
        self.lists = 0

    def start(self) -> None:
        """List the objects, then follow their changes in a thread. Raises BedplateError if the list fails."""
        version = self._list()
        threading.Thread(target=self._follow, args=(version,), daemon=True, name=f"watch-{self._kind.__name__}").start()

    def stop(self) -> None:
        """End the thread at its next event."""
        self._stopped.set()

    def objects(self) -> Mapping[str, Any]:
        """Return the objects. Raises PartialError if the copy has not been confirmed for too long."""
        with self._lock:
            confirmed, error = self._confirmed, self._error
            objects = MappingProxyType(dict(self._objects))
        if confirmed is None or time.monotonic() - confirmed > _STALE:
            why = f": {error.what}" if error else ""
            raise PartialError(f"the watch of {self._kind.__name__} receives no data{why}", fix="check the API server")
        return objects

    def _list(self) -> str:
        items, version = self._client.objects(self._kind)
        with self._lock:
            before = self._objects
            self._objects = {key_of(item): item for item in items}
            after = dict(self._objects)
            self._confirmed, self._error, self._failures = time.monotonic(), None, 0
        self.lists += 1
        # Deletions that happened while no watch was open are reported too.
        for key in before.keys() - after.keys():
            self._on_event("DELETED", before[key])
        return version

    def _follow(self, version: str | None) -> None:
        while not self._stopped.is_set():
            try:
                version = self._watch(version or self._list())
                self._failures = 0
            except Expired:
                version = None
            except BedplateError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001  an object that cannot be read must not end the copy for ever
                version = None
                if not self._stopped.is_set():  # else its connection was closed
                    self._fail(PartialError(f"cannot read a {self._kind.__name__}: {type(error).__name__}"))

    def _fail(self, error: BedplateError) -> None:
        self._error, self._failures = error, self._failures + 1
        self._client.pauses.before(min(self._failures, 7))

    def _watch(self, version: str) -> str:
        for event, item in self._client.events(self._kind, version, _WATCH):
            if self._stopped.is_set():
                break
            version = item.metadata.resourceVersion
            if event != BOOKMARK:
                self._apply(event, item)
        with self._lock:
            self._confirmed = time.monotonic()
        return version

    def _apply(self, event: str, item: Any) -> None:  # noqa: ANN401  any kind
        with self._lock:
            self._confirmed = time.monotonic()
            if event == "DELETED":
                self._objects.pop(key_of(item), None)
            else:
                self._objects[key_of(item)] = item
        self._on_event(event, item)


def key_of(item: Any) -> str:  # noqa: ANN401  any kind
    """Return `namespace/name` of an object, or its name if it is in no namespace."""
    return f"{item.metadata.namespace}/{item.metadata.name}" if item.metadata.namespace else str(item.metadata.name)
