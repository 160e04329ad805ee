"""Observations as JSON, in the protocol of `capacity decide`: `capacity run --record` writes what a replay reads."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bedplate.capacity.observation import Node, Observation, Pod, Pool, Size

_SIZES = ("gpus", "cpus", "memory", "efa", "ephemeral")


def observation_document(observation: Observation) -> Mapping[str, Any]:
    """Return an observation as one JSON object."""
    settings = observation.settings
    return {
        "time": observation.time,
        "pods": [_pod(pod) for pod in observation.pods],
        "nodes": [_node(node) for node in observation.nodes],
        "machines": [asdict(machine) for machine in observation.machines],
        "pools": [_pool(pool) for pool in observation.pools],
        "activities": [asdict(launch) | {"zonal": launch.zone is not None} for launch in observation.activities],
        "settings": {
            **asdict(settings),
            "spare": dict(settings.spare),
            "most": dict(settings.most),
            "ceilings": dict(settings.ceilings),
            "paused": sorted(settings.paused),
        },
    }


def _size(size: Size, prefix: str = "") -> Mapping[str, float]:
    return {f"{prefix}{name}": getattr(size, name) for name in _SIZES}


def _fields(value: Pod | Node | Pool, *without: str) -> dict[str, Any]:
    """Return the fields of a value, with sets as sorted lists."""
    fields = {name: getattr(value, name) for name in value.__slots__ if name not in without}
    return {name: sorted(field) if isinstance(field, frozenset) else field for name, field in fields.items()}


def _pod(pod: Pod) -> Mapping[str, Any]:
    return {**_fields(pod, "size"), "selector": dict(pod.selector), **_size(pod.size)}


def _node(node: Node) -> Mapping[str, Any]:
    sizes = {**_size(node.size), **_size(node.free, "free_")}
    return {**_fields(node, "size", "free"), "labels": dict(node.labels), "max_pods": node.size.pods, **sizes}


def _pool(pool: Pool) -> Mapping[str, Any]:
    return {**_fields(pool, "size"), "labels": dict(pool.labels), "max_pods": pool.size.pods, **_size(pool.size)}
