"""Tests of kinds with limits of AWS that need several resources: NAT gateways, SNS subscriptions, S3 replication."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.ec2 import used_addresses
from bedplate.rehearsal.simulation import Aws, Simulation
from bedplate.rehearsal.state import ResourceError
from tests.testlab.kinds import world as services
from tests.testlab.kinds.identity import COPIES, REPLICATION, copy_rule, encrypted_copy_rule, versioned_bucket
from tests.testlab.kinds.world import Given, World


def test_a_nat_gateway_takes_an_address_of_its_subnet(world: World) -> None:
    """The private address of a NAT gateway is in its subnet, and nothing else can use it."""
    reply = world.aws.call("ec2", "create_nat_gateway", SubnetId=world.subnet, ConnectivityType="private")

    address = reply["NatGateway"]["NatGatewayAddresses"][0]["PrivateIp"]
    assert ip_address(address) in ip_network("10.20.0.0/24")
    assert address in used_addresses(world.aws, world.subnet)


SUBSCRIPTION = KINDS["aws:sns/topicSubscription:TopicSubscription"]


@pytest.fixture
def aws(simulation: Simulation) -> Aws:
    """Return the client of one region."""
    return simulation.region("us-west-2")


@pytest.mark.parametrize(
    ("protocol", "endpoint", "refused"),
    [("email", "lab@example.org", []), ("email", "lab", ["endpoint"]), ("sqs", "a@b.org", ["protocol"])],
)
def test_a_subscription_is_by_mail(protocol: str, endpoint: str, refused: list[str], aws: Aws) -> None:
    """Another protocol, and an endpoint that is no address, are refused."""
    complaints = SUBSCRIPTION.complaints(aws, {"protocol": protocol, "endpoint": endpoint})

    assert [complaint.key for complaint in complaints] == refused


def test_a_missing_topic_is_refused(aws: Aws) -> None:
    """A subscription needs an existing topic."""
    inputs = {"topic": aws.arn("sns", "nothing"), "protocol": "email", "endpoint": "lab@example.org"}

    with pytest.raises(ResourceError, match="NotFound"):
        SUBSCRIPTION.create(aws, inputs)


def test_an_email_subscription_waits_for_confirmation(aws: Aws) -> None:
    """The recipient must confirm an email subscription; until then it is pending."""
    topic = aws.call("sns", "create_topic", Name="alarms")["TopicArn"]
    inputs = {"topic": topic, "protocol": "email", "endpoint": "a@b.org"}

    outputs = SUBSCRIPTION.read(aws, SUBSCRIPTION.create(aws, inputs), inputs)

    assert outputs["pendingConfirmation"]


def inputs_of(token: str, world: World, invalid: Given) -> dict[str, Any]:
    """Return the inputs of an example with some of them replaced by invalid ones."""
    valid = next(example for example in COPIES if example.token == token).inputs_in(world)
    return {**valid, **(invalid(world) if callable(invalid) else invalid)}


def target(bucket: str, **more: object) -> dict[str, Any]:
    """Return the destination of a replication rule."""
    return {"bucket": f"arn:aws:s3:::{bucket}", **more}


def missing_key(world: World) -> dict[str, Any]:
    """Return a replication rule with a key that does not exist."""
    rule = encrypted_copy_rule(world)
    missing = "arn:aws:kms:us-east-2:111122223333:key/00000000-0000-0000-0000-000000000000"
    target = {**rule["destination"], "encryptionConfiguration": {"replicaKmsKeyId": missing}}
    return {"rules": [{**rule, "destination": target}]}


# Kind, invalid inputs, error code of AWS.
REFUSALS: tuple[tuple[str, Given, str], ...] = (
    (REPLICATION, {"bucket": "no-such-bucket"}, "404"),
    (REPLICATION, lambda world: {"bucket": services.bucket(world)}, "InvalidRequest"),
    (REPLICATION, {"role": "arn:aws:iam::111122223333:role/missing"}, "NoSuchEntity"),
    (REPLICATION, lambda world: {"role": world.role}, "InvalidRequest"),
    (
        REPLICATION,
        lambda world: {"rules": [copy_rule(world, destination=target("no-such-bucket"))]},
        "InvalidRequest",
    ),
    (
        REPLICATION,
        lambda world: {"rules": [copy_rule(world, destination=target(services.bucket(world.abroad)))]},
        "InvalidRequest",
    ),
    (REPLICATION, missing_key, "NotFoundException"),
)


@pytest.mark.parametrize(("token", "invalid", "code"), REFUSALS)
def test_an_invalid_replication_is_refused(token: str, invalid: Given, code: str, world: World) -> None:
    """A missing resource at either end of a replication is refused with the error code of AWS."""
    inputs = inputs_of(token, world, invalid)

    with pytest.raises(ResourceError) as error:
        KINDS[token].create(world.aws, inputs)

    assert error.value.code == code


def without_delete_markers(world: World) -> dict[str, Any]:
    """Return a rule with a filter and without deleteMarkerReplication."""
    rule = copy_rule(world)
    del rule["deleteMarkerReplication"]
    return {"rules": [rule]}


# Invalid rules of a replication, and the reported key.
COMPLAINTS: tuple[tuple[Given, str], ...] = (
    (lambda world: {"rules": [copy_rule(world, status="On")]}, "rules.status"),
    (lambda world: {"rules": [copy_rule(world), copy_rule(world)]}, "rules"),
    (without_delete_markers, "rules[0]"),
    (lambda world: {"rules": [copy_rule(world, filter=None)]}, "rules[0]"),
    (lambda world: {"rules": [copy_rule(world, destination={"bucket": "bare-name"})]}, "rules[0]"),
    (lambda world: {"rules": [{**encrypted_copy_rule(world), "sourceSelectionCriteria": None}]}, "rules[0]"),
    (
        lambda world: {"rules": [copy_rule(world, destination=target("x", replicationTime={"status": "Enabled"}))]},
        "rules[0]",
    ),
)


@pytest.mark.parametrize(("invalid", "key"), COMPLAINTS)
def test_an_invalid_replication_rule_is_reported(invalid: Given, key: str, world: World) -> None:
    """A rule that S3 refuses is reported once, before anything is created."""
    inputs = inputs_of(REPLICATION, world, invalid)

    complaints = list(KINDS[REPLICATION].complaints(world.aws, inputs))

    assert [complaint.key for complaint in complaints] == [key]


def test_two_buckets_can_replicate_to_each_other(world: World) -> None:
    """Replication in both directions is one configuration for each bucket."""
    near, far = versioned_bucket(world), versioned_bucket(world.abroad)
    role = inputs_of(REPLICATION, world, {})["role"]

    for here, bucket, other in ((world, near, far), (world.abroad, far, near)):
        rules = [copy_rule(world, destination=target(other))]
        assert KINDS[REPLICATION].create(here.aws, {"bucket": bucket, "role": role, "rules": rules}) == bucket
