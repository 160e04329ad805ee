"""What an edit is seen to do to a fleet that lives in the simulated AWS, by the steps that it would take."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bedplate.load import FleetFaults
from bedplate.lock import LockRefused
from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.snapshot import Snapshot
from bedplate.rehearsal.stack import Run
from bedplate.rehearsal.step import PROTECTED, PROTECTED_IN_PLACE, Op
from bedplate.update.effect import Effect
from tests.support.lived import Lived

# What somebody works on, keeps something in or reaches something by, so that its going is noticed. All else, as tags,
# alarms, permissions and rules, is made anew within the minute.
_MISSED: Mapping[str, str] = {
    "autoscaling/group:Group": "machines",
    "ec2/customerGateway:CustomerGateway": "a site's end",
    "ec2/instance:Instance": "a machine",
    "ec2/natGateway:NatGateway": "a way out",
    "ec2/subnet:Subnet": "a network",
    "ec2/transitGatewayRoute:TransitGatewayRoute": "a route",
    "ec2/vpc:Vpc": "a network",
    "ec2/vpcPeeringConnection:VpcPeeringConnection": "a link",
    "ec2/vpnConnection:VpnConnection": "a connection",
    "ec2transitgateway/peeringAttachment:PeeringAttachment": "a link",
    "route53/resolverRule:ResolverRule": "forwarding",
    "route53/zone:Zone": "names",
    "s3/bucketReplicationConfig:BucketReplicationConfig": "copies",
}
_GROUP = "autoscaling/group:Group"
_STARTED_WITH = {"launchTemplate", "mixedInstancesPolicy"}
# The account, what protects data, the lock, and the plan's refusals to move what is recorded.
_REFUSALS = {PROTECTED, PROTECTED_IN_PLACE, "InvalidAccount"}
_REFUSING_RULES = {"E231", "E233"}


def observed(lived: Lived, before: str, after: str) -> Effect:
    """Return the hardest thing that an edit does to what lives; a plan that stays the same makes the same of it."""
    try:
        plan = lived.replanned(before, after)
    except LockRefused:
        return Effect.REFUSED
    except FleetFaults as refused:
        if _REFUSING_RULES.isdisjoint(fault.code for fault in refused.faults):
            raise
        return Effect.REFUSED
    assert lived.replanned(before, before) == lived.plan
    return Effect.FREE if plan == lived.plan else seen(lived.world.snapshots, lived.previews(plan))


def seen(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Effect:
    """Return the hardest thing that runs over stacks do; a stack without a run goes."""
    failed = {failure.code for run in runs.values() for failure in run.failures if not failure.skipped}
    if failed & _REFUSALS:
        return Effect.REFUSED
    assert not failed, failed
    effects = [effect for name, run in runs.items() for effect in _changes(snapshots.get(name, Snapshot()), run)]
    return max((*effects, _passing(snapshots, runs)), key=lambda effect: effect.weight)


def _passing(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Effect:
    """Tell whether anything goes, and whether something of its kind comes in its stead."""
    moved = {"a way out"} if _led_elsewhere(runs) else set[str]()
    gone, come = moved.union(_missed(_deleted(snapshots, runs))), moved.union(_missed(_made(runs)))
    if not gone:
        return Effect.FREE
    return Effect.REPLACES if gone <= come else Effect.REMOVES


def _deleted(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Iterator[str]:
    yield from (step.urn for run in runs.values() for step in run.steps if step.op in (Op.DELETE, Op.REPLACE))
    yield from (urn for name in snapshots.keys() - runs.keys() for urn in snapshots[name].entries)


def _led_elsewhere(runs: Mapping[str, Run]) -> bool:
    """Tell whether nodes leave by another gateway than before: what they had open ends, and their address is new."""
    steps = (step for run in runs.values() for step in run.steps)
    return any(step.op is Op.UPDATE and "natGatewayId" in step.keys for step in steps)


def _made(runs: Mapping[str, Run]) -> Iterator[str]:
    yield from (step.urn for run in runs.values() for step in run.steps if step.op in (Op.CREATE, Op.REPLACE))


def _missed(resources: Iterable[str]) -> Iterator[str]:
    types = (urns.parse(urn).type.removeprefix("aws:") for urn in resources)
    yield from (_MISSED[token] for token in types if token in _MISSED)


def _changes(before: Snapshot, run: Run) -> Iterator[Effect]:
    """Yield what updates of groups do to their machines."""
    for step in run.steps:
        if step.op is Op.UPDATE and urns.parse(step.urn).type == f"aws:{_GROUP}":
            yield _change(step.keys, before.entries[step.urn].inputs, run.snapshot.entries[step.urn].inputs)


def _change(keys: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]) -> Effect:
    """Return what becomes of a group's machines; AWS ends those above a maximum that is lowered."""
    if after["maxSize"] < before["maxSize"]:
        return Effect.REMOVES
    if _STARTED_WITH.isdisjoint(keys):
        return Effect.FREE
    return Effect.ROLLING if after.get("instanceRefresh") else Effect.NEW_NODES
