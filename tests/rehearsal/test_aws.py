"""Where a NAT gateway stands: it takes an address of its subnet, as any machine would."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.ec2 import taken_addresses
from bedplate.rehearsal.simulation import Aws, running
from bedplate.rehearsal.state import Refusal
from tests.testlab.kinds import world as services
from tests.testlab.kinds.identity import COPIES, REPLICATION, copied, encrypted, versioned
from tests.testlab.kinds.world import Given, World

ACCOUNT = "123456789012"


def test_a_nat_gateway_takes_an_address_of_its_subnet() -> None:
    """The address that AWS gives a NAT gateway lies in the gateway's subnet, and nothing else may have it."""
    with running(ACCOUNT) as simulation:
        world = World(simulation.region("us-east-1"))
        made = world.aws.call("ec2", "create_nat_gateway", SubnetId=world.subnet, ConnectivityType="private")

        address = made["NatGateway"]["NatGatewayAddresses"][0]["PrivateIp"]

        assert ip_address(address) in ip_network("10.20.0.0/24")
        assert address in taken_addresses(world.aws, world.subnet)


SUBSCRIPTION = KINDS["aws:sns/topicSubscription:TopicSubscription"]


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """Run one simulated AWS for all of this file."""
    with running("111122223333") as simulation:
        yield simulation.region("us-west-2")


@pytest.mark.parametrize(
    ("protocol", "good", "bad"),
    [
        ("email", "lab@example.org", "lab"),
        ("https", "https://hooks.example.org/1", "http://hooks.example.org/1"),
        ("sms", "+15550100", "call me"),
        ("sqs", "arn:aws:sqs:us-west-2:111122223333:alarms", "alarms"),
    ],
)
def test_an_endpoint_fits_its_protocol(protocol: str, good: str, bad: str, aws: Aws) -> None:
    """SNS refuses an endpoint of another form before it makes anything."""
    complaints = [
        [each.key for each in SUBSCRIPTION.complaints(aws, {"protocol": protocol, "endpoint": endpoint})]
        for endpoint in (good, bad)
    ]

    assert complaints == [[], ["endpoint"]]


def test_a_protocol_is_one_of_a_few(aws: Aws) -> None:
    """The provider names those that it knows."""
    complaints = SUBSCRIPTION.complaints(aws, {"protocol": "fax", "endpoint": "1"})

    assert [each.key for each in complaints] == ["protocol"]


def test_a_topic_that_does_not_exist_is_refused(aws: Aws) -> None:
    """A subscription needs its topic."""
    inputs = {"topic": aws.arn("sns", "nothing"), "protocol": "email", "endpoint": "lab@example.org"}

    with pytest.raises(Refusal, match="NotFound"):
        SUBSCRIPTION.create(aws, inputs)


@pytest.mark.parametrize(("protocol", "endpoint", "waits"), [("email", "a@b.org", True), ("sms", "+15550100", False)])
def test_mail_waits_for_a_yes(protocol: str, endpoint: str, *, waits: bool, aws: Aws) -> None:
    """Somebody has to confirm a subscription by mail; until then it is pending."""
    topic = aws.call("sns", "create_topic", Name=f"news-{protocol}")["TopicArn"]
    inputs = {"topic": topic, "protocol": protocol, "endpoint": endpoint}

    outputs = SUBSCRIPTION.read(aws, SUBSCRIPTION.create(aws, inputs), inputs)

    assert outputs["pendingConfirmation"] is waits


def inputs_of(token: str, world: World, spoiled: Given) -> dict[str, Any]:
    """Return a specimen's inputs with some of them spoiled."""
    good = next(each for each in COPIES if each.token == token).inputs_in(world)
    return {**good, **(spoiled(world) if callable(spoiled) else spoiled)}


def to(bucket: str, **more: object) -> dict[str, Any]:
    """Return the destination of a rule."""
    return {"bucket": f"arn:aws:s3:::{bucket}", **more}


