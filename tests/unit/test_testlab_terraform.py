"""Conversion of a graph to a Terraform plan."""

import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from tests.conftest import Expect
from tests.testlab.rehearsal.graphs import addresses, node, references, values
from tests.testlab.rehearsal.terraform import MAPS, RENAMED, TEXTS, plan_document, terraform_property, terraform_type

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
BUCKET = "aws:s3/bucket:Bucket"
VERSIONS = "aws:s3/bucketVersioning:BucketVersioning"
ROLE = "aws:iam/role:Role"
PROFILE = "aws:iam/instanceProfile:InstanceProfile"
KEY = "aws:kms/key:Key"
ALIAS = "aws:kms/alias:Alias"
KEY_ARN = "arn:aws:kms:eu-north-1:111122223333:key/k"


def test_a_nested_object_is_a_block() -> None:
    """Terraform writes it as a list with one item, at every depth."""
    blocks = [{"deviceName": "/dev/sda1", "ebs": {"volumeSize": 8}}]

    (attributes,) = values(
        node(TEMPLATE, inputs={"metadataOptions": {"httpTokens": "required"}, "blockDeviceMappings": blocks})
    )

    assert attributes == {
        "metadata_options": [{"http_tokens": "required"}],
        "block_device_mappings": [{"device_name": "/dev/sda1", "ebs": [{"volume_size": 8}]}],
    }


def test_the_operators_words_stay() -> None:
    """Keys of tags are not converted."""
    (attributes,) = values(node(VPC, inputs={"tags": {"CostCentre": "a"}}, outputs={"tagsAll": {"CostCentre": "a"}}))

    assert attributes == {"tags": {"CostCentre": "a"}, "tags_all": {"CostCentre": "a"}}


def test_a_policy_is_a_text() -> None:
    """As text and as an object alike."""
    (attributes,) = values(node(ROLE, inputs={"assumeRolePolicy": {"Statement": []}}))

    assert attributes == {"assume_role_policy": json.dumps({"Statement": []})}


def test_what_may_stand_several_times_loses_its_plural() -> None:
    """Depending on the path: `rules` alone is ambiguous."""
    rules = [{"id": "all", "transitions": [{"days": 30}]}]
    token = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"  # noqa: S105  # a type

    (attributes,) = values(node(token, inputs={"rules": rules}))

    assert attributes == {"rule": [{"id": "all", "transition": [{"days": 30}]}]}


def test_what_only_aws_can_tell_is_marked() -> None:
    """Policy tools must not take an unknown value for a missing one."""
    document: Any = plan_document(
        [node(VPC, inputs={"cidrBlock": "10.0.0.0/16"}, outputs={"arn": "a", "cidrBlock": "b"})]
    )

    (change,) = document["resource_changes"]
    assert change["change"]["actions"] == ["create"]
    assert change["change"]["after"] == {"cidr_block": "10.0.0.0/16"}
    assert change["change"]["after_unknown"] == {"arn": True, "id": True}


def test_a_resource_is_named_after_its_stack() -> None:
    """Regions have resources with the same names; invalid characters are replaced."""
    assert addresses(node(VPC, "lab"), node(VPC, "lab", stack="lab.there"), node(SUBNET, "a/b.c")) == [
        "aws_vpc.lab_here_lab",
        "aws_vpc.lab_there_lab",
        "aws_subnet.lab_here_a_b_c",
    ]


def test_children_of_one_name_are_named_after_their_parents() -> None:
    """Two components can each have a child of the same name."""
    twins = [node(KEY, "k", parent="house:Door"), node(KEY, "k", parent="house:Gate")]

    assert addresses(*twins) == ["aws_kms_key.lab_here_house_Door_k", "aws_kms_key.lab_here_house_Gate_k"]


def test_only_what_is_created_is_planned() -> None:
    """Components and resources that are only read are left out."""
    assert not addresses(
        node("lab:House", custom=False), node("pulumi:pulumi:StackReference"), node(VPC, external=True)
    )


def test_a_property_refers_to_what_it_was_made_from() -> None:
    """By the attribute with its value, and by the resource."""
    vpc = node(VPC, "lab", id="vpc-1")
    dependencies = {"vpcId": [vpc["urn"]]}

    resource_references = references(
        vpc, node(SUBNET, "a", inputs={"vpcId": "vpc-1"}, property_dependencies=dependencies)
    )

    assert resource_references["lab_here_a"] == {"vpc_id": ["aws_vpc.lab_here_lab.id", "aws_vpc.lab_here_lab"]}


