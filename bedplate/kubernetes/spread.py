"""Limits on equal pods in one place: anti-affinity and topology spread, with the pods that they select."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lightkube.models.core_v1 import PodAffinityTerm, TopologySpreadConstraint
from lightkube.models.meta_v1 import LabelSelector, LabelSelectorRequirement
from lightkube.resources.core_v1 import Pod

from bedplate.capacity.observation import Spread
from bedplate.kubernetes.pods import selects

_PREFERENCE = "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a pod, and the pods that count in it: in these namespaces, or in all for None, by a selector."""

    spread: Spread
    namespaces: frozenset[str] | None
    selector: LabelSelector | None

    def selects(self, pod: Pod) -> bool:
        """Return whether a pod counts; one that is ending does not, unless other pods must be apart from it."""
        meta = pod.metadata
        if self.selector is None or meta is None or (self.spread.skew and meta.deletionTimestamp):
            return False
        is_here = self.namespaces is None or str(meta.namespace) in self.namespaces
        return is_here and selects(self.selector, meta.labels or {})


def limits_of(pod: Pod) -> Iterator[Limit]:
    """Yield the required limits of a pod."""
    for rule in _rules(pod):
        selector = _with_keys(pod, rule.labelSelector, rule.matchLabelKeys, "In")
        own = frozenset({_namespace(pod)})
        name = f"spread: {_words(own, selector)}"
        yield Limit(Spread(rule.topologyKey, name, max(rule.maxSkew, 1), rule.minDomains or 1), own, selector)
    for term in _terms(pod):
        selector = _with_keys(pod, term.labelSelector, term.matchLabelKeys, "In")
        selector = _with_keys(pod, selector, term.mismatchLabelKeys, "NotIn")
        namespaces = _namespaces(pod, term)
        yield Limit(Spread(term.topologyKey, f"apart: {_words(namespaces, selector)}"), namespaces, selector)


def unsupported_spread(pod: Pod) -> str:
    """Return the limit of a pod that the planner cannot compare; empty if there is none."""
    for rule in _rules(pod):
        if rule.nodeTaintsPolicy not in (None, "Ignore") or rule.nodeAffinityPolicy not in (None, "Honor"):
            return f"it is spread over {rule.topologyKey} by a policy for nodes that the planner does not know"
    # An empty selector means all namespaces.
    if any(term.namespaceSelector and term.namespaceSelector.to_dict() for term in _terms(pod)):
        return "its podAntiAffinity selects namespaces by labels, which the planner does not know"
    return ""


@dataclass
class Limits:
    """All limits in a cluster, each once, and the pods that count in them; equal pods are compared once."""

    _all: dict[str, Limit] = field(default_factory=dict)
    _kinds: dict[object, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> "Limits":
        """Return the limits of pods."""
        return cls({limit.spread.pods: limit for pod in pods for limit in limits_of(pod)})

    def kinds(self, pod: Pod) -> frozenset[str]:
        """Return the names of the limits in which a pod counts."""
        meta = pod.metadata
        if meta is None or not self._all:
            return frozenset()
        key = (meta.namespace, frozenset((meta.labels or {}).items()), bool(meta.deletionTimestamp))
        if key not in self._kinds:
            self._kinds[key] = frozenset(name for name, limit in self._all.items() if limit.selects(pod))
        return self._kinds[key]


def _rules(pod: Pod) -> list[TopologySpreadConstraint]:
    rules = (pod.spec.topologySpreadConstraints if pod.spec else None) or ()
    return [rule for rule in rules if rule.whenUnsatisfiable != _PREFERENCE]


def _terms(pod: Pod) -> list[PodAffinityTerm]:
    affinity = pod.spec.affinity if pod.spec else None
    anti = affinity.podAntiAffinity if affinity else None
    return list((anti.requiredDuringSchedulingIgnoredDuringExecution if anti else None) or ())


def _namespace(pod: Pod) -> str:
    return str(pod.metadata.namespace) if pod.metadata else ""


def _namespaces(pod: Pod, term: PodAffinityTerm) -> frozenset[str] | None:
    if term.namespaceSelector is not None:
        # The labels of namespaces are unknown: the pods of any may count.
        return None
    return frozenset(term.namespaces or [_namespace(pod)])


def _with_keys(
    pod: Pod, selector: LabelSelector | None, keys: Iterable[str] | None, operator: str
) -> LabelSelector | None:
    """Return a selector that also compares these labels with those of the pod, if it has them."""
    labels: Mapping[str, str] = (pod.metadata.labels if pod.metadata else None) or {}
    more = [LabelSelectorRequirement(key, operator, [labels[key]]) for key in keys or () if key in labels]
    if selector is None or not more:
        return selector
    return LabelSelector([*(selector.matchExpressions or ()), *more], selector.matchLabels)


def _words(namespaces: frozenset[str] | None, selector: LabelSelector | None) -> str:
    """Return the name of a selection: equal ones have the same."""
    if selector is None:
        return "no pod"
    pairs = [f"{key}={value}" for key, value in sorted((selector.matchLabels or {}).items())]
    rules = [f"{rule.key} {rule.operator} {rule.values}" for rule in selector.matchExpressions or ()]
    where = "all namespaces" if namespaces is None else ",".join(sorted(namespaces))
    return f"{where}: {'; '.join(pairs + sorted(rules))}"
