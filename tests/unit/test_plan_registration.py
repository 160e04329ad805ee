"""What a node registers, and what the tags of its group say of it."""

from dataclasses import replace

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.from_zero import from_zero_tags
from bedplate.plan.likeness import Likeness, likeness
from bedplate.plan.pool import Offer, PoolPlan, Tenure, Volume
from bedplate.plan.registration import INSTANCE_TYPE, ZONE, Registration, label_value, pool_registration, registration
from bedplate.spec.group import Fabric, Market
from bedplate.spec.site import Use

CATALOG = load_catalog()


def pool(*types: str, fabric: Fabric | None = None, similar: bool = False) -> PoolPlan:
    """Return a pool of these types in two zones."""
    return PoolPlan(
        name="gpu-us-west-2",
        group="gpu",
        use=Use.KUBERNETES,
        region="us-west-2",
        zones=("us-west-2a", "us-west-2b"),
        offer=Offer(Market.ON_DEMAND, types, similar=similar),
        min=0,
        max=4,
        most=4,
        volume=Volume(200),
        fabric=fabric,
        tenure=Tenure("ops@lab.example"),
    )


@pytest.mark.parametrize(
    ("kind", "resources"),
    [
        ("m7i.large", {}),
        ("g6.xlarge", {"nvidia.com/gpu": "1"}),
        ("g6f.large", {"nvidia.com/gpu": "1"}),
        ("g4ad.8xlarge", {"amd.com/gpu": "2"}),
        ("trn1.32xlarge", {"aws.amazon.com/neuron": "16"}),
        ("x9.large", {}),
    ],
)
def test_a_node_offers_the_devices_of_its_type(kind: str, resources: dict[str, str]) -> None:
    """Beside the part of its root volume that pods may fill; a type that nobody knows promises nothing."""
    told = registration(pool(kind), kind, "us-west-2a", CATALOG)

    assert told.resources == {**resources, "ephemeral-storage": "170Gi"}
    assert [taint for taint in told.taints if taint] == [f"{name}=present:NoSchedule" for name in resources]


@pytest.mark.parametrize(("fabric", "count"), [(Fabric.EFA, "32"), (None, None)])
def test_the_fabric_is_offered_where_it_is_asked_for(fabric: Fabric | None, count: str | None) -> None:
    """A type with EFA has it only on interfaces that the pool makes."""
    told = registration(pool("p5.48xlarge", fabric=fabric), "p5.48xlarge", "us-west-2a", CATALOG)

    assert told.resources.get("vpc.amazonaws.com/efa") == count


def test_a_pool_promises_what_each_of_its_machines_has() -> None:
    """The poorest type's devices, and the labels that all share: not type or zone where there are several."""
    told = pool_registration(pool("g6.12xlarge", "g6.48xlarge"), CATALOG)

    assert told.resources["nvidia.com/gpu"] == "4"
    assert told.labels["kubernetes.io/arch"] == "amd64"
    assert not {INSTANCE_TYPE, ZONE} & told.labels.keys()


def test_similar_types_have_no_name() -> None:
    """The one type that the file names is not the one that comes."""
    assert INSTANCE_TYPE not in pool_registration(pool("m7i.large", similar=True), CATALOG).labels
    assert INSTANCE_TYPE in pool_registration(pool("m7i.large"), CATALOG).labels


def test_a_long_name_stays_a_label_of_its_own() -> None:
    """Kubernetes takes 63 characters: what is cut is told apart."""
    names = [f"{'a' * 60}-{suffix}" for suffix in ("reservation-1", "reservation-2")]

    values = {label_value(name) for name in names}

    assert len(values) == 2
    assert all(len(value) <= 63 for value in values)
    assert label_value("short") == "short"


def test_a_tag_says_the_strongest_taint_of_a_key() -> None:
    """AWS has one tag a key, and a pod that is kept away by one taint is kept away."""
    told = Registration({}, ("team=a:NoExecute", "team=b:NoSchedule", "bare:PreferNoSchedule"), {})

    tags = from_zero_tags("lab", told)

    assert tags["k8s.io/cluster-autoscaler/node-template/taint/team"] == "a:NoExecute"
    assert tags["k8s.io/cluster-autoscaler/node-template/taint/bare"] == ":PreferNoSchedule"


@pytest.mark.parametrize(
    ("types", "found"),
    [
        (("c7i.24xlarge", "m6a.24xlarge"), Likeness((96, 96), (196608, 393216), ("amd", "intel"))),
        (("m7g.large", "x9.large"), Likeness((2, 2), (8192, 8192), ("amazon-web-services",))),
        (("x9.large",), None),
    ],
)
def test_a_likeness_spans_the_named_types(types: tuple[str, ...], found: Likeness | None) -> None:
    """From the smallest to the largest that is known, of the same makers."""
    asked = pool(*types, similar=True)

    assert likeness(asked, CATALOG) == found
    assert likeness(replace(asked, offer=replace(asked.offer, similar=False)), CATALOG) is None
