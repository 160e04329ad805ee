"""What the bill counts is what the stacks hold."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.quotas import needs
from bedplate.plan.standing import standing
from tests.support.declared import declared_of, plan_of

ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
ROOT = Path(__file__).parents[2]
FLEETS = ("examples/lab.yaml", "examples/minimal.yaml", "tests/data/fleets/joined.yaml")
# What each thing that is paid for is made by; one resource of a peering is an attachment at both ends.
MADE_BY: Mapping[str, Mapping[str, int]] = {
    "alarm": {"aws:cloudwatch/metricAlarm:MetricAlarm": 1},
    "hosted-zone": {"aws:route53/zone:Zone": 1},
    "interface-endpoint": {"interfaces": 1},
    "key": {"aws:kms/key:Key": 1},
    "nat-gateway": {"aws:ec2/natGateway:NatGateway": 1},
    "public-address": {"aws:ec2/eip:Eip": 1},
    "resolver-address": {"aws:route53/resolverEndpoint:ResolverEndpoint": 2},
    "secret": {"aws:secretsmanager/secret:Secret": 1},
    "transit-attachment": {
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment": 1,
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment": 2,
        "aws:ec2/vpnConnection:VpnConnection": 1,
    },
    "vpn-connection": {"aws:ec2/vpnConnection:VpnConnection": 1},
}


@cache
def held(fleet: str) -> Counter[str]:
    """Return how many resources of each type all stacks of a fleet declare; of endpoints, how many interfaces."""
    every = [entry for entries in declared_of(ROOT / fleet).values() for entry in entries]
    interfaces = sum(len(entry.inputs.get("subnetIds", ())) for entry in every if entry.type == ENDPOINT)
    return Counter(entry.type for entry in every) + Counter({"interfaces": interfaces})


@pytest.mark.parametrize("rate", MADE_BY)
@pytest.mark.parametrize("fleet", FLEETS)
def test_the_bill_counts_what_the_stacks_declare(fleet: str, rate: str) -> None:
    """A thing that is made and not counted is a surprise at the end of the month."""
    counted = sum(each.count for each in standing(plan_of(ROOT / fleet)) if each.rate == rate)

    assert counted == sum(held(fleet)[token] * each for token, each in MADE_BY[rate].items())


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_largest_security_group_is_known(fleet: str) -> None:
    """A group that is full refuses whoever comes next, long after the file was judged."""
    plan = plan_of(ROOT / fleet)
    wanted = {need.region: need.most for need in needs(plan, load_catalog()) if need.quota.name.startswith("rules")}

    found = {
        region.name: max(
            Counter(
                entry.parent
                for entry in declared_of(ROOT / fleet)[f"{plan.name}.{region.name}"]
                if entry.type == "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
            ).values()
        )
        for region in plan.regions
    }
    assert found == wanted
