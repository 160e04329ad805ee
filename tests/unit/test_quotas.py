"""AWS's default quotas: what a rehearsal admits, and what it refuses as AWS would."""

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.quotas import QUOTAS, admit, over
from bedplate.rehearsal.refusal import Refusal

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
