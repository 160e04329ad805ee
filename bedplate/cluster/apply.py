"""Server-side apply of objects, and deletion of objects that only an earlier apply declared.

A ConfigMap lists the applied objects. It is extended before the first change, so an interrupted run loses none.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lightkube import codecs
from lightkube.core.resource import NamespacedResource
from lightkube.core.resource_registry import resource_registry
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from bedplate.cluster.addons import Object
from bedplate.cluster.client import ClusterClient, Missing
from bedplate.errors import PartialError
from bedplate.foreign import LARGE, parse_json

MANAGER = "bedplate-addons"
_SYSTEM, _ENTRIES = "kube-system", "objects"
_FIRST = ("Namespace", "PriorityClass", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ConfigMap")
# Deleting one deletes all that people have in it.
_KEPT = frozenset({"Namespace"})
# Only one class may be the default: the old one is deleted before the new one is created.
_EXCLUSIVE = frozenset({"PriorityClass"})


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The identity of an object; `namespace` is empty for one of the whole cluster."""

    version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result: objects that were created or changed, deleted, and kept although they are no longer declared."""

    changed: tuple[Key, ...]
    deleted: tuple[Key, ...]
    kept: tuple[Key, ...]
    total: int


def apply_objects(
    cluster: ClusterClient, objects: Iterable[Object], notify: Callable[[Key], None] = lambda _: None
) -> Applied:
    """Apply the objects, delete those no longer declared, and return the changes."""
    declared = {key_of(item): item for item in sorted(objects, key=_rank)}
    before = read_inventory(cluster)
    _write_inventory(cluster, {*before, *declared})
    obsolete = [key for key in before if key not in declared]
    early = tuple(key for key in obsolete if key.kind in _EXCLUSIVE and _delete(cluster, key))
    changed = []
    for key, item in declared.items():
        if _apply(cluster, key, item):
            changed.append(key)
            notify(key)
    deleted = early + tuple(key for key in obsolete if key.kind not in _KEPT | _EXCLUSIVE and _delete(cluster, key))
    _write_inventory(cluster, declared)
    return Applied(tuple(changed), deleted, tuple(key for key in obsolete if key.kind in _KEPT), len(declared))


def delete_objects(cluster: ClusterClient, keys: Sequence[Key]) -> tuple[Key, ...]:
    """Delete objects, and return the existing ones."""
    return tuple(key for key in keys if _delete(cluster, key))


def key_of(item: Object) -> Key:
    """Return the identity of an object."""
    metadata = item["metadata"]
    return Key(item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"])


def _rank(item: Object) -> int:
    kind = item["kind"]
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _resource(key: Key) -> type[Any]:
    resource: type[Any] = resource_registry.load(key.version, key.kind)
    return resource


def _scope(key: Key) -> Mapping[str, str]:
    return {"namespace": key.namespace} if issubclass(_resource(key), NamespacedResource) else {}


def _state(item: Any) -> tuple[object, ...]:  # noqa: ANN401  lightkube's own types
    """Return the declared part of an object: controllers change versions by writing the status."""
    metadata = item.metadata
    return metadata.uid, metadata.generation or metadata.resourceVersion, metadata.labels, metadata.annotations


def _apply(cluster: ClusterClient, key: Key, item: Object) -> bool:
    """Apply an object, and return whether it has changed."""
    try:
        current: Any = cluster.call(f"read {key}", lambda api: api.get(_resource(key), key.name, **_scope(key)))
        before = _state(current)
    except Missing:
        before = ()
    typed: Any = codecs.from_dict(item)
    after: Any = cluster.call(f"apply {key}", lambda api: api.apply(typed, field_manager=MANAGER, force=True))
    return _state(after) != before


def _delete(cluster: ClusterClient, key: Key) -> bool:
    try:
        cluster.call(f"delete {key}", lambda api: cast("Any", api).delete(_resource(key), key.name, **_scope(key)))
    except Missing:
        return False
    return True


def read_inventory(cluster: ClusterClient) -> tuple[Key, ...]:
    """Return what earlier runs have applied."""
    try:
        config_map = cluster.call("read the inventory", lambda api: api.get(ConfigMap, MANAGER, namespace=_SYSTEM))
    except Missing:
        return ()
    try:
        entries = parse_json((config_map.data or {}).get(_ENTRIES, "[]"), LARGE)
        return tuple(Key(*map(str, words)) for words in entries)
    except (ValueError, TypeError):
        fix = "correct it, or delete it: then no earlier object is deleted by this run"
        raise PartialError(f"the ConfigMap {_SYSTEM}/{MANAGER} is invalid", fix=fix) from None


def _write_inventory(cluster: ClusterClient, keys: Iterable[Key]) -> None:
    entries = sorted([key.version, key.kind, key.namespace, key.name] for key in keys)
    document = ConfigMap(
        metadata=ObjectMeta(name=MANAGER, namespace=_SYSTEM),
        data={_ENTRIES: "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"},
    )
    cluster.call("write the inventory", lambda api: api.apply(document, field_manager=MANAGER, force=True))