def misplaced_key(world: World) -> dict[str, Any]:
    """Return a rule with a key that does not exist."""
    rule = encrypted(world)
    gone = "arn:aws:kms:us-east-2:111122223333:key/00000000-0000-0000-0000-000000000000"
    target = {**rule["destination"], "encryptionConfiguration": {"replicaKmsKeyId": gone}}
    return {"rules": [{**rule, "destination": target}]}


# Kind, what spoils the specimen's inputs, and AWS's code.
REFUSALS: tuple[tuple[str, Given, str], ...] = (
    (REPLICATION, {"bucket": "no-such-bucket"}, "404"),
    (REPLICATION, lambda world: {"bucket": services.bucket(world)}, "InvalidRequest"),
    (REPLICATION, {"role": "arn:aws:iam::111122223333:role/nobody"}, "NoSuchEntity"),
    (REPLICATION, lambda world: {"role": world.role}, "InvalidRequest"),
    (REPLICATION, lambda world: {"rules": [copied(world, destination=to("no-such-bucket"))]}, "InvalidRequest"),
    (
        REPLICATION,
        lambda world: {"rules": [copied(world, destination=to(services.bucket(world.abroad)))]},
        "InvalidRequest",
    ),
    (REPLICATION, misplaced_key, "NotFoundException"),
)


@pytest.mark.parametrize(("token", "spoiled", "code"), REFUSALS)
def test_copies_that_aws_refuses_are_refused(token: str, spoiled: Given, code: str, world: World) -> None:
    """What is missing at either end of a copy is refused with AWS's own code."""
    inputs = inputs_of(token, world, spoiled)

    with pytest.raises(Refusal) as refused:
        KINDS[token].create(world.aws, inputs)

    assert refused.value.code == code


def unmarked(world: World) -> dict[str, Any]:
    """Return a rule with a filter that leaves delete markers open."""
    rule = copied(world)
    del rule["deleteMarkerReplication"]
    return {"rules": [rule]}


# What spoils the rules of a replication, and the input that the complaint names.
COMPLAINTS: tuple[tuple[Given, str], ...] = (
    (lambda world: {"rules": [copied(world, status="On")]}, "rules.status"),
    (lambda world: {"rules": [copied(world), copied(world)]}, "rules"),
    (unmarked, "rules[0]"),
    (lambda world: {"rules": [copied(world, filter=None)]}, "rules[0]"),
    (lambda world: {"rules": [copied(world, destination={"bucket": "bare-name"})]}, "rules[0]"),
    (lambda world: {"rules": [{**encrypted(world), "sourceSelectionCriteria": None}]}, "rules[0]"),
    (
        lambda world: {"rules": [copied(world, destination=to("x", replicationTime={"status": "Enabled"}))]},
        "rules[0]",
    ),
)


@pytest.mark.parametrize(("spoiled", "key"), COMPLAINTS)
def test_rules_of_a_replication_go_together(spoiled: Given, key: str, world: World) -> None:
    """A rule that S3 would not take is told before anything is made, and nothing else is."""
    inputs = inputs_of(REPLICATION, world, spoiled)

    complaints = list(KINDS[REPLICATION].complaints(world.aws, inputs))

    assert [each.key for each in complaints] == [key]


def test_two_buckets_may_copy_to_one_another(world: World) -> None:
    """Replication both ways is two configurations, each of its own bucket."""
    near, far = versioned(world), versioned(world.abroad)
    role = inputs_of(REPLICATION, world, {})["role"]

    for here, bucket, other in ((world, near, far), (world.abroad, far, near)):
        rules = [copied(world, destination=to(other))]
        assert KINDS[REPLICATION].create(here.aws, {"bucket": bucket, "role": role, "rules": rules}) == bucket


def test_a_filter_may_have_several_parts(world: World) -> None:
    """A prefix and tags together are sent as S3 wants them: tags in a list."""
    both = {"and": {"prefix": "runs/", "tags": {"kind": "result"}}}
    inputs = inputs_of(REPLICATION, world, {"rules": [copied(world, filter=both)]})

    assert list(KINDS[REPLICATION].complaints(world.aws, inputs)) == []
    assert KINDS[REPLICATION].create(world.aws, inputs) == inputs["bucket"]
