"""Server-side apply of objects, and deletion of objects that only an earlier apply declared.

A ConfigMap lists the applied objects with the digests of what was declared. It is extended before the first change, so
an interrupted run loses none. An object is left alone if the same was declared before and it still has these values.

A namespace is never deleted, because deleting it deletes all that people have in it: it is closed instead. Neither is a
type of objects: the runs of people are among its objects.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import Any, cast

from lightkube import codecs
from lightkube import operators as op
from lightkube.core.resource_registry import resource_registry
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import ConfigMap, PersistentVolume, Pod, ResourceQuota, Secret

from bedplate.errors import BedplateError, PartialError
from bedplate.foreign import LARGE, parse_json
from bedplate.kubernetes.addons import ADDON_LABEL, Object
from bedplate.kubernetes.client import ClusterClient, Invalid, Missing
from bedplate.kubernetes.pods import claim_names, quantity
from bedplate.kubernetes.queues import JOB_SET, QUEUE_VERSION
from bedplate.rounds import wait

MANAGER = "bedplate-addons"
_SYSTEM, _ENTRIES = "kube-system", "objects"
_FIRST = ("Namespace", "PriorityClass", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ConfigMap")
# Only one class may be the default: the old one is deleted before the new one is created.
_EXCLUSIVE = frozenset({"PriorityClass"})
# What still limits the pods of a closed namespace.
_LIMITS = frozenset({"ResourceQuota", "LimitRange", "NetworkPolicy"})
_NAMESPACE, _VOLUME, _CLAIM, _QUOTA = "Namespace", "PersistentVolume", "PersistentVolumeClaim", "default"
_TYPE = "CustomResourceDefinition"
_KEPT = frozenset({_NAMESPACE, _TYPE})
# Requests at the same time: more do not help an API server of few cores.
_AT_A_TIME = 8
_PATIENCE = 30.0
# A pod may ask for years.
_END = 60
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The identity of an object; `namespace` is empty for one of the whole cluster."""

    version: str
    kind: str
    namespace: str
    name: str

    @property
    def resource(self) -> type[Any]:
        """Its type."""
        return cast("type[Any]", resource_registry.load(self.version, self.kind))

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result: objects that were created or changed, deleted, or kept although they are no longer declared.

    `failures` has those that the API server refused: all others are applied.
    """

    changed: tuple[Key, ...]
    deleted: tuple[Key, ...]
    kept: tuple[Key, ...]
    total: int
    failures: tuple[BedplateError, ...] = ()


@dataclass
class _Run:
    """One apply: what is declared, what exists, and what has changed so far."""

    cluster: ClusterClient
    declared: Mapping[Key, Object]
    current: Mapping[Key, Any]
    before: Mapping[Key, str]
    notify: Callable[[Key], None]
    changed: list[Key] = field(default_factory=list)
    refused: dict[Key, BedplateError] = field(default_factory=dict)

    def apply(self, key: Key) -> None:
        """Apply an object unless it is as declared."""
        item, current = self.declared[key], self.current.get(key)
        if current is not None and self.before.get(key) == _digest(item) and has_values(current.to_dict(), item):
            return
        try:
            after = _apply(self.cluster, key, item)
        except Invalid as error:
            self.refused[key] = error
            return
        if current is None or _state(after) != _state(current):
            self.changed.append(key)
            self.notify(key)


def apply_objects(
    cluster: ClusterClient, objects: Iterable[Object], notify: Callable[[Key], None] = lambda _: None
) -> Applied:
    """Apply the objects, delete those no longer declared, and return the changes.

    An object that the API server refuses stops no other.
    """
    declared = {key_of(item): item for item in sorted(objects, key=_rank)}
    before = read_inventory(cluster)
    _write_inventory(cluster, {**dict.fromkeys(declared, ""), **before})
    obsolete = [key for key in before if key not in declared]
    early = delete_objects(cluster, [key for key in obsolete if key.kind in _EXCLUSIVE])
    run = _Run(cluster, declared, _read_current(cluster, declared), before, notify)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for _, keys in groupby(declared, key=lambda key: _rank(declared[key])):
            list(pool.map(run.apply, keys))
            _wait_for_types(run)
    for key in [key for key in run.refused if key.kind == _VOLUME]:
        _replace_volume(run, key)
    _free_volumes(run)
    closed = {key.name for key in obsolete if key.kind == _NAMESPACE}
    for name in closed:
        close_namespace(cluster, name)
    kept = tuple(key for key in obsolete if key.kind in _KEPT or (key.namespace in closed and key.kind in _LIMITS))
    late = _delete_late(cluster, [key for key in obsolete if key not in (*kept, *early)])
    _write_inventory(cluster, {key: "" if key in run.refused else _digest(item) for key, item in declared.items()})
    return Applied(tuple(sorted(run.changed)), early + late, kept, len(declared), tuple(run.refused.values()))


def _wait_for_types(run: _Run) -> None:
    """Wait until the API server accepts objects of the types that were created."""
    for key in [key for key in run.changed if key.kind == _TYPE]:
        _wait(f"{key} is served", partial(_is_served, run.cluster, key.name))


def _is_served(cluster: ClusterClient, name: str) -> bool:
    item = cluster.find(CustomResourceDefinition, name)
    conditions = (item and item.status and item.status.conditions) or ()
    return any((condition.type, condition.status) == ("Established", "True") for condition in conditions)


def delete_objects(cluster: ClusterClient, keys: Sequence[Key]) -> tuple[Key, ...]:
    """Delete objects, and return the existing ones."""
    return tuple(key for key in keys if cluster.delete(key.resource, key.name, key.namespace))


def _delete_late(cluster: ClusterClient, keys: Sequence[Key]) -> tuple[Key, ...]:
    """Delete the queue before its controller, which says when no run uses it any more."""
    queue = [key for key in keys if key.version == QUEUE_VERSION]
    deleted = delete_objects(cluster, queue)
    _wait("the queue is deleted: runs still use it", lambda: not delete_objects(cluster, queue))
    return deleted + delete_objects(cluster, [key for key in keys if key not in queue])


def close_namespace(cluster: ClusterClient, name: str, *, ends_pods: bool = True) -> None:
    """Let nothing start in a namespace any more, by its quota, and end its pods and Secrets.

    Raises PartialError if the quota does not apply in time.
    """
    hard = {"pods": "0", "count/jobs.batch": "0"}
    try:
        cluster.patch(ResourceQuota, _QUOTA, {"spec": {"hard": hard}}, name)
    except Missing:
        return  # the namespace was deleted
    _wait(f"the quota of namespace {name} applies", lambda: _is_closed(cluster, name))
    if ends_pods:
        with suppress(Missing):  # a cluster without a queue
            cluster.call(f"delete the runs of {name}", lambda api: api.deletecollection(JOB_SET, namespace=name))
        cluster.call(
            f"end the pods of {name}", lambda api: api.deletecollection(Pod, namespace=name, grace_period=_END)
        )
        cluster.call(f"delete the Secrets of {name}", lambda api: api.deletecollection(Secret, namespace=name))


def _is_closed(cluster: ClusterClient, name: str) -> bool:
    """Return whether the controller manager has read the quota: admission uses what it has written."""
    quota = cluster.find(ResourceQuota, _QUOTA, name)
    return bool(quota and quota.status and (quota.status.hard or {}).get("pods") == "0")


def _wait(about: str, is_done: Callable[[], bool]) -> None:
    wait(is_done, _PATIENCE, 0.2, PartialError(f"not after {_PATIENCE:.0f} seconds: {about}", fix="run it again"))


def key_of(item: Object) -> Key:
    """Return the identity of an object."""
    metadata = item["metadata"]
    return Key(item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"])


def _digest(item: Object) -> str:
    return sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:16]


def has_values(current: object, declared: object) -> bool:
    """Return whether an object has all declared values: an empty one may be missing, a quantity have another unit."""
    if isinstance(declared, Mapping) and isinstance(current, Mapping):
        return all(has_values(current.get(key), value) for key, value in declared.items())
    if isinstance(declared, list) and isinstance(current, list):
        return len(declared) == len(current) and all(map(has_values, current, declared))
    if isinstance(declared, str) and isinstance(current, str) and all(map(_AMOUNT.fullmatch, (declared, current))):
        return quantity(declared) == quantity(current)
    return current == declared or (current is None and declared in ("", [], {}))


def _read_current(cluster: ClusterClient, declared: Iterable[Key]) -> Mapping[Key, Any]:
    """Return the objects of the declared kinds that an apply has made: one request a kind."""
    found = {}
    for version, kind in dict.fromkeys((key.version, key.kind) for key in declared):
        for item in _labelled_objects(cluster, Key(version, kind, "", "").resource):
            item.apiVersion, item.kind = version, kind
            found[Key(version, kind, item.metadata.namespace or "", item.metadata.name)] = item
    return found


def _labelled_objects(cluster: ClusterClient, resource: type[Any]) -> Sequence[Any]:
    """Return the objects of a type that an apply has made: none while the API server does not have the type."""
    try:
        return cluster.objects(resource, labels={ADDON_LABEL: op.exists()})[0]
    except Missing:
        return ()


def _replace_volume(run: _Run, key: Key) -> None:
    """Replace a volume whose place or path has changed, with its claim: both cannot be edited.

    It has the same files afterwards: it is a folder of machines, and deleting the object deletes no file.
    """
    reference = run.declared[key]["spec"]["claimRef"]
    claim = Key("v1", _CLAIM, reference["namespace"], reference["name"])
    try:
        pods, _ = run.cluster.objects(Pod, namespace=claim.namespace)
        name = f"{claim.namespace}/{claim.name}"
        if users := sorted(pod.metadata.name for pod in pods if name in claim_names(pod)):
            what = f"{key} has another place or path now, and {', '.join(users[:3])} of {claim.namespace} use it"
            raise PartialError(what, fix="run it again when these pods are deleted")
        _wait(f"{claim} and {key} are deleted", lambda: not delete_objects(run.cluster, (claim, key)))
        for item in (key, claim):
            if item in run.declared:
                _apply(run.cluster, item, run.declared[item])
                run.changed.append(item)
                run.notify(item)
    except BedplateError as error:
        run.refused[key] = error
    else:
        del run.refused[key]


def _free_volumes(run: _Run) -> None:
    """Let the new claim of a person have the volume whose claim was deleted: it keeps the identity of the old one."""
    patch = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    for key in run.declared:
        volume = run.current.get(key) if key.kind == _VOLUME else None
        if volume is not None and volume.status and volume.status.phase == "Released":
            run.cluster.patch(PersistentVolume, key.name, patch)


def _rank(item: Object) -> int:
    kind = item["kind"]
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _state(item: Any) -> tuple[object, ...]:  # noqa: ANN401  lightkube's own types
    """Return the declared part of an object: controllers change versions by writing the status."""
    metadata = item.metadata
    return metadata.uid, metadata.generation or metadata.resourceVersion, metadata.labels, metadata.annotations


def _apply(cluster: ClusterClient, key: Key, item: Object) -> Any:  # noqa: ANN401  lightkube's own types
    typed: Any = codecs.from_dict(item)
    return cluster.call(f"apply {key}", lambda api: api.apply(typed, field_manager=MANAGER, force=True))


def read_inventory(cluster: ClusterClient) -> Mapping[Key, str]:
    """Return what earlier runs have applied, with the digest of what was declared; empty if that is not known."""
    config_map = cluster.find(ConfigMap, MANAGER, _SYSTEM)
    try:
        entries = parse_json(((config_map and config_map.data) or {}).get(_ENTRIES, "[]"), LARGE)
        return {Key(*map(str, words[:4])): str(words[4]) if words[4:] else "" for words in entries}
    except (ValueError, TypeError):
        fix = "correct it, or delete it: then no earlier object is deleted by this run"
        raise PartialError(f"the ConfigMap {_SYSTEM}/{MANAGER} is invalid", fix=fix) from None


def _write_inventory(cluster: ClusterClient, digests: Mapping[Key, str]) -> None:
    entries = sorted([key.version, key.kind, key.namespace, key.name, digest] for key, digest in digests.items())
    document = ConfigMap(
        metadata=ObjectMeta(name=MANAGER, namespace=_SYSTEM),
        data={_ENTRIES: "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"},
    )
    cluster.call("write the inventory", lambda api: api.apply(document, field_manager=MANAGER, force=True))
