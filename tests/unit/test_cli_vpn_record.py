"""`bedplate vpn record` and `bedplate vpn guard`: what AWS gave out is kept; what a laptop may load."""

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path, read_lock, record_doors
from bedplate.plan import Record
from tests.conftest import DATA
from tests.support.declared import EXAMPLES
from tests.support.laptop_plans import HOME, PUBLIC, RESOLVERS
from tests.support.stubbed import StubbedSession


def _stands(account: StubbedSession, *public: IPv4Address) -> None:
    wanted = [{"Name": "tag:Name", "Values": ["lab-laptops"]}]
    found = {"Addresses": [{"PublicIp": str(each)} for each in public]}
    account.answers("ec2", HOME, "describe_addresses", found, Filters=wanted)


def _resolves(account: StubbedSession) -> None:
    wanted = [{"Name": "Name", "Values": ["lab-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
    found = {"ResolverEndpoints": [{"Id": "rslvr-in-1"}]}
    account.answers("route53resolver", HOME, "list_resolver_endpoints", found, Filters=wanted)
    told = {"IpAddresses": [{"Ip": str(each)} for each in reversed(RESOLVERS)]}
    asked = {"ResolverEndpointId": "rslvr-in-1"}
    account.answers("route53resolver", HOME, "list_resolver_endpoint_ip_addresses", told, **asked)


def _lock(file: Path) -> Record:
    return read_lock(file.with_name("fleet.lock"), "lab")


def test_addresses_that_aws_gave_out_are_kept(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are found by the names that the stacks give; the site's gateway is asked of nobody."""
    _stands(account, PUBLIC)
    _resolves(account)

    assert run(["vpn", "record", str(lab)]) == 0

    assert dict(_lock(lab).gateways) == {HOME: PUBLIC}
    assert dict(_lock(lab).resolvers) == {HOME: RESOLVERS}
    assert capsys.readouterr().out.splitlines() == [
        "us-west-2   gateway 52.1.2.3",
        "us-west-2   resolver 10.64.32.5, 10.64.64.7",
    ]


def test_a_gateway_that_does_not_stand_is_not_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and the lock is as it was: a profile with half of its addresses would be worse than none."""
    _stands(account)
    _resolves(account)

    assert run(["vpn", "record", str(lab)]) == 2

    assert not lab.with_name("fleet.lock").exists()
    told = capsys.readouterr().err
    assert "nothing was recorded: us-west-2: us-west-2 has 0 addresses that are called lab-laptops" in told
    assert "`pulumi up -s lab.us-west-2` first" in told


def test_addresses_may_be_given_by_hand(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of AWS then; what another took the place of is told."""
    given = ["--address", "us-west-2=52.1.2.3", "--resolver", "us-west-2=10.64.64.7,10.64.32.5"]
    assert run(["vpn", "record", str(lab), *given]) == 0
    assert run(["vpn", "record", str(lab), "--address", "us-west-2=52.9.9.9"]) == 0

    assert _lock(lab).gateways[HOME] == IPv4Address("52.9.9.9")
    assert _lock(lab).resolvers[HOME] == RESOLVERS
    assert "us-west-2   gateway 52.9.9.9   was 52.1.2.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--address", "cellar=8.20.30.40", "'cellar' has none"),
        ("--address", "us-east-1=52.1.2.3", "'us-east-1' has none"),
        ("--address", "us-west-2=52.1.2", "Expected 4 octets"),
        ("--address", "us-west-2=52.1.2.3,52.1.2.4", "--address names 2 addresses"),
        ("--resolver", "eu-north-1=10.66.0.5", "'eu-north-1' has none"),
        ("--resolver", "us-west-2", "Address cannot be empty"),
        ("--address", "us-west-2=0.0.0.0", "nobody is reached at 0.0.0.0 (this network, RFC 791)"),
        ("--address", "us-west-2=127.0.0.1", "nobody is reached at 127.0.0.1 (loopback, RFC 1122)"),
        ("--address", "us-west-2=169.254.169.253", "(link-local, RFC 3927)"),
        ("--address", "us-west-2=224.0.0.1", "(multicast, RFC 5771)"),
        ("--address", "us-west-2=255.255.255.255", "(reserved, RFC 1112)"),
        ("--resolver", "us-west-2=10.64.32.5,0.0.0.0", "nobody is reached at 0.0.0.0"),
        ("--resolver", "us-west-2=127.0.0.53", "nobody is reached at 127.0.0.53"),
    ],
)
def test_an_address_of_nothing_is_refused(
    option: str, value: str, told: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with what to write instead."""
    assert run(["vpn", "record", str(lab), option, value]) == 2

    assert told in capsys.readouterr().err
    assert not lab.with_name("fleet.lock").exists()


def test_the_packet_filter_of_a_laptop_is_printed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is proved in the laboratory; it holds no secret."""
    assert run(["vpn", "guard", str(lab)]) == 0

    assert capsys.readouterr().out == (DATA / "laptops" / "laptop.nft").read_text()


def test_a_fleet_without_gateways_has_no_packet_filter_for_laptops(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one would look as if it kept something."""
    assert run(["vpn", "guard", str(EXAMPLES / "minimal.yaml")]) == 2

    assert "no gateway of laptops" in capsys.readouterr().err


def test_a_pool_that_is_full_becomes_a_wider_one(here: Path) -> None:
    """By the page's own command, once the file says so; whoever has a profile dials where they dialled."""
    record_doors(lock_path(here), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    assert run(["plan", "--write"]) == 0
    here.write_text(here.read_text().replace("pool: /22", "pool: /20"))

    assert run(["plan", "--write"]) == 2
    assert run(["plan", "--write", "--release", "pool/us-west-2", "--release", "pool/cellar"]) == 0

    lock = json.loads(lock_path(here).read_text())
    assert [lock["blocks"][f"pool/{place}"].rpartition("/")[2] for place in (HOME, "cellar")] == ["20", "20"]
    assert lock["gateways"] == {HOME: str(PUBLIC)}
