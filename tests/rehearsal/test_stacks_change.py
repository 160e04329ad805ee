"""A change of the fleet file changes only its own resources in existing stacks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, destroy, run
from bedplate.rehearsal.state import Op
from tests.testlab.rehearsal.programs import plan_of

PAIR = """
version: 1
name: pair
account: "111122223333"
owner: ada@lab.example
domain: pair.internal
network: {supernet: 10.64.0.0/10}
regions:
  us-west-2: {home: true, zones: [us-west-2a, us-west-2b]}
  us-east-1: {zones: [us-east-1a]}
groups:
  box:
    use: ssh
    types: [g6.xlarge]
    nodes: {min: 0, max: 4}
    ladder: [{region: us-west-2}]
  sim:
    use: ssh
    types: [c7i.large, m7i.large]
    nodes: {min: 0, max: 8}
    ladder: [{region: us-west-2, market: spot}, {region: us-east-1}]
storage:
  home: {kind: efs, region: us-west-2, mount: /home}
  data: {kind: s3, regions: [us-west-2, us-east-1]}
"""
# Policies of nodes contain every bucket, policies of all roles every region.
ROLES = {"pair-ssh", "pair-kubernetes"}
# Text in the file, text inserted before it, a word in the names of all new resources, and the updated resources.
EDITS = {
    "a zone": (
        "us-west-2a,",
        "us-west-2c, ",
        "us-west-2c",
        {"pair", "pair-box-us-west-2", "pair-sim-us-west-2-spot", "pair-home.files.us-west-2"},
    ),
    "a region": (
        "us-east-1: {",
        "eu-north-1: {zones: [eu-north-1a]}\n  ",
        "eu-north-1",
        {*ROLES, "pair-gateway", "pair-flows"},
    ),
    "a rung": ("{region: us-west-2}]", "{region: us-east-1}, ", "pair-box-us-east-1", {"pair-ssh-names"}),
    "a store": ("home: {kind", "logs: {kind: s3, regions: [us-east-1]}\n  ", "pair-logs", ROLES),
}


@dataclass(frozen=True)
class DeployedFleet:
    """A fleet with deployed stacks in the simulated AWS."""

    plan: FleetPlan
    world: SharedState
    file: Path

    def edited(self, text: str) -> FleetPlan:
        """Return the plan of another fleet file with the lock of the first."""
        self.file.write_text(text, encoding="utf-8")
        return plan_of(self.file, self.plan.recorded())

    def touched_by(self, plan: FleetPlan) -> dict[Op, set[str]]:
        """Return the names of the resources that each operation would change."""
        touched: dict[Op, set[str]] = {}
        for stack in (stack for wave in waves(plan) for stack in wave if stack.name in self.world.snapshots):
            result = run(stack, self.world, preview=True)
            for step in result.steps:
                if step.is_change and step.is_in_cloud:
                    touched.setdefault(step.op, set()).add(urns.parse_urn(step.urn).name)
        return touched


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedFleet]:
    """Return a deployed fleet of two regions."""
    file = tmp_path_factory.mktemp("pair") / "fleet.yaml"
    file.write_text(PAIR, encoding="utf-8")
    plan = plan_of(file)
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        failures = [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        assert not failures
        yield DeployedFleet(plan, world, file)


def test_a_second_run_changes_nothing(live: DeployedFleet) -> None:
    """A preview after the deployment has no changes."""
    assert live.touched_by(live.plan) == {}


def test_the_order_in_the_file_does_not_matter(live: DeployedFleet) -> None:
    """Reversed zones, regions, groups and stores are the same resources.

    Only the regions of a bucket have an order: the first is the source.
    """
    reordered = replace(
        live.plan,
        regions=tuple(replace(region, zones=region.zones[::-1]) for region in live.plan.regions[::-1]),
        pools=tuple(replace(pool, zones=pool.zones[::-1]) for pool in live.plan.pools[::-1]),
        files=live.plan.files[::-1],
        buckets=tuple(sorted(live.plan.buckets, key=lambda bucket: bucket.store, reverse=True)),
    )

    assert live.touched_by(reordered) == {}


@pytest.mark.parametrize(("before", "added", "word", "updated"), EDITS.values(), ids=EDITS.keys())
def test_an_addition_changes_no_other_resource(
    before: str, added: str, word: str, updated: set[str], live: DeployedFleet
) -> None:
    """A zone, region, rung or store creates resources; only policies and groups that contain it are updated."""
    touched = live.touched_by(live.edited(PAIR.replace(before, added + before, 1)))

    assert all(word in name for name in touched[Op.CREATE])
    assert touched.get(Op.UPDATE, set()) == updated
    assert set(touched) <= {Op.CREATE, Op.UPDATE}


def test_a_new_region_requires_an_update_of_shared_first(live: DeployedFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles in shared permit calls in the regions of its last deployment only."""
    plan = live.edited(PAIR.replace("us-east-1: {", "eu-north-1: {zones: [eu-north-1a]}\n  us-east-1: {", 1))
    stack = next(stack for wave in waves(plan) for stack in wave if stack.name == "pair.eu-north-1")
    shared = "organization/bedplate/pair.shared"

    refused = run(stack, live.world, preview=True)
    regions = [region.name for region in plan.regions]
    monkeypatch.setitem(live.world.exports, shared, {**live.world.exports[shared], "regions": regions})
    permitted = run(stack, live.world, preview=True)

    message = (
        "the stack pair.shared has no eu-north-1 in its output regions yet\nrun `bedplate up --stack shared` first"
    )
    assert [(failure.code, failure.message) for failure in refused.failures] == [("InputError", message)]
    assert not permitted.failures


def test_a_missing_output_of_shared_names_the_stack(live: DeployedFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a partial deployment of shared, the next stack tells which stack to run."""
    stack = next(stack for wave in waves(live.plan) for stack in wave if stack.name == "pair.us-west-2")
    shared = "organization/bedplate/pair.shared"
    outputs = {name: value for name, value in live.world.exports[shared].items() if name != "parameter_key_arn"}
    monkeypatch.setitem(live.world.exports, shared, outputs)

    (failure,) = run(stack, live.world, preview=True).failures

    message = "the stack pair.shared has no output parameter_key_arn yet\nrun `bedplate up --stack shared` first"
    assert (failure.code, failure.message) == ("InputError", message)


def test_destroying_a_fleet_retains_its_data(live: DeployedFleet) -> None:
    """File systems, buckets and keys stay; everything else is deleted."""
    stacks = [stack for wave in waves(live.plan) for stack in wave]

    retained = [entry for stack in stacks[::-1] for entry in destroy(stack, live.world).snapshot.entries.values()]

    assert {entry.name for entry in retained if entry.is_in_cloud} == {
        "pair-alarms",
        "pair-nodes",
        "pair-data",
        "pair-home",
        "pair-parameters",
    }
