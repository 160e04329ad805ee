"""Tests of whole rehearsals: stacks in waves are created, run again, changed and destroyed."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import Output, ResourceOptions, StackReference

from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.rehearse import Course, Phase, Report, Wave, document, rehearse
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, Stack
from bedplate.rehearsal.stack import run as run_stack
from bedplate.rehearsal.state import Op
from stacks.compute.template import image_reference
from tests.testlab.rehearsal.programs import ACCOUNT, parameter, vpc

REGIONS = ("us-east-1", "us-west-2", "eu-north-1", "eu-west-1")


def _shared() -> None:
    parameter("shared")
    pulumi.export("secret", Output.secret("s3cr3t"))


def _regional(region: str, size: int = 1) -> None:
    kept = parameter("kept", opts=ResourceOptions(protect=True))
    secret = StackReference("organization/lab/lab.shared").require_output("secret")
    for n in range(size):
        parameter(f"{region}-{n}", Output.concat(kept.name, secret))
    pulumi.export("region", region)


def _stack(name: str, program: Callable[[], None], region: str = "us-west-2") -> Stack:
    return Stack(f"lab.{name}", "lab", program, default_provider=DefaultProvider(region))


def _waves(size: int = 1, regions: tuple[str, ...] = REGIONS) -> list[list[Stack]]:
    return [[_stack("shared", _shared)], [_stack(name, partial(_regional, name, size), name) for name in regions]]


@pytest.fixture(scope="module")
def report() -> Report:
    """Rehearse four regions; the change adds a resource to each and removes one region."""
    changed = _waves(2, REGIONS[1:])
    removed = Wave(_waves()[1][:1], destroys=True)
    return rehearse(ACCOUNT, _waves(), Course([*map(Wave, changed), removed], changed[::-1]))


def _counts(report: Report, phase: Phase, op: Op) -> list[int]:
    return [stack.count(phase, op) for stack in report.stacks]


def test_every_phase_takes_its_steps(report: Report) -> None:
    """The second run changes nothing, the change creates new resources, destroy deletes the unprotected ones."""
    assert _counts(report, Phase.CREATE, Op.CREATE) == [1, 2, 2, 2, 2]
    assert _counts(report, Phase.AGAIN, Op.SAME) == [1, 2, 2, 2, 2]
    assert _counts(report, Phase.CHANGE, Op.CREATE) == [0, 0, 1, 1, 1]
    assert _counts(report, Phase.DESTROY, Op.DELETE) == [1, 0, 2, 2, 2]
    assert report.ok


def test_the_change_destroys_a_removed_stack(report: Report) -> None:
    """If a changed fleet lacks a region, its resources are deleted, except protected ones."""
    (removed,) = [stack for stack in report.stacks if stack.name == "lab.us-east-1"]

    assert [step.op for step in removed.changes(Phase.CHANGE) if step.is_in_cloud] == [Op.DELETE]


def test_the_report_names_kept_resources(report: Report) -> None:
    """A report names the protected resources that destroy kept."""
    kept = {stack.name: len(stack.kept) for stack in report.stacks}

    assert kept == {"lab.shared": 0, **{f"lab.{region}": 1 for region in REGIONS}}


def test_no_report_shows_a_secret(report: Report) -> None:
    """Neither the document of a rehearsal nor the repr of its values contains a secret."""
    assert "s3cr3t" not in str(document(report))
    assert "s3cr3t" not in repr(report)


def test_a_failure_ends_with_destroy() -> None:
    """After a failure, no further wave runs, and the created resources are destroyed."""

    def broken() -> None:
        parameter("made")
        raise LookupError

    report = rehearse(ACCOUNT, [[_stack("broken", broken)], [_stack("later", _shared)]])

    (broken_stack,) = [stack for stack in report.stacks if Phase.CREATE in stack.runs]
    assert broken_stack.name == "lab.broken"
    assert broken_stack.count(Phase.DESTROY, Op.DELETE) == 1
    assert not report.ok


def test_each_step_is_reported_to_the_callback() -> None:
    """The callback receives each step with its stack and phase."""
    calls = []

    report = rehearse(ACCOUNT, [[_stack("shared", _shared)]], watch=lambda *call: calls.append(call))

    steps = {(name, phase, step.op) for name, phase, step in calls if step.is_in_cloud}
    assert steps == {
        ("lab.shared", Phase.CREATE, Op.CREATE),
        ("lab.shared", Phase.AGAIN, Op.SAME),
        ("lab.shared", Phase.DESTROY, Op.DELETE),
    }
    assert report.ok


def test_parallel_stacks_do_not_mix() -> None:
    """In 20 rounds of four threads, each stack creates its own resources in its own region."""
    with running(ACCOUNT) as simulation:
        for number in range(20):
            world = SharedState(simulation)
            wave = [_stack(region, partial(_three_parameters, f"{region}-{number}"), region) for region in REGIONS]
            threads = [threading.Thread(target=run_stack, args=(stack, world)) for stack in wave]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            regions = {
                name: [entry.outputs["region"] for entry in snapshot.entries.values() if entry.is_in_cloud]
                for name, snapshot in world.snapshots.items()
            }
            assert regions == {f"lab.{region}": [region] * 3 for region in REGIONS}


def _three_parameters(prefix: str) -> None:
    first = parameter(f"{prefix}-a")
    second = parameter(f"{prefix}-b", first.name)
    parameter(f"{prefix}-c", second.name.apply(lambda name: f"{name}!"))
    pulumi.export("prefix", prefix)


def _zone(domain: str, *, force_destroy: bool) -> None:
    vpcs = [aws.route53.ZoneVpcArgs(vpc_id=vpc("lab").id)]
    aws.route53.Zone("lab", name=domain, vpcs=vpcs, force_destroy=force_destroy)


@pytest.mark.parametrize(
    ("force_destroy", "phases"), [(True, set()), (False, {Phase.CHANGE, Phase.DESTROY})], ids=["forced", "plain"]
)
def test_nodes_register_names_before_a_zone_is_replaced_and_destroyed(
    phases: set[Phase], *, force_destroy: bool
) -> None:
    """A private zone with records of nodes can be deleted only with force_destroy."""
    old, new = (
        replace(_stack("zone", partial(_zone, domain, force_destroy=force_destroy)), node_zone=domain)
        for domain in ("lab.internal", "lab.example")
    )

    report = rehearse(ACCOUNT, [[old]], Course([Wave([new])]))

    (stack,) = report.stacks
    assert {phase for phase, result in stack.runs.items() if result.failures} == phases


def _group_in(zones: str, suspended: tuple[str, ...] = ()) -> aws.autoscaling.Group:
    """Declare a group of two instances with a subnet in each zone."""
    network = vpc("scaled").id
    subnets = [
        aws.ec2.Subnet(zone, vpc_id=network, cidr_block=f"10.1.{ord(zone)}.0/24", availability_zone=f"us-west-2{zone}")
        for zone in zones
    ]
    template = aws.ec2.LaunchTemplate("scaled", image_id=image_reference("x86_64"), instance_type="m7i.large")
    return aws.autoscaling.Group(
        "scaled",
        min_size=2,
        max_size=2,
        vpc_zone_identifiers=[subnet.id for subnet in subnets],
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        suspended_processes=list(suspended),
    )


@pytest.mark.parametrize(
    ("suspended", "codes"), [(("AZRebalance",), ["DependencyViolation"]), ((), [])], ids=["stay", "move"]
)
def test_a_zone_with_instances_cannot_be_removed(suspended: tuple[str, ...], codes: list[str]) -> None:
    """Auto Scaling replaces the instances of a removed zone, unless AZRebalance is suspended."""
    before, after = ([_stack("region", partial(_group_in, zones, suspended))] for zones in ("ab", "a"))

    report = rehearse(ACCOUNT, [before], Course([Wave(after)]))

    assert [failure.code for stack in report.stacks for failure in stack.runs[Phase.CHANGE].failures] == codes


def _scheduled(recurrence: str, options: ResourceOptions | None) -> None:
    """Declare a group and a recurring action."""
    group = _group_in("a").name
    args = {"min_size": 0, "max_size": -1, "desired_capacity": 0, "recurrence": recurrence}
    aws.autoscaling.Schedule("stop", autoscaling_group_name=group, scheduled_action_name="stop", opts=options, **args)


@pytest.mark.parametrize(
    ("options", "codes"),
    [(None, ["ValidationError"]), (ResourceOptions(replace_on_changes=["*"], delete_before_replace=True), [])],
    ids=["update", "replace"],
)
def test_a_recurring_action_is_replaced_a_day_after_its_creation(
    options: ResourceOptions | None, codes: list[str]
) -> None:
    """An update contains the start time in the state, which is past by then."""
    before, after = ([_stack("region", partial(_scheduled, cron, options))] for cron in ("0 20 * * *", "0 21 * * *"))

    report = rehearse(ACCOUNT, [before], Course([Wave(after)]))

    assert [failure.code for stack in report.stacks for failure in stack.runs[Phase.CHANGE].failures] == codes
