"""Launches as public reports describe them: the code of AWS's text, and when the planner uses the next rung."""

from dataclasses import replace

import pytest

from bedplate.capacity.controller import Round, round_warnings
from bedplate.capacity.ladder import next_actions
from bedplate.capacity.observation import Activity, Decision, Machine, Observation, SetDesired, failure_code
from bedplate.capacity.planner import Memory, decide
from bedplate.report.capacity import breaker_sentences
from tests.unit.test_capacity_planner import EAST, NOW, WEST, _pods, _sizes

INTERNAL = (
    "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
    "Client.InternalError: Client error on launch"
)
# The text of a launch, its code, and where it was reported.
TEXTS = [
    (
        (
            "You have requested more instances (7) than your current instance limit of 6 allows for the specified "
            "instance type. Launching EC2 instance failed."
        ),
        "InstanceLimitExceeded",
        "https://github.com/kubernetes/autoscaler/issues/1263",
    ),
    (INTERNAL, "InvalidKMSKey", "https://github.com/kubernetes/kops/issues/11545"),
    (
        "Max spot instance count exceeded. Launching EC2 instance failed.",
        "MaxSpotInstanceCountExceeded",
        "https://github.com/aws-deepracer-community/deepracer-on-the-spot/issues/55",
    ),
    (
        "One or more of the attached Amazon EBS volumes are encrypted with an inaccessible AWS KMS key.",
        "InvalidKMSKey",
        "https://github.com/aws/aws-cdk/issues/34491",
    ),
    (
        "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
        "InvalidKMSKey",
        "https://github.com/CiscoDevNet/cloud-cml/issues/8",
    ),
    (
        (
            "In order to use this AWS Marketplace product you need to accept terms and subscribe. To do so please "
            "visit https://aws.amazon.com/marketplace/pp?sku=14onryp2ljrzlajty34nw8o2z. Launching EC2 instance failed."
        ),
        "OptInRequired",
        "https://github.com/ansible/ansible/issues/43375",
    ),
    (
        "Not authorized for images: [ami-09e4f25ec992c94ab]. Launching EC2 instance failed.",
        "InvalidAMIID",
        "https://github.com/fortinet/fortigate-autoscale/issues/5",
    ),
    (
        "AMI ami-327f5352 is invalid: The image id '[ami-327f5352]' does not exist",
        "InvalidAMIID",
        "https://github.com/benishak/lamp-aws-cloudformation/issues/1",
    ),
    (
        "Your account is currently being verified. Verification normally takes less than 2 hours.",
        "PendingVerification",
        "https://github.com/galaxyproject/cloudlaunch/issues/150",
    ),
    (
        (
            "This account is currently blocked and not recognized as a valid account. Please contact "
            "aws-verification@amazon.com if you have questions."
        ),
        "Blocked",
        "https://github.com/thecodeteam/labs/issues/43",
    ),
    (
        "You must use a valid fully-formed launch template. The key pair 'eksctl-ng-hiram' does not exist",
        "InvalidKeyPair",
        "https://github.com/eksctl-io/eksctl/issues/1989",
    ),
    (
        "You are not authorized to perform this operation. Encoded authorization failure message: ixPqZPsDYfQYC1Kcp",
        "UnauthorizedOperation",
        "https://github.com/hashicorp/terraform-provider-aws/issues/8720",
    ),
    (
        "The security group 'sg-03f14413d08de5f1d' does not exist. Launching EC2 instance failed.",
        "InvalidNetwork",
        "https://github.com/galaxyproject/cloudlaunch/issues/174",
    ),
    (
        (
            "The requested configuration is currently not supported. Please check the documentation for supported "
            "configurations. Launching EC2 instance failed."
        ),
        "Unsupported",
        (
            "https://github.com/aws-solutions-library-samples/"
            "guidance-for-secure-blockchain-validation-using-aws-nitro-enclaves/issues/1"
        ),
    ),
    (
        "Insufficient capacity. Launching EC2 instance failed.",
        "InsufficientInstanceCapacity",
        "https://github.com/aws/aws-parallelcluster/issues/618",
    ),
    (
        "There is no Spot capacity available that matches your request. Launching EC2 instance failed.",
        "InsufficientInstanceCapacity",
        "https://github.com/aws/aws-parallelcluster/issues/1944",
    ),
    (
        "The placement group 'null' is in use in another availability zone: null. Launching EC2 instance failed.",
        "InvalidNetwork",
        "https://github.com/hashicorp/terraform/issues/8064",
    ),
    (
        "You must use a valid fully-formed launch template. The request must contain the parameter MarketType.",
        None,
        "https://github.com/spinnaker/spinnaker/issues/6114",
    ),
    (
        "UnsupportedOperation: The Launch Configuration creation operation is not available in your account.",
        None,
        "https://github.com/infrablocks/terraform-aws-bastion/issues/123",
    ),
]


@pytest.mark.parametrize(("text", "code", "source"), TEXTS, ids=[source for *_, source in TEXTS])
def test_reported_texts_have_a_cause(text: str, code: str | None, source: str) -> None:
    """Quota, account, permission, image, key, network and market: each family has its code, so its fix."""
    assert failure_code(text) == code, source


