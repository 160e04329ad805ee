"""Random workloads by the schema of the Kubernetes API: pods with resources, claims and rules, for property tests."""

from typing import Any

from hypothesis import strategies as st
from lightkube.models.core_v1 import ContainerPort
from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from tests.testlab.kubernetes.memory import cluster_pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
VOLUME = "us-west-2b"
"""The zone of the volume of the claim `bound`; that of `waiting` is made when a pod has a node."""
CLAIMS: dict[str, Any] = {
    f"lab/{name}": PersistentVolumeClaim.from_dict(
        {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}
    )
    for name, spec, phase in (
        ("bound", {"volumeName": "pv"}, "Bound"),
        ("waiting", {"storageClassName": "first-consumer"}, "Pending"),
    )
}
VOLUMES: dict[str, Any] = {
    "pv": PersistentVolume.from_dict({"metadata": {"name": "pv", "labels": {ZONE: VOLUME}}, "spec": {}})
}

_selectors = st.sampled_from(
    [
        None,
        {},
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "b"}},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
    ]
)
_keys = st.sampled_from([ZONE, HOST, "rack"])


def _valid(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without the keys that the API server does not accept together with others."""
    refused = {"matchLabelKeys"} if rule["labelSelector"] is None else set()
    refused |= {"minDomains"} if rule["whenUnsatisfiable"] == "ScheduleAnyway" else set()
    return {key: value for key, value in rule.items() if key not in refused}


_spread = st.fixed_dictionaries(
    {
        "topologyKey": _keys,
        "maxSkew": st.integers(1, 3),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": _selectors,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "matchLabelKeys": st.just(["revision"]),
    },
).map(_valid)
_term = st.fixed_dictionaries(
    {"topologyKey": _keys, "labelSelector": _selectors},
    optional={"namespaces": st.just(["elsewhere"]), "namespaceSelector": st.just({})},
)
_required = st.lists(_term, min_size=1, max_size=2).map(
    lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": terms}
)


def _identity(rule: Any) -> tuple[str, str]:  # noqa: ANN401  a rule, of which hypothesis does not know the type
    return rule["topologyKey"], rule["whenUnsatisfiable"]


_usual = st.fixed_dictionaries(
    {},
    optional={
        "topologySpreadConstraints": st.lists(_spread, min_size=1, max_size=2, unique_by=_identity),
        "affinity": _required.map(lambda rule: {"podAntiAffinity": rule}),
        "nodeSelector": st.sampled_from([{ZONE: "us-west-2a"}, {ZONE: "us-west-2b"}, {"rack": "1"}]),
        "volumes": st.just([{"name": "v", "emptyDir": {}}]),
    },
)
_odd = st.one_of(
    _required.map(lambda rule: {"affinity": {"podAffinity": rule}}),
    _spread.map(lambda rule: {"topologySpreadConstraints": [{**rule, "nodeTaintsPolicy": "Honor"}]}),
    st.sampled_from(
        [
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "waiting"}}]},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}]},
            {
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}],
                "nodeSelector": {ZONE: VOLUME},
            },
            {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}]},
            {"schedulerName": "volcano"},
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        ]
    ),
)
# Most pods have rules that a planner can know.
_rules = st.one_of(_usual, _usual, _usual, _odd)
_resources = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/mig-1g.10gb": st.just("1"),
        "vpc.amazonaws.com/efa": st.just("1"),
        "hugepages-2Mi": st.just("64Mi"),
        "ephemeral-storage": st.sampled_from(["10Gi", "70Gi", "1Ti"]),
        "memory": st.sampled_from(["1Gi", "150Gi", "1500Gi", "9Ti"]),
    },
)


@st.composite
def workloads(draw: st.DrawFn) -> list[Pod]:
    """Return the pods of some workloads: those of one have equal rules."""
    pods = []
    for number in range(draw(st.integers(1, 4))):
        rules: dict[str, Any] = draw(_rules)
        requests = draw(_resources) if draw(st.integers(0, 3)) == 0 else {}
        gpus, cpus = draw(st.sampled_from([0, 0, 0, 1, 4, 8])), draw(st.sampled_from([1, 1, 20, 40, 100]))
        labels = {"app": draw(st.sampled_from(["a", "b"])), "revision": draw(st.sampled_from(["1", "2"]))}
        ports = [ContainerPort(8080, hostPort=8080)] if draw(st.integers(0, 7)) == 0 else None
        for copy in range(draw(st.integers(1, 5))):
            name = f"w{number}-{copy}"
            pods.append(cluster_pod(name, gpus=gpus, cpus=cpus, labels=labels, requests=requests, **rules))
            pods[-1].spec.containers[0].ports = ports  # type: ignore[union-attr]
    return pods
