"""Giving blocks back."""

from ipaddress import IPv4Network

import pytest

from bedplate.errors import InputError
from bedplate.plan import Record, allot
from bedplate.plan.release import release
from bedplate.spec import Fleet
from tests.support.sketch import LANS, cluster, sketch

WEST = sketch({"us-west-2": ["us-west-2a", "us-west-2b"]})
BOTH = sketch({"us-west-2": ["us-west-2a", "us-west-2b"], "us-east-1": ["us-east-1a"]}, sites=LANS)
RECORD = Record(allot(BOTH, Record({})))


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("region/us-east-1", 5),
        ("region/us-east-1/zone/us-east-1a", 2),
        ("tunnel/cellar", 4),
        ("tunnel/cellar/us-east-1/1", 1),
        ("site/cellar", 1),
    ],
)
def test_what_is_retired_goes_with_all_below_it(path: str, gone: int) -> None:
    """A region takes its subnets and tunnels along, a site's tunnels their numbers."""
    after = release(RECORD, path, WEST)

    assert len(after.blocks) == len(RECORD.blocks) - gone
    assert not any(known.startswith(path) for known in after.blocks)


def test_a_region_takes_along_what_leads_to_it() -> None:
    """Its tunnels and its laptop pool cannot stand without it; those of other regions stay."""
    gone, kept = ("tunnel/cellar/us-east-1/1", "pool/us-east-1"), ("tunnel/cellar/us-west-2/1", "pool/us-west-2")
    record = Record({**RECORD.blocks, **dict.fromkeys((*gone, *kept), IPv4Network("10.99.0.0/22"))})

    after = release(record, "region/us-east-1", WEST)

    assert not set(gone) & set(after.blocks)
    assert set(kept) <= set(after.blocks)


@pytest.mark.parametrize("path", ["region/us-west-2", "region/us-west-2/zone/us-west-2b", "region"])
def test_a_block_in_use_is_kept(path: str) -> None:
    """Nothing below the path may be in the file; a name that is only a part of a path counts as well."""
    with pytest.raises(InputError, match="cannot be released"):
        release(RECORD, path, WEST)


def test_an_unknown_path_is_refused_with_those_that_could_go() -> None:
    """A slip of the pen releases nothing; half a name is no path."""
    with pytest.raises(InputError, match="holds no region/us-east") as refusal:
        release(RECORD, "region/us-east", WEST)

    assert "region/us-east-1, site/cellar, tunnel/cellar/us-east-1/1" in refusal.value.fix


def test_where_nothing_can_go_the_refusal_says_so() -> None:
    """A record that the file asks for whole has nothing to give."""
    with pytest.raises(InputError) as refusal:
        release(RECORD, "pods", BOTH)

    assert refusal.value.fix == "nothing: no block in the lock can be released"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pods", sketch(kubernetes=cluster(pods="/13")), sketch(kubernetes=cluster(pods="/14"))),
        ("site/cellar", sketch(sites=LANS), sketch(sites={"cellar": "192.168.0.0/24"})),
        ("region/us-west-2", sketch(), sketch(blocks={"us-west-2": "10.99.0.0/16"})),
    ],
)
def test_a_release_is_how_to_renumber_on_purpose(path: str, before: Fleet, after: Fleet) -> None:
    """A block that the file asks to be another may go, and comes back as the file has it."""
    old = Record(allot(before, Record({})))

    new = allot(after, release(old, path, after))

    assert new[path] != old.blocks[path]