def _spill(text: str, period: float, alive: float, has_machine: bool = True) -> tuple[float | None, int, Memory]:  # noqa: FBT001, FBT002
    """Return when the second rung was raised, how many launches the first one had, and the memory.

    AWS launches each `period` seconds; an instance exists for `alive` seconds, then its launch has failed.
    """
    memory, desired = Memory(), {"west": 0, "east": 0}
    starts: list[float] = []
    for time in range(0, 4 * 3600, 30):
        now = NOW + time
        if desired["west"] and (not starts or now - starts[-1] >= period):
            starts.append(now)
        launches, machines = [], []
        for number, start in enumerate(starts):
            is_alive = now < start + alive
            name = f"i-{number}" if has_machine and alive else None
            failure = {} if is_alive else {"code": failure_code(text), "text": text, "ended": start + alive}
            launches.append(Activity(f"a{number}", "west", start, ok=is_alive, machine=name, **failure))  # type: ignore[arg-type]
            machines += [Machine(f"i-{number}", "west", WEST.zones[0], start)] if is_alive else []
        pools = tuple(replace(pool, desired=desired[pool.name]) for pool in (WEST, EAST))
        seen = Observation(now, _pods(1), (), tuple(machines), pools, tuple(reversed(launches[-100:])))
        decision, memory = decide(seen, memory)
        for action in decision.actions:
            if isinstance(action, SetDesired):
                desired[action.pool] = action.count
        if desired["east"]:
            return time, len(starts), memory
    return None, len(starts), memory


@pytest.mark.parametrize("has_machine", [True, False], ids=["AWS names the instance", "AWS names none"])
@pytest.mark.parametrize("text", [INTERNAL, "Something that no table has."])
@pytest.mark.parametrize(("period", "alive"), [(60, 30), (120, 60), (240, 30), (240, 10)])
def test_a_rung_whose_machines_start_and_die_is_left(period: float, alive: float, text: str, has_machine: bool) -> None:  # noqa: FBT001
    """After three in a row, whatever the text. Source: https://github.com/hashicorp/terraform-provider-aws/issues/8422."""
    spilled, launches, memory = _spill(text, period, alive, has_machine)
    assert spilled is not None
    assert spilled <= 2 * period + alive + 60
    assert launches <= 4
    assert memory.breakers["west"].text == text


def test_a_used_quota_spills_at_once() -> None:
    """The next rung follows in the next round, and the breaker keeps AWS's text with the quota as its cause."""
    spilled, launches, memory = _spill(TEXTS[0][0], 90, 0)
    assert (spilled, launches) == (30, 1)
    shown = breaker_sentences(memory.breakers["west"], NOW + 60)
    assert 'the instance quota is used up (InstanceLimitExceeded). AWS: "You have requested more instances' in shown
    assert "`bedplate quotas`" in shown


def test_a_used_spot_quota_spills_at_once() -> None:
    """The next rung follows in the next round. Report: aws-deepracer-community/deepracer-on-the-spot#55."""
    text = "Max spot instance count exceeded. Launching EC2 instance failed."
    spilled, launches, memory = _spill(text, 90, 0)
    assert (spilled, launches, memory.breakers["west"].code) == (30, 1, "MaxSpotInstanceCountExceeded")


def test_an_unknown_text_is_kept() -> None:
    """The text of a launch that failed for an unknown reason is shown while its rung is skipped."""
    spilled, _, memory = _spill("A new text of AWS.", 90, 0)
    assert spilled is not None
    assert spilled <= 300
    assert 'AWS: "A new text of AWS."' in breaker_sentences(memory.breakers["west"], NOW + 400)


def _refused(code: str) -> tuple[Observation, Decision]:
    failure = Activity("1", "west", NOW - 10, ok=False, code=code)
    seen = Observation(NOW, _pods(2), pools=(replace(WEST, desired=2), EAST), activities=(failure,))
    return seen, decide(seen, Memory())[0]


@pytest.mark.parametrize("code", ["Blocked", "UnauthorizedOperation", "OptInRequired"])
def test_a_fault_that_all_regions_have_does_not_climb(code: str) -> None:
    """The other rungs launch nothing, pods say why, and an operator is told; the first rung is probed."""
    seen, decision = _refused(code)
    assert _sizes(decision.actions) == {"west": 0}
    assert "as in all regions" in decision.waiting[0].reason
    assert len(decision.faults) == 1
    assert round_warnings(Round(seen, decision)) == decision.faults


@pytest.mark.parametrize("code", ["InvalidAMIID", "InvalidKMSKey", "InvalidNetwork"])
def test_a_fault_of_one_region_climbs_and_is_told(code: str) -> None:
    """An image, key or network belongs to a region: the next one may have it."""
    _, decision = _refused(code)
    assert _sizes(decision.actions) == {"west": 0, "east": 2}
    assert len(decision.faults) == 1


def test_a_shortage_is_no_fault() -> None:
    """Nobody is woken for capacity."""
    assert not _refused("InsufficientInstanceCapacity")[1].faults


def test_a_group_whose_launches_are_suspended_is_passed() -> None:
    """At once, with the reason. Source: https://github.com/kubernetes/autoscaler/issues/5591."""
    pools = (replace(WEST, suspended=("Launch",)), EAST)
    decision, _ = decide(Observation(NOW, _pods(1), pools=pools), Memory())
    assert _sizes(decision.actions) == {"east": 1}
    started = next_actions(Observation(NOW, pools=pools), 1, {})
    assert [action.pool for action in started.actions] == ["east"]
    assert "suspended its process Launch" in started.actions[0].reason
