"""How the rehearsal finds the rows of its tables."""

import sys
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.checks.groups import NODE_TAGS
from bedplate.plan import Record, plan_fleet
from bedplate.rehearsal.kind import find_rows
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.limits import tag_complaints
from bedplate.rehearsal.kinds.vpn_connection import device_text, lay_tunnels
from bedplate.rehearsal.lookups.lookup import Lookup
from bedplate.rehearsal.quotas import QUOTAS, admit, over
from bedplate.rehearsal.state import Refusal, hidden
from bedplate.rehearsal.wire import UNKNOWN
from stacks.options import node_tags
from tests.testlab.fleets.sketch import catalog, group, sketch

ROW = """
from dataclasses import replace
from bedplate.rehearsal.lookups import LOOKUPS

ROW = replace(LOOKUPS["aws:index/getRegion:getRegion"], token="{}")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty package named rows."""
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rows"]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_a_new_module_is_enough_for_a_new_row(package: Path) -> None:
    """No table names it; a row that a module imports is found once."""
    (package / "first.py").write_text(ROW.format("t:t:First"))
    (package / "second.py").write_text("from rows.first import ROW\n")

    assert list(find_rows("rows", [str(package)], Lookup)) == ["t:t:First"]


def test_two_rows_for_one_type_are_refused(package: Path) -> None:
    """One would silently replace the other."""
    for name in ("first", "second"):
        (package / f"{name}.py").write_text(ROW.format("t:t:Same"))

    with pytest.raises(AssertionError, match=r"rows\.second has a second row for t:t:Same"):
        find_rows("rows", [str(package)], Lookup)


PHRASE = "correct horse battery staple"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("value correct horse battery staple is bad", "value [secret] is bad"),
        ("value 'correct horse batt' has 28 characters", "value '[secret]' has 28 characters"),
        ("Effect is horse battery in {}", "Effect is[secret]in {}"),
        ("no horse", "no horse"),
    ],
)
def test_a_secret_is_hidden_whole_and_in_part(message: str, told: str) -> None:
    """A message that quotes a piece of a secret shows no more of it than one that quotes all."""
    assert hidden(message, {PHRASE}) == told


def test_a_short_secret_is_hidden_where_it_stands_whole() -> None:
    """Too short to share a run, it is still never told."""
    assert hidden("key 4711 is too short", {"4711"}) == "key [secret] is too short"


VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"


@pytest.mark.parametrize("token", sorted(QUOTAS))
def test_a_quota_admits_its_last_and_refuses_one_more(token: str) -> None:
    """The figure of the table is the last that passes, those that AWS made itself included."""
    quota = QUOTAS[token]
    room = quota.most - quota.there

    assert over(quota, room) is None
    assert over(quota, room + 1)


def test_the_default_vpc_counts() -> None:
    """Of five VPCs in a region AWS has made one: a fifth of ours is refused with AWS's code."""
    four: list[dict[str, str]] = [{}] * 4

    admit(VPC, {}, four[:3])
    with pytest.raises(Refusal) as refused:
        admit(VPC, {}, four)

    assert refused.value.code == "VpcLimitExceeded"


def test_a_quota_within_a_vpc_counts_that_vpc_alone() -> None:
    """Two hundred subnets in one VPC leave room in another."""
    crowd = [{"vpcId": "vpc-1"}] * 200

    admit(SUBNET, {"vpcId": "vpc-2"}, crowd)
    with pytest.raises(Refusal, match="200 Subnet"):
        admit(SUBNET, {"vpcId": "vpc-1"}, crowd)


def test_a_type_without_a_quota_is_admitted() -> None:
    """What the table does not know is not counted."""
    admit("aws:ec2/route:Route", {}, [{}] * 10_000)


def test_quotas_are_of_types_that_exist() -> None:
    """A misspelt type would never be counted."""
    assert set(QUOTAS) <= set(KINDS)


def test_every_quota_names_its_source() -> None:
    """A figure without a source cannot be checked."""
    assert all(quota.source and quota.code for quota in QUOTAS.values())


MANY = {f"key-{number}": "value" for number in range(51)}


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (MANY, "at most 50"),
        ({"": "value"}, "1 to 128"),
        ({"k" * 129: "value"}, "1 to 128"),
        ({"aws:name": "value"}, "AWS reserves"),
        ({"AWS:name": "value"}, "AWS reserves"),
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


CONNECTIONS = [f"vpn-{number:017x}" for number in range(200)]
FIXED: dict[str, Any] = {
    "customerGatewayId": "cgw-1",
    "type": "ipsec.1",
    "tunnel1InsideCidr": "169.254.20.0/30",
    "tunnel1PresharedKey": "kept.as_given",
}


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_what_is_left_out_is_laid_within_awss_limits(connection: str) -> None:
    """Two tunnels have outside addresses of their own, /30s out of 169.254.0.0/16 and keys that AWS would take."""
    first, second = lay_tunnels(connection, {})

    assert first.address != second.address
    for tunnel in (first, second):
        assert tunnel.inside.prefixlen == 30
        assert tunnel.inside.subnet_of(IPv4Network("169.254.0.0/16"))
        assert len(tunnel.key) == 32
        assert tunnel.key.isalnum()
        assert "0" not in tunnel.key


def test_tunnels_are_laid_the_same_each_time() -> None:
    """A second look at a connection tells the same tunnels."""
    assert lay_tunnels("vpn-1", {}) == lay_tunnels("vpn-1", {})
    assert lay_tunnels("vpn-1", {}) != lay_tunnels("vpn-2", {})


def test_what_is_given_is_kept() -> None:
    """AWS's end has the first address inside, the customer's the second."""
    outputs = lay_tunnels("vpn-1", FIXED)[0].outputs(1, "64600")

    assert outputs["tunnel1VgwInsideAddress"] == "169.254.20.1"
    assert outputs["tunnel1CgwInsideAddress"] == "169.254.20.2"
    assert outputs["tunnel1PresharedKey"] == "kept.as_given"
    assert outputs["tunnel1BgpAsn"] == "64600"


def test_the_devices_text_holds_both_tunnels() -> None:
    """The XML for the device names both outside addresses and both keys."""
    tunnels = lay_tunnels("vpn-1", FIXED)

    text = device_text("vpn-1", FIXED, tunnels, "64600")

    assert all(str(tunnel.address) in text and tunnel.key in text for tunnel in tunnels)
