"""Random pods with rules of the Kubernetes API: the planner and a scheduler agree, and no machine is kept in vain."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from lightkube.resources.core_v1 import Pod

from bedplate.kubernetes.pods import quantity
from tests.testlab.kubernetes.memory import BURST, TRAIN, ClusterWorld
from tests.testlab.kubernetes.workloads import CLAIMS, VOLUME, VOLUMES, ZONE, workloads

Document = Mapping[str, Any]


def _selected(selector: Document | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    is_equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    others = (labels.get(rule["key"]) not in rule["values"] for rule in selector.get("matchExpressions") or ())
    return is_equal and all(others)


class Scheduler:
    """The filters of kube-scheduler, written from its documentation, on the documents of the API."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.nodes = [node.to_dict() for node in world.nodes]

    def bind(self) -> None:
        """Bind each pending pod to the first node that passes all filters."""
        for pod in self.world.pods:
            assert pod.spec
            if pod.spec.nodeName is None:
                names = (node["metadata"]["name"] for node in self.nodes if self._passes(pod.to_dict(), node))
                pod.spec.nodeName = next(names, None)

    def _bound(self) -> Iterator[tuple[Document, Document]]:
        by_name = {node["metadata"]["name"]: node for node in self.nodes}
        documents = (pod.to_dict() for pod in self.world.pods)
        return (
            (document, by_name[document["spec"]["nodeName"]])
            for document in documents
            if document["spec"].get("nodeName") in by_name
        )

    def _passes(self, pod: Document, node: Document) -> bool:
        spec, labels = pod["spec"], node["metadata"]["labels"]
        claims = [volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ()]
        names = {claim["claimName"] for claim in claims if claim}
        if names - {"bound"} or (names and labels[ZONE] != VOLUME) or spec.get("resourceClaims"):
            return False
        if ports := _host_ports(pod):
            taken = (_host_ports(other) for other, place in self._bound() if place is node)
            if any(ports & other for other in taken):
                return False
        if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
            return False
        if node["spec"].get("unschedulable") or not self._selects(spec, labels):
            return False
        return (
            self._has_resources(pod, node)
            and self._is_near(pod, node)
            and self._is_apart(pod, node)
            and (all(self._is_spread(rule, pod, node) for rule in spec.get("topologySpreadConstraints") or ()))
        )

    @staticmethod
    def _selects(spec: Document, labels: Mapping[str, str]) -> bool:
        return (spec.get("nodeSelector") or {}).items() <= labels.items()

    def _has_resources(self, pod: Document, node: Document) -> bool:
        used: Counter[str] = Counter()
        for other, place in self._bound():
            if place is node:
                used.update(_requests(other))
        free = {name: quantity(amount) - used[name] for name, amount in node["status"]["allocatable"].items()}
        return all(amount <= free.get(name, 0) for name, amount in _requests(pod).items())

    def _terms(self, pod: Document, kind: str) -> list[Document]:
        affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
        return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())

    def _matches(self, term: Document, pod: Document) -> bool:
        is_here = "namespaceSelector" in term or "lab" in (term.get("namespaces") or ["lab"])
        return is_here and _selected(term.get("labelSelector"), pod["metadata"]["labels"])

    def _is_apart(self, pod: Document, node: Document) -> bool:
        for other, place in self._bound():
            rules = [(term, other) for term in self._terms(pod, "podAntiAffinity")]
            rules += [(term, pod) for term in self._terms(other, "podAntiAffinity")]
            for term, selected in rules:
                own, theirs = (each["metadata"]["labels"].get(term["topologyKey"]) for each in (node, place))
                if own is not None and own == theirs and self._matches(term, selected):
                    return False
        return True

    def _is_near(self, pod: Document, node: Document) -> bool:
        for term in self._terms(pod, "podAffinity"):
            places = [place for other, place in self._bound() if self._matches(term, other)]
            domain = node["metadata"]["labels"].get(term["topologyKey"])
            if domain is None or not (places or self._matches(term, pod)):
                return False
            if places and domain not in [place["metadata"]["labels"].get(term["topologyKey"]) for place in places]:
                return False
        return True

    def _is_spread(self, rule: Document, pod: Document, node: Document) -> bool:
        if rule["whenUnsatisfiable"] == "ScheduleAnyway":
            return True
        key, labels = rule["topologyKey"], pod["metadata"]["labels"]
        selector = rule.get("labelSelector")
        keys = {name: labels[name] for name in rule.get("matchLabelKeys") or ()}
        counts: Counter[str] = Counter()
        for each in self.nodes:
            is_open = not each["spec"].get("unschedulable") or rule.get("nodeTaintsPolicy") != "Honor"
            own = each["metadata"]["labels"]
            if is_open and _required_keys(pod) <= own.keys() and self._selects(pod["spec"], own):
                counts[each["metadata"]["labels"][key]] += 0
        for other, place in self._bound():
            domain, theirs = place["metadata"]["labels"].get(key), other["metadata"]["labels"]
            own = place["metadata"]["labels"]
            is_counted = _required_keys(pod) <= own.keys() and self._selects(pod["spec"], own)
            counts[domain] += is_counted and _selected(selector, theirs) and keys.items() <= theirs.items()
        domain = node["metadata"]["labels"].get(key)
        if domain is None:
            return False
        least = min(counts.values()) if len(counts) >= rule.get("minDomains", 1) else 0
        return bool(counts[domain] + _selected(selector, labels) - least <= rule["maxSkew"])