def test_a_reference_crosses_stacks() -> None:
    """By ids, at any depth: stacks do not name resources of other stacks."""
    key = node(KEY, "k", stack="lab.there", outputs={"arn": KEY_ARN})

    resource_references = references(key, node(ALIAS, "a", inputs={"targetKeyId": [{"deep": KEY_ARN}]}))

    assert resource_references["lab_here_a"] == {
        "target_key_id": ["aws_kms_key.lab_there_k.arn", "aws_kms_key.lab_there_k"]
    }


def test_a_bucket_is_known_by_its_name() -> None:
    """Only the property `bucket` refers to it."""
    bucket = node(BUCKET, "b", id="data", inputs={"bucket": "data"})

    resource_references = references(
        bucket, node(VERSIONS, "v", inputs={"bucket": "data", "expectedBucketOwner": "data"})
    )

    assert resource_references["lab_here_v"] == {"bucket": ["aws_s3_bucket.lab_here_b.id", "aws_s3_bucket.lab_here_b"]}


def test_a_name_that_somebody_chose_is_no_reference() -> None:
    """A role and an instance profile can have the same name."""
    role = node(ROLE, "r", id="nodes", inputs={"name": "nodes"})

    assert references(role, node(PROFILE, "p", inputs={"name": "nodes"}))["lab_here_p"] == {}


def test_providers_say_their_region_and_account() -> None:
    """As constants, which policy tools require."""
    wire = {"region": "us-west-2", "allowedAccountIds": '["111122223333"]', "version": "7"}
    provider = node("pulumi:providers:aws", "us-west-2", inputs=wire)

    document: Any = plan_document([provider, node(VPC, provider=f"{provider['urn']}::d8c0")])

    configuration = document["configuration"]
    ((key, provider_config),) = configuration["provider_config"].items()
    assert provider_config["expressions"] == {
        "region": {"constant_value": "us-west-2"},
        "allowed_account_ids": {"constant_value": ["111122223333"]},
    }
    assert (
        configuration["root_module"]["resources"][0]["provider_config_key"] == key == f"aws.{provider_config['alias']}"
    )


TERRAFORM = {terraform_type(token): token for token in KINDS}


def inputs(token: str) -> Iterator[tuple[str, type, bool]]:
    """Yield the nested inputs of a type: path, plain type, and whether it contains blocks."""
    for key in KINDS[token].inputs:
        yield from below(key, schema.fields(schema.args_class(token))[key])


def below(path: str, annotation: Any) -> Iterator[tuple[str, type, bool]]:  # noqa: ANN401  # an annotation of any form
    """Yield an input and its nested inputs."""
    input_type = _types.unwrap_type(annotation)
    plain = schema.plain_kind(input_type)
    inner = next((arm for arm in arms(input_type) if _types.is_input_type(arm)), None)
    yield path, plain, inner is not None
    for key, field_type in (schema.fields(inner) if inner else {}).items():
        yield from below(f"{path}.{key}", field_type)


def arms(annotation: Any) -> Iterator[type]:  # noqa: ANN401  # as below
    """Yield the plain types of a list, a union or an optional."""
    held = typing.get_args(annotation)
    if not held and isinstance(annotation, type):
        yield annotation
    for argument in held:
        yield from arms(_types.unwrap_type(argument))


def test_every_type_has_its_name(expect: Expect) -> None:
    """Every simulated type has a name of Terraform's provider."""
    lines = [f"{token} {terraform_type(token)}" for token in sorted(KINDS)]

    expect("terraform/types.txt", "\n".join(lines) + "\n")


def test_what_may_stand_several_times_has_its_name(expect: Expect) -> None:
    """Pulumi uses plurals for lists of blocks, Terraform seldom does."""
    lines = [
        f"{terraform_type(token)} {path} {terraform_property(terraform_type(token), path)}"
        for token in sorted(KINDS)
        for path, plain, is_block in sorted(inputs(token))
        if plain is list and is_block and not is_text(path)
    ]

    expect("terraform/blocks.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", RENAMED)
def test_only_what_there_is_has_another_name(kind: str) -> None:
    """The table contains only properties of the SDK."""
    token = TERRAFORM[kind]
    paths = {
        path
        for key, annotation in schema.fields(schema.args_class(token)).items()
        for path, _, _ in below(key, annotation)
    }

    assert paths >= RENAMED[kind].keys()


@pytest.mark.parametrize("token", KINDS)
def test_objects_of_the_operators_words_are_told_from_blocks(token: str) -> None:
    """Terraform writes a block as a list with one item, and a map as it is."""
    objects = {path: is_block for path, plain, is_block in inputs(token) if plain is dict and not is_text(path)}

    assert {path: path.rpartition(".")[2] not in MAPS for path in objects} == objects


def is_text(path: str) -> bool:
    """Return whether a property is JSON text in Terraform."""
    return not TEXTS.isdisjoint(path.split("."))
