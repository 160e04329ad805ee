"""Interface endpoints: which services the words of the file mean, and what they cost."""

import json
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Record, bill, plan_fleet
from bedplate.report.price import price_lines
from stacks.endpoints import users
from stacks.policy import policy
from tests.conftest import DATA
from tests.support.declared import declared, plan_of
from tests.support.sketch import ZONES, catalog, sketch

JOINED: Path = DATA / "fleets" / "joined.yaml"
PLAN = plan_of(JOINED)
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


def test_a_word_is_every_service_that_its_use_needs() -> None:
    """A pull asks ECR twice over, a session two parts of Systems Manager; the order is the file's."""
    assert PLAN.endpoints == ("ecr.api", "ecr.dkr", "ssm", "ssmmessages", "sts", "logs")


def test_a_fleet_that_asks_for_none_has_none() -> None:
    """Left out, nothing is paid and nothing is said."""
    plain = plan_fleet(sketch(ZONES), Record({}), catalog())

    assert plain.endpoints == ()
    assert not [line for line in price_lines(bill(plain, load_catalog())) if line.startswith("endpoints")]


def test_every_service_is_paid_for_in_every_zone() -> None:
    """Six services in three zones, at a cent an hour, for 730 hours."""
    lines = price_lines(bill(PLAN, load_catalog()))

    assert "endpoints 131.40 USD/month of it (18 interfaces)" in lines


def test_an_endpoint_has_an_interface_in_each_zone_and_the_services_own_name() -> None:
    """In the nodes' subnets; what calls the service by its name comes to the endpoint."""
    stacks = declared(PLAN)

    for region in PLAN.regions:
        made = [each.inputs for each in stacks[f"join.{region.name}"] if each.type == ENDPOINT]
        interfaces = [each for each in made if each["vpcEndpointType"] == "Interface"]
        assert {each["serviceName"] for each in interfaces} == {
            f"com.amazonaws.{region.name}.{service}" for service in PLAN.endpoints
        }
        assert all(each["privateDnsEnabled"] and len(each["subnetIds"]) == len(region.zones) for each in interfaces)


def test_only_the_region_itself_gets_in_and_only_by_https() -> None:
    """One rule, of the region's own block; an endpoint opens no connection."""
    entries = declared(PLAN)["join.us-west-2"]

    rules = [each for each in entries if "SecurityGroup" in each.type and each.name.startswith("join-endpoints-")]

    (rule,) = (each.inputs for each in rules)
    assert (rule["cidrIpv4"], rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("10.64.0.0/16", "tcp", 443, 443)


@pytest.mark.parametrize("service", PLAN.endpoints)
def test_an_endpoint_serves_this_account_and_its_own_service(service: str) -> None:
    """Credentials of another account's cannot carry data out by it."""
    ours, *_ = _statements(service)

    assert ours["Action"] == [f"{service.partition('.')[0]}:*"]
    assert ours["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ["111122223333"]}}


def test_tokens_are_changed_for_roles_of_this_account_alone() -> None:
    """Who brings a token is no principal of any account: without a statement of its own STS would refuse it."""
    _, tokens = _statements("sts")

    assert tokens["Resource"] == ["arn:aws:iam::111122223333:role/*"]
    assert set(tokens["Action"]) == {"sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"}
    assert all(len(_statements(service)) == 1 for service in PLAN.endpoints if service != "sts")


def _statements(service: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy(*users(PLAN, service)))["Statement"]
    return found
