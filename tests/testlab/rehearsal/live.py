"""Fleets that live in the simulated AWS, and the edits of their files that a table lists."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import planned
from bedplate.cli.stacks import waves
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import LockRefused, lock_path, record_plan
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.ec2 import Noun, described, is_live
from bedplate.rehearsal.rehearse import Phase, Report, rehearse
from bedplate.rehearsal.simulation import Aws, running
from bedplate.rehearsal.stack import Run, Stack, World, graph, run
from bedplate.rehearsal.state import PROTECTED, PROTECTED_IN_PLACE, Op, Snapshot
from bedplate.rehearsal.wire import holds_unknown
from bedplate.spec import Fleet
from bedplate.update.policies import Effect
from tests.testlab.fleets.sketch import LANS, ZONES, cluster, group, laptops, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

TABLES = Path(__file__).parents[2] / "data" / "updates"


Change = Mapping[str, str]
# Stands for what AWS gives: the stacks that read it ask for addresses.
_TOLD = "10.64.0.9"


@dataclass(frozen=True)
class Row:
    """One edit of a table: the promise that it meets, as `key event`, the file before it, and old text by new."""

    promise: str
    before: str
    change: Change

    @property
    def after(self) -> str:
        """The file after the edit."""
        return edited(self.before, self.change)


def rows(table: str, part: str = "edits") -> tuple[Row, ...]:
    """Return the edits of a part of a table; those that add something begin with a fleet that is `bare` of it."""
    told = _read(table)
    start = edited(told["fleet"], told["bare"] if part == "bare_edits" else {})
    return tuple(_row(promise, start, change) for promise, change in told[part].items())


@dataclass(frozen=True)
class Apart:
    """An edit that tries what a promise is about, and the edits that it is instead, or the code of its refusal."""

    row: Row
    seen: frozenset[str]
    refused: str | None


def apart() -> tuple[Apart, ...]:
    """Return the promises that no edit meets."""
    return tuple(_apart(promise, told) for promise, told in _read("apart.yaml").items())


def _apart(promise: str, told: Mapping[str, Any]) -> Apart:
    row = _row(promise, _read(told["table"])["fleet"], told["edit"])
    return Apart(row, frozenset(told.get("seen", ())), told.get("refused"))


def _read(table: str) -> dict[str, Any]:
    told: dict[str, Any] = YAML(typ="safe").load(TABLES / table)
    return told


def _row(promise: str, start: str, change: Change | list[Change]) -> Row:
    """Return an edit; of two, the first makes the file that the edit begins with."""
    first, last = change if isinstance(change, list) else ({}, change)
    return Row(promise, edited(start, first), last)


def edited(text: str, change: Change) -> str:
    """Return a text after an edit, each old part of which stands in it once."""
    for old, new in change.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Lived:
    """A fleet whose stacks exist in the simulated AWS; `file` is where its text is written."""

    plan: FleetPlan
    world: World
    file: Path

    def replanned(self, before: str, after: str) -> FleetPlan:
        """Return the plan of a later text, the earlier one recorded; raises what refuses the edit."""
        lock_path(self.file).unlink(missing_ok=True)
        _record(self.file, before)
        self.file.write_text(after, encoding="utf-8")
        return _planned(self.file)

    def previews(self, plan: FleetPlan) -> dict[str, Run]:
        """Return what a later plan would do to each stack; what it would make is exported, too."""
        world = replace(self.world, exports=dict(self.world.exports))
        return {stack.name: _preview(stack, world) for wave in waves(plan) for stack in wave}


def _preview(stack: Stack, world: World) -> Run:
    done = run(stack, world, preview=True)
    told = world.exports.get(stack.full_name)
    world.exports[stack.full_name] = (
        done.snapshot.exports if told is None else _both(_known(done.snapshot.exports), told)
    )
    return done


def _known(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Return what is exported, with an address in place of what only AWS will tell: one unknown would hide all."""
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in value.items()}
    return _TOLD if holds_unknown(value) else value


