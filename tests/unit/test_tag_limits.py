"""AWS's limits on tags."""

import pytest

from bedplate.checks.tag import NODE_TAGS
from bedplate.plan import Record, plan_fleet
from bedplate.rehearsal.kinds.tag_limits import tag_complaints
from bedplate.rehearsal.unknown import UNKNOWN
from stacks.tags import node_tags
from tests.support.sketch import catalog, group, sketch

MANY = {f"key-{number}": "value" for number in range(51)}


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (MANY, "at most 50"),
        ({"": "value"}, "1 to 128"),
        ({"k" * 129: "value"}, "1 to 128"),
        ({"aws:name": "value"}, "AWS's own"),
        ({"AWS:name": "value"}, "AWS's own"),
        ({"name": "v" * 257}, "at most 256"),
        ([{"key": "name", "value": "v" * 257, "propagateAtLaunch": True}], "at most 256"),
    ],
)
def test_a_tag_beyond_a_limit_draws_one_complaint(tags: object, reason: str) -> None:
    """Each limit is told once, for maps of tags and for lists of blocks."""
    (complaint,) = tag_complaints({"tags": tags})

    assert reason in complaint.reason
    assert complaint.key.startswith("tags")


@pytest.mark.parametrize(
    "tags",
    [
        dict(list(MANY.items())[:50]),
        {"k" * 128: "v" * 256, "awsome": ""},
        {"name": UNKNOWN},
        UNKNOWN,
        None,
        [{"key": "name", "value": "x"}, {"key": UNKNOWN, "value": "y"}],
    ],
)
def test_tags_at_the_limits_pass(tags: object) -> None:
    """The last allowed figure is allowed, and what is unknown is not judged."""
    assert list(tag_complaints({"tags": tags})) == []


def test_the_checks_know_how_many_tags_a_machine_has() -> None:
    """What they reckon with is what the stacks put on, an expiry among them."""
    fleet = sketch(groups={"one": group({"region": "us-west-2"}, expires="permanent")})
    plan = plan_fleet(fleet, Record({}), catalog())

    assert len(node_tags(plan, plan.pools[0])) == NODE_TAGS
