"""Limits of spread as the planner reads them, and the fields of a pod that it reads."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from lightkube.models import core_v1
from lightkube.resources.core_v1 import Pod

from bedplate.capacity.observation import Observation, Spread
from bedplate.capacity.observation import Pod as SeenPod
from bedplate.kubernetes.demand import Cluster, join
from bedplate.kubernetes.spread import Limits, limits_of
from tests.testlab.kubernetes.memory import NOW, cluster_pod, stamp

WEB = {"matchLabels": {"app": "web"}}
ZONE = "topology.kubernetes.io/zone"


def _anti(**term: Any) -> dict[str, Any]:  # noqa: ANN401
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": WEB, **term}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}


def _spread(**rule: Any) -> dict[str, Any]:  # noqa: ANN401
    whole = {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB, **rule}
    return {"topologySpreadConstraints": [whole]}


def _seen(*pods: Pod) -> tuple[SeenPod, ...]:
    return join(Cluster(pods, [], {}, NOW), Observation(NOW)).pods


def test_required_spread_is_observed() -> None:
    """Anti-affinity and topology spread have their label, skew and domains; a preference does not count."""
    pods = [
        cluster_pod("a", labels={"app": "web"}, **_anti()),
        cluster_pod("b", **_spread(minDomains=3)),
        cluster_pod("c", **_spread(whenUnsatisfiable="ScheduleAnyway")),
    ]

    anti, spread, preference = _seen(*pods)

    assert anti.spread == (Spread("kubernetes.io/hostname", "apart: lab: app=web"),)
    assert spread.spread == (Spread(ZONE, "spread: lab: app=web", 2, 3),)
    assert preference.spread == ()
    assert anti.kinds == {"apart: lab: app=web", "spread: lab: app=web"}
    assert spread.kinds == preference.kinds == frozenset()


@pytest.mark.parametrize(
    ("spec", "meta", "counts"),
    [
        (_anti(), {}, True),
        (_anti(), {"labels": {"app": "db"}}, False),
        (_anti(), {"namespace": "grace"}, False),
        (_anti(namespaces=["grace"]), {"namespace": "grace"}, True),
        (_anti(namespaceSelector={}), {"namespace": "grace"}, True),
        (_anti(labelSelector=None), {}, False),
        (_anti(labelSelector={}), {"labels": {"app": "db"}}, True),
        (_anti(mismatchLabelKeys=["app"]), {}, False),
        (_spread(matchLabelKeys=["pod-template-hash"]), {"labels": {"app": "web", "pod-template-hash": "2"}}, False),
        (_spread(matchLabelKeys=["other"]), {}, True),
        (_anti(), {"deletionTimestamp": stamp(NOW)}, True),
        (_spread(), {"deletionTimestamp": stamp(NOW)}, False),
    ],
)
def test_a_limit_counts_the_pods_that_it_selects(spec: dict[str, Any], meta: dict[str, Any], *, counts: bool) -> None:
    """By labels, namespaces and label keys, as the scheduler does; without a selector none."""
    owner = cluster_pod("owner", labels={"app": "web", "pod-template-hash": "1"}, **spec)
    document = cluster_pod("other", labels={"app": "web"}).to_dict()
    other = Pod.from_dict({**document, "metadata": {**document["metadata"], **meta}})

    (limit,) = limits_of(owner)

    assert (limit.spread.pods in Limits.of([owner]).kinds(cast("Pod", other))) is counts


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (_spread(nodeTaintsPolicy="Honor"), "policy for nodes"),
        (_spread(nodeAffinityPolicy="Ignore"), "policy for nodes"),
        (_anti(namespaceSelector=WEB), "namespaces by labels"),
        ({**_anti(namespaceSelector={}), **_spread(nodeTaintsPolicy="Ignore", nodeAffinityPolicy="Honor")}, ""),
    ],
)
def test_a_limit_that_the_planner_cannot_compare_is_named(spec: dict[str, Any], words: str) -> None:
    """Other policies than the default ones, and namespaces that are selected by labels."""
    (seen,) = _seen(cluster_pod("p", **spec))
    assert words in seen.unsupported
    assert bool(words) is bool(seen.unsupported)


# What the planner reads, and what the scheduler does not compare with nodes.
FIELDS: Mapping[str, tuple[str, str]] = {
    "PodSpec": (
        (
            "affinity containers initContainers nodeName nodeSelector overhead priority resourceClaims resources"
            " schedulerName schedulingGates schedulingGroup tolerations topologySpreadConstraints volumes"
        ),
        (
            "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
            "ephemeralContainers evictionResponders hostAliases hostIPC hostNetwork hostPID hostUsers hostname "
            "hostnameOverride imagePullSecrets os preemptionPolicy priorityClassName readinessGates "
            "restartPolicy runtimeClassName securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
            "shareProcessNamespace subdomain terminationGracePeriodSeconds"
        ),
    ),
    "TopologySpreadConstraint": (
        (
            "labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy topologyKey"
            " whenUnsatisfiable"
        ),
        "",
    ),
    "PodAffinityTerm": (
        "labelSelector matchLabelKeys mismatchLabelKeys namespaceSelector namespaces topologyKey",
        "",
    ),
    "Affinity": ("nodeAffinity podAffinity podAntiAffinity", ""),
    "NodeAffinity": (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ),
    "NodeSelectorTerm": ("matchExpressions matchFields", ""),
    "Toleration": ("effect key operator value", "tolerationSeconds"),
    "ResourceRequirements": ("limits requests", "claims"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_each_field_of_a_pod_is_read_or_no_matter(kind: str) -> None:
    """A field that a later version of Kubernetes adds is a decision: it may keep a pod off a node."""
    read, other = FIELDS[kind]
    assert sorted(getattr(core_v1, kind).__annotations__) == sorted(f"{read} {other}".split())
