"""For which places a fleet needs images, and which of them the lock lacks."""

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.images import image_parameter, image_places, indispensable_images, unrecorded_images
from tests.support.sketch import cluster, group, laptops, sketch

WEST: dict[str, object] = {"region": "us-west-2", "zone": "us-west-2a"}
EAST: dict[str, object] = {"region": "us-east-1"}


def test_places_are_where_machines_stand() -> None:
    """Pools of both architectures, the control plane at home, laptop gateways: each once, and no region without."""
    groups = {"arm": group(WEST, EAST, types=("m7g.large",)), "gpu": group(EAST)}
    gateways = laptops({"region": "eu-north-1"})
    plan = plan_fleet(sketch(groups=groups, vpn=gateways, kubernetes=cluster()), Record({}), load_catalog())

    assert image_places(plan, load_catalog()) == (
        "eu-north-1/x86_64",
        "us-east-1/arm64",
        "us-east-1/x86_64",
        "us-west-2/arm64",
        "us-west-2/x86_64",
    )


def test_a_fleet_without_machines_needs_no_image() -> None:
    """Networks start from nothing."""
    assert image_places(plan_fleet(sketch(), Record({}), load_catalog()), load_catalog()) == ()


def test_what_the_lock_holds_is_not_looked_up_again() -> None:
    """An image of one architecture says nothing of the other."""
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})
    groups = {"arm": group(WEST, types=("m7g.large",)), "gpu": group(WEST)}

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert unrecorded_images(plan, load_catalog()) == ("us-west-2/arm64",)


def test_each_architecture_has_its_parameter() -> None:
    """Canonical calls x86_64 by another name."""
    assert "/24.04/stable/current/amd64/" in image_parameter("x86_64")
    assert "/24.04/stable/current/arm64/" in image_parameter("arm64")


def test_similar_types_start_from_recorded_images_alone() -> None:
    """Auto Scaling takes no parameter where it chooses types; other groups start without a record."""
    alike = group(WEST, EAST, types=("c7i.4xlarge",), similar=True)
    groups = {"sim": alike, "arm": group(WEST, types=("m7g.large",))}
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert indispensable_images(plan, load_catalog()) == ("us-east-1/x86_64",)
