"""A local copy of all objects of a kind: one list, then a watch; after an expired version the list again."""

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bedplate.cluster.client import BOOKMARK, ClusterClient, Expired
from bedplate.errors import BedplateError, PartialError

_WATCH = 60
# A copy that is older has missed a whole watch: decisions from it could be wrong.
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
            raise PartialError(f"the watch of {self._kind.__name__} has no answer{why}", fix="check the API server")
        return objects

    def _list(self) -> str:
        items, version = self._client.objects(self._kind)
        with self._lock:
            before = self._objects
            self._objects = {_key(item): item for item in items}
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
                self._objects.pop(_key(item), None)
            else:
                self._objects[_key(item)] = item
        self._on_event(event, item)


def _key(item: Any) -> str:  # noqa: ANN401  any kind
    return f"{item.metadata.namespace}/{item.metadata.name}" if item.metadata.namespace else str(item.metadata.name)
