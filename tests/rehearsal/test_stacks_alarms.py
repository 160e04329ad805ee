"""Alarms: what rings, whom it reaches, and who may ring."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bedplate.rehearsal.report import Phase
from bedplate.rehearsal.snapshot import Entry
from bedplate.spec.network import Egress
from tests.support.declared import EXAMPLES, Declared, declared, declared_of, plan_of
from tests.support.reached import report_of

LAB = plan_of(EXAMPLES / "lab.yaml")
SOLO = plan_of(EXAMPLES / "minimal.yaml")
TOLD = "infra@lab.example"
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
GROUP = "aws:autoscaling/group:Group"
NAT = "aws:ec2/natGateway:NatGateway"
TOPIC = "aws:sns/topic:Topic"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared_of(EXAMPLES / "lab.yaml")


def _named(stacks: Declared, kind: str) -> dict[tuple[str, str], Entry]:
    return {(stack, one.name): one for stack, entries in stacks.items() for one in entries if one.type == kind}


def _statements(text: str) -> Mapping[str, Any]:
    return {statement["Sid"]: statement for statement in json.loads(text)["Statement"]}


@pytest.mark.parametrize(("watched", "suffix"), [(GROUP, "-short"), (NAT, "-ports")])
def test_each_group_and_each_nat_gateway_has_its_alarm(watched: str, suffix: str, stacks: Declared) -> None:
    """None is forgotten, the gateways of laptops included, and no alarm watches nothing."""
    names = {(stack, f"{name}{suffix}") for stack, name in _named(stacks, watched)}

    assert names
    assert names == {key for key in _named(stacks, ALARM) if key[1].endswith(suffix)}


def test_a_group_is_watched_by_metrics_that_it_collects(stacks: Declared) -> None:
    """A group collects no metrics unless it is told to, and an alarm on none never rings."""
    queries = [query for one in _named(stacks, ALARM).values() for query in one.inputs.get("metricQueries", ())]
    watched = {query["metric"]["metricName"] for query in queries if "metric" in query}

    assert watched == {"GroupDesiredCapacity", "GroupInServiceInstances"}
    assert all(watched <= set(group.inputs["enabledMetrics"]) for group in _named(stacks, GROUP).values())


def test_no_alarm_without_a_nat_gateway() -> None:
    """Where nodes stay inside, no port can run out."""
    stacks = declared(replace(SOLO, egress=Egress.NONE))

    assert not [name for _, name in _named(stacks, ALARM) if name.endswith("-ports")]


def test_only_cloudwatch_for_this_account_may_ring(stacks: Declared) -> None:
    """The topic, and the key that encrypts what goes through it, trust the service for one account alone."""
    topics = _named(stacks, TOPIC)

    assert {stack for stack, _ in topics} == {f"lab.{region.name}" for region in LAB.regions}
    for (stack, name), topic in topics.items():
        key = _named(stacks, "aws:kms/key:Key")[stack, name]
        for ring in (_statements(topic.inputs["policy"])["Ring"], _statements(key.inputs["policy"])["RingEncrypted"]):
            assert ring["Principal"] == {"Service": ["cloudwatch.amazonaws.com"]}
            assert ring["Condition"] == {"StringEquals": {"aws:SourceAccount": [LAB.account]}}


def test_nobody_is_told_unless_named(stacks: Declared) -> None:
    """Alarms stand all the same; somebody named is told in each region."""
    told = _named(declared(replace(LAB, alarms=TOLD)), SUBSCRIPTION)

    assert not _named(stacks, SUBSCRIPTION)
    assert {stack for stack, _ in told} == {f"lab.{region.name}" for region in LAB.regions}
    assert all((one.inputs["protocol"], one.inputs["endpoint"]) == ("email", TOLD) for one in told.values())


def test_every_alarm_rings_the_topic_of_its_own_region() -> None:
    """Tunnels' alarms too, which `links` makes: CloudWatch reaches no topic of another region."""
    report = report_of("two sites")

    made = [one for stack in report.stacks for one in stack.runs[Phase.CREATE].snapshot.entries.values()]
    rung = {one.name: one.inputs["alarmActions"] + one.inputs["okActions"] for one in made if one.type == ALARM}
    topics = {one.outputs["arn"].split(":")[3]: one.outputs["arn"] for one in made if one.type == TOPIC}
    assert len(topics) == 2
    for region, topic in topics.items():
        assert rung[f"lab-cellar-{region}-tunnel-down"] == [topic, topic]
    assert all(len(set(rings)) == 1 and rings[0] in topics.values() for rings in rung.values())
