"""AWS's limits on tags."""

import pytest

from bedplate.rehearsal.kinds.tag_limits import tag_complaints
from bedplate.rehearsal.unknown import UNKNOWN

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
