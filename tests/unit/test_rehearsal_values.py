"""Tests of tables and values of the rehearsal: discovery of kinds, hidden secrets, quotas, tags, VPN tunnels."""

import sys
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.checks.groups import NODE_TAGS
from bedplate.plan import Record, plan_fleet
from bedplate.rehearsal.kind import find_kinds
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.limits import check_tags
from bedplate.rehearsal.kinds.vpn import device_configuration, make_tunnels
from bedplate.rehearsal.quotas import QUOTAS, check
from bedplate.rehearsal.state import ResourceError, hidden
from bedplate.rehearsal.wire import UNKNOWN
from stacks.options import node_tags
from tests.testlab.fleets.sketch import catalog, group, sketch

ROW = """
from dataclasses import replace
from bedplate.rehearsal.kinds import KINDS

ROW = replace(KINDS["aws:ec2/vpc:Vpc"], token="{}")
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


def test_a_row_in_a_new_module_is_found(package: Path) -> None:
    """A module needs no registration; a row that another module imports is found once."""
    (package / "first.py").write_text(ROW.format("t:t:First"))
    (package / "second.py").write_text("from rows.first import ROW\n")

    assert list(find_kinds("rows", [str(package)])) == ["t:t:First"]


def test_two_rows_for_one_type_are_refused(package: Path) -> None:
    """Two rows with the same token are an error, because one would replace the other."""
    for name in ("first", "second"):
        (package / f"{name}.py").write_text(ROW.format("t:t:Same"))

    with pytest.raises(AssertionError, match=r"rows\.second has a second row for t:t:Same"):
        find_kinds("rows", [str(package)])


PHRASE = "correct horse battery staple"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("value correct horse battery staple is bad", "value [secret] is bad"),
        ("value 'correct horse batt' has 28 characters", "value '[secret]' has 28 characters"),
        ("Effect is horse battery in {}", "Effect is[secret]in {}"),
        ("no horse", "no horse"),
    ],
)
def test_a_secret_is_hidden_whole_and_in_part(message: str, expected: str) -> None:
    """A message that quotes part of a secret shows no more of it than one that quotes all."""
    assert hidden(message, {PHRASE}) == expected


def test_a_short_secret_is_hidden_as_a_whole() -> None:
    """A secret that is too short for a common run of characters is hidden, too."""
    assert hidden("key 4711 is too short", {"4711"}) == "key [secret] is too short"


VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"


@pytest.mark.parametrize("token", sorted(QUOTAS))
def test_a_quota_is_the_last_accepted_number(token: str) -> None:
    """The quota itself is accepted, resources that AWS created included; one more is refused."""
    quota = QUOTAS[token]
    inputs = {quota.within: "place"}

    check(token, inputs, [inputs] * (quota.limit - quota.existing - 1))
    with pytest.raises(ResourceError, match=f"the quota of {quota.limit}"):
        check(token, inputs, [inputs] * (quota.limit - quota.existing))


def test_the_default_vpc_counts() -> None:
    """AWS creates one of the five VPCs of a region, so a fifth of ours is refused with AWS's code."""
    vpcs: list[dict[str, str]] = [{}] * 4

    check(VPC, {}, vpcs[:3])
    with pytest.raises(ResourceError) as error:
        check(VPC, {}, vpcs)

    assert error.value.code == "VpcLimitExceeded"


def test_a_quota_per_vpc_counts_one_vpc() -> None:
    """200 subnets in one VPC do not affect another."""
    subnets = [{"vpcId": "vpc-1"}] * 200

    check(SUBNET, {"vpcId": "vpc-2"}, subnets)
    with pytest.raises(ResourceError, match="200 Subnet"):
        check(SUBNET, {"vpcId": "vpc-1"}, subnets)


def test_a_type_without_a_quota_has_no_limit() -> None:
    """A type that is not in the table is not counted."""
    check("aws:ec2/route:Route", {}, [{}] * 10_000)


def test_quotas_are_of_types_that_exist() -> None:
    """A misspelled type would never be counted."""
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
def test_a_tag_over_a_limit_is_reported_once(tags: object, reason: str) -> None:
    """Each limit is reported once, for maps of tags and for lists of blocks."""
    (complaint,) = check_tags({"tags": tags})

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
def test_tags_at_the_limits_are_accepted(tags: object) -> None:
    """The limit itself is allowed, and unknown values are not checked."""
    assert list(check_tags({"tags": tags})) == []


def test_the_checks_count_all_tags_of_a_node() -> None:
    """The checks assume the number of tags that the stacks set, an expiry included."""
    fleet = sketch(groups={"one": group({"region": "us-west-2"}, expires="permanent")})
    plan = plan_fleet(fleet, Record({}), catalog())

    assert len(node_tags(plan, plan.pools[0])) == NODE_TAGS


CONNECTIONS = [f"vpn-{number:017x}" for number in range(200)]
FIXED: dict[str, Any] = {
    "customerGatewayId": "cgw-1",
    "type": "ipsec.1",
    "tunnel1InsideCidr": "169.254.20.0/30",
}


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_default_tunnel_options_are_valid(connection: str) -> None:
    """Two tunnels have different outside addresses, a /30 in 169.254.0.0/16 and keys that AWS accepts."""
    first, second = make_tunnels(connection, {})

    assert first.address != second.address
    for tunnel in (first, second):
        assert tunnel.inside.prefixlen == 30
        assert tunnel.inside.subnet_of(IPv4Network("169.254.0.0/16"))
        assert len(tunnel.key) == 32
        assert tunnel.key.isalnum()
        assert "0" not in tunnel.key


def test_tunnel_options_do_not_change() -> None:
    """The options of a connection are the same on each read."""
    assert make_tunnels("vpn-1", {}) == make_tunnels("vpn-1", {})
    assert make_tunnels("vpn-1", {}) != make_tunnels("vpn-2", {})


def test_explicit_tunnel_options_are_kept() -> None:
    """AWS has the first inside address, the customer gateway the second."""
    outputs = make_tunnels("vpn-1", FIXED)[0].outputs(1, "64600")

    assert outputs["tunnel1VgwInsideAddress"] == "169.254.20.1"
    assert outputs["tunnel1CgwInsideAddress"] == "169.254.20.2"
    assert outputs["tunnel1BgpAsn"] == "64600"


def test_the_device_configuration_holds_both_tunnels() -> None:
    """The XML for the device names both outside addresses and both keys."""
    tunnels = make_tunnels("vpn-1", FIXED)

    text = device_configuration("vpn-1", FIXED, tunnels, "64600")

    assert all(str(tunnel.address) in text and tunnel.key in text for tunnel in tunnels)
