"""The provider's schema as the SDK holds it."""

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Unsupported

VPC = "aws:ec2/vpc:Vpc"


def test_a_type_has_outputs_that_are_empty_where_aws_has_none() -> None:
    """Every property is there, as the provider gives it: "", [], {}, false or zero."""
    found = schema.outputs(VPC)

    assert (found["arn"], found["tagsAll"], found["enableDnsSupport"], found["ipv6NetmaskLength"]) == ("", {}, False, 0)


def test_outputs_are_never_boto3s_names() -> None:
    """A program that reads what only boto3 calls so must fail in the rehearsal too."""
    assert schema.outputs(VPC).keys().isdisjoint({"vpcId", "VpcId", "state", "isDefault"})


def test_inputs_are_by_their_names_on_the_wire() -> None:
    """camelCase, as programs' inputs arrive."""
    assert {"cidrBlock", "region"} <= schema.inputs(VPC)


def test_a_type_that_the_sdk_lacks_is_refused() -> None:
    """A misspelt token is no resource without a model, but no resource at all."""
    with pytest.raises(Unsupported, match="no resource type"):
        schema.resource_class("aws:ec2/vpc:Vcp")


@pytest.mark.parametrize("token", KINDS)
def test_every_kinds_tables_are_the_schemas(token: str) -> None:
    """A kind names only inputs that the SDK has, and moves only outputs that it has."""
    kind = KINDS[token]

    assert {*kind.inputs, *kind.defaults, *kind.computed, *kind.sets} <= schema.inputs(token)
    assert kind.moves <= schema.outputs(token).keys()