def _required_keys(pod: Document) -> set[str]:
    rules = pod["spec"].get("topologySpreadConstraints") or ()
    return {rule["topologyKey"] for rule in rules if rule["whenUnsatisfiable"] != "ScheduleAnyway"}


def _host_ports(pod: Document) -> set[int]:
    containers = pod["spec"]["containers"]
    return {port["hostPort"] for part in containers for port in part.get("ports") or () if port.get("hostPort")}


def _requests(pod: Document) -> dict[str, float]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return {"pods": 1.0, **{name: quantity(amount) for name, amount in requests.items()}}


def _launch(world: ClusterWorld, seconds: float) -> None:
    """Let AWS launch what is missing, each machine in the zone with the fewest."""
    for pool in world.pools:
        own = [machine.zone for machine in world.machines if machine.pool == pool.name]
        for _ in range(pool.desired - len(own)):
            own.append(min(pool.zones, key=own.count))
            world.add_node(pool, own[-1], age=-seconds, is_counted=False)
    instances = {machine.id for machine in world.machines}
    world.nodes = [
        node for node in world.nodes if node.spec and str(node.spec.providerID).rpartition("/")[2] in instances
    ]


def _check(world: ClusterWorld, minutes: int) -> None:
    for minute in range(minutes):
        decision = world.round(60.0 * minute)
        pending = {pod.id for pod in world.seen.pods if pod.node is None}
        waiting = {waiting.pod for waiting in decision.waiting}
        assert pending == waiting | (world.memory.reported & pending), "each pod has a place or a reason"
        _launch(world, 60.0 * minute)
        Scheduler(world).bind()
    assert not [waiting for waiting in decision.waiting if waiting.is_coming], "what comes arrives"
    assert not [doubt for doubt in world.memory.doubts.values() if doubt.until], "the scheduler confirms all room"
    busy = {pod.spec.nodeName for pod in world.pods if pod.spec}
    assert {node.metadata.name for node in world.nodes if node.metadata} <= busy, "no machine is kept in vain"


def _pools() -> list[Any]:
    return [BURST, replace(TRAIN, max=4), replace(BURST, name="east", rung=2, zones=("us-east-1a",))]


@given(pods=workloads())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_pod_has_a_machine_or_a_reason_and_no_machine_is_kept_in_vain(pods: list[Pod]) -> None:
    """A pending pod has a machine on its way, room that the scheduler confirms, or a reason."""
    _check(ClusterWorld(_pools(), pods, claims=CLAIMS, volumes=VOLUMES), 70)


@pytest.mark.nightly
@given(pods=workloads())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_pods_have_a_machine_or_a_reason(pods: list[Pod]) -> None:
    """The same with more examples."""
    _check(ClusterWorld(_pools(), pods, claims=CLAIMS, volumes=VOLUMES), 70)