def _both(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a stack exports already, and what it would export besides."""
    inner = {
        key: _both(new[key], value)
        for key, value in old.items()
        if isinstance(value, Mapping) and isinstance(new.get(key), Mapping)
    }
    return {**new, **old, **inner}


def _record(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    record_plan(lock_path(file), load_fleet(file, load_catalog()).fleet, load_catalog())


def _planned(file: Path) -> FleetPlan:
    return planned(load_fleet(file, load_catalog()))


@contextmanager
def living(text: str, file: Path) -> Iterator[Lived]:
    """Make the fleet of a text, recorded as an operator records it."""
    _record(file, text)
    plan = _planned(file)
    with running(plan.account) as simulation:
        world = World(simulation)
        failures = [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        assert not failures, failures
        yield Lived(plan, world, file)


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


TWELVE = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"),
    *("eu-west-1", "eu-west-2", "eu-central-1", "eu-north-1", "ap-northeast-1", "ap-southeast-2"),
)


def _fleet(regions: Mapping[str, Sequence[str]], **parts: Any) -> Fleet:  # noqa: ANN401  raw values, as sketch takes them
    """Return a fleet with machines in each of its regions."""
    box = group(*({"region": name} for name in regions), types=("m7i.xlarge",), nodes={"min": 0, "max": 4})
    return sketch(regions, groups={"box": box}, **parts)


_ONE = {"us-west-2": ZONES["us-west-2"][:2]}
_THREE = {name: zones[:1] for name, zones in ZONES.items()}
_TWO_SITES = {**LANS, "attic": "192.168.60.0/24"}
_GATEWAYS = laptops({"region": "us-west-2"}, {"site": "cellar"})


def _two_sites() -> Fleet:
    """Return a fleet of two regions and two sites, each with a gateway of its own."""
    regions = {name: ZONES[name][:1] for name in list(ZONES)[:2]}
    fleet = _fleet(regions, sites=_TWO_SITES, vpn=_GATEWAYS, alarms={"email": "infra@lab.example"})
    attic = fleet.sites["attic"]
    gateway = attic.gateway.model_copy(update={"public": IPv4Address("8.20.30.41"), "asn": 65011})
    return fleet.model_copy(update={"sites": {**fleet.sites, "attic": attic.model_copy(update={"gateway": gateway})}})


def _joined() -> Fleet:
    """Return a fleet whose regions are joined by gateways of their own, but for one that has none; with a site."""
    gateways = laptops({"region": "us-west-2"}, {"region": "eu-north-1"}, {"site": "cellar"})
    return _fleet(_THREE, sites=LANS, vpn=gateways, network={"interconnect": "none"}, kubernetes=cluster())


FLEETS: Mapping[str, Fleet] = MappingProxyType(
    {
        "one region": _fleet(_ONE),
        "one region and a site": _fleet(_ONE, sites=LANS, vpn=_GATEWAYS),
        "peering": _fleet(_THREE, sites=LANS, vpn=_GATEWAYS, network={"interconnect": "peering"}, kubernetes=cluster()),
        "none": _fleet(_THREE, network={"interconnect": "none"}, kubernetes=cluster()),
        "joined by gateways": _joined(),
        "no sites": _fleet(_THREE, vpn=laptops({"region": "us-west-2"}), network={"egress": "none"}),
        "two sites": _two_sites(),
        "twelve regions": _fleet({name: (f"{name}a",) for name in TWELVE}),
    }
)
NAMES = ("lab", *FLEETS)


@cache
def plan_named(name: str) -> FleetPlan:
    """Return the plan of one of the fleets; `lab` is the larger example."""
    if name == "lab":
        return plan_of(EXAMPLES / "lab.yaml")
    return plan_fleet(FLEETS[name], Record({}), load_catalog())


@cache
def report_of(plan_name: str) -> Report:
    """Return what a whole rehearsal of a fleet came to: created, run again, destroyed."""
    plan = plan_named(plan_name)
    return rehearse(plan.account, waves(plan))


@cache
def graph_of(plan_name: str) -> tuple[dict[str, Any], ...]:
    """Return the resources of all stacks of a fleet, as they were when they existed in the simulated AWS."""
    report = report_of(plan_name)
    assert not [failure for stack in report.stacks for failure in stack.failures]
    entries = (entry for each in report.stacks for entry in each.runs[Phase.CREATE].snapshot.entries.values())
    return tuple(graph(entries))


_ACL = Noun("networkAcl", "describe_network_acls", "NetworkAclIds", "NetworkAcls", "InvalidNetworkAclID.NotFound")
_NOUNS = (_ACL, *(value for value in vars(ec2).values() if isinstance(value, Noun)))


def census(aws: Aws) -> frozenset[str]:
    """Return a text for each live resource: its kind and what of its description does not change by itself."""
    found = {
        f"{noun.word} {sorted(value for key, value in item.items() if key.endswith('Id') and isinstance(value, str))}"
        for noun in _NOUNS
        for item in aws.call("ec2", noun.operation)[noun.listing]
        if is_live(item)
    }
    fakes = {f"{token} {ident}" for token, rows in aws.simulation.fakes.items() for ident in rows}
    return frozenset(found | fakes)


# Given the door, the id and the inputs, return what AWS says.
Told = Callable[[Aws, str, Mapping[str, Any]], object]


def by(noun: Noun) -> Told:
    """Return what tells of a resource by its own id."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, ident)

    return tell


def by_input(noun: Noun, key: str) -> Told:
    """Return what tells of a part by the id of the whole, which is one of its inputs."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, inputs[key])

    return tell


_ENVELOPE = frozenset({"LastUpdatedTime", "ResponseMetadata", "RequestId"})


def settled(value: object) -> object:
    """Return an answer without moments and envelopes; a truth is told in both of its spellings."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key not in _ENVELOPE}
        return {key: settled(item) for key, item in kept.items() if not isinstance(item, datetime)}
    if isinstance(value, list):
        return [settled(item) for item in value]
    return [value, str(value).lower()] if isinstance(value, bool) else value


def asked(service: str, operation: str, **params: Callable[[str, Mapping[str, Any]], object]) -> Told:
    """Return what tells of a resource by one call, whose parameters come of its id and inputs."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        given = {name: make(ident, inputs) for name, make in params.items()}
        return settled(aws.call(service, operation, **given))

    return tell


def every(*told: Told) -> Told:
    """Return what tells all that several tell."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return [one(aws, ident, inputs) for one in told]

    return tell


def faked(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the fakes of an id: of what moto has no model of."""
    return [row for rows in aws.simulation.fakes.values() for key, row in rows.items() if key.endswith(ident)]


def own(ident: str, inputs: Mapping[str, Any]) -> str:
    """Return the id itself, as a parameter."""
    return ident


def listed(ident: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return the id in a list, as a parameter."""
    return [ident]
