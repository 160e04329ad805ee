"""Subscriptions of topics: what SNS would not take, and who still has to say yes."""

from collections.abc import Iterator

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws, running

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
