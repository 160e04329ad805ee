"""Fleets in the simulated AWS: effects of edits, rehearsals of fleets of several shapes, descriptions of resources.

The edits and their promised effects are in tables under tests/data/updates.
"""

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
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import InvalidLock, lock_path, record_plan
from bedplate.operate import plan_loaded
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.ec2 import Ec2Resource, described, is_live
from bedplate.rehearsal.rehearse import Phase, Report, rehearse
from bedplate.rehearsal.simulation import Aws, running
from bedplate.rehearsal.stack import Run, SharedState, Stack, graph, run
from bedplate.rehearsal.state import PROTECTED, PROTECTED_IN_PLACE, Op, Snapshot, parse_urn
from bedplate.rehearsal.wire import holds_unknown
from bedplate.spec import Fleet
from bedplate.update import Effect
from tests.testlab.fleets.sketch import LANS, ZONES, cluster, group, laptops, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

TABLES = Path(__file__).parents[2] / "data" / "updates"


Change = Mapping[str, str]
# Replaces an unknown export: the stacks that read it expect an address.
_ADDRESS = "10.64.0.9"


@dataclass(frozen=True)
class Edit:
    """One edit of a table: its promise as `key event`, the file before it, and its replacements of old text by new."""

    promise: str
    before: str
    change: Change

    @property
    def after(self) -> str:
        """The file after the edit."""
        return edited(self.before, self.change)


def edits_of(table: str, part: str = "edits") -> tuple[Edit, ...]:
    """Return the edits of one part of a table; `bare_edits` add something and start from a fleet without it."""
    content = _read(table)
    start = edited(content["fleet"], content["bare"] if part == "bare_edits" else {})
    return tuple(_row(promise, start, change) for promise, change in content[part].items())


@dataclass(frozen=True)
class UnmetPromise:
    """A promise that no edit meets: an edit that tries, and the promises that it meets instead, or its error code."""

    edit: Edit
    met: frozenset[str]
    error_code: str | None


def unmet_promises() -> tuple[UnmetPromise, ...]:
    """Return the promises that no edit meets."""
    return tuple(_unmet_promise(promise, entry) for promise, entry in _read("apart.yaml").items())


def _unmet_promise(promise: str, entry: Mapping[str, Any]) -> UnmetPromise:
    edit = _row(promise, _read(entry["table"])["fleet"], entry["edit"])
    return UnmetPromise(edit, frozenset(entry.get("seen", ())), entry.get("refused"))


def _read(table: str) -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe").load(TABLES / table)
    return content


def _row(promise: str, start: str, change: Change | list[Change]) -> Edit:
    """Return an edit; of two replacements, the first one makes the file before the edit."""
    first, last = change if isinstance(change, list) else ({}, change)
    return Edit(promise, edited(start, first), last)


def edited(text: str, change: Change) -> str:
    """Return a text after an edit; each old part must occur once."""
    for old, new in change.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class LiveFleet:
    """A fleet whose stacks exist in the simulated AWS; `file` is the path of its fleet file."""

    plan: FleetPlan
    world: SharedState
    file: Path

    def replanned(self, before: str, after: str) -> FleetPlan:
        """Return the plan of a later text after the earlier one is recorded; raise the error that refuses the edit."""
        lock_path(self.file).unlink(missing_ok=True)
        _record(self.file, before)
        self.file.write_text(after, encoding="utf-8")
        return _planned(self.file)

    def previews(self, plan: FleetPlan) -> dict[str, Run]:
        """Return the preview of each stack for a later plan; later stacks see the exports of earlier previews."""
        world = replace(self.world, exports=dict(self.world.exports))
        return {stack.name: _preview(stack, world) for wave in waves(plan) for stack in wave}


def _preview(stack: Stack, world: SharedState) -> Run:
    result = run(stack, world, preview=True)
    present = world.exports.get(stack.full_name)
    exports = result.snapshot.exports
    world.exports[stack.full_name] = exports if present is None else _merged_exports(_with_addresses(exports), present)
    return result


def _with_addresses(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Return exports with an address in place of unknown values: one unknown value would hide all."""
    if isinstance(value, Mapping):
        return {key: _with_addresses(item) for key, item in value.items()}
    return _ADDRESS if holds_unknown(value) else value


def _merged_exports(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present exports of a stack and the new ones of its preview."""
    inner = {
        key: _merged_exports(new[key], value)
        for key, value in old.items()
        if isinstance(value, Mapping) and isinstance(new.get(key), Mapping)
    }
    regions = {"regions": new["regions"]} if "regions" in new else {}
    return {**new, **old, **inner, **regions}


def _record(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    record_plan(lock_path(file), load_fleet(file, load_catalog()).fleet, load_catalog())


def _planned(file: Path) -> FleetPlan:
    return plan_loaded(load_fleet(file, load_catalog()))


@contextmanager
def live_fleet(text: str, file: Path) -> Iterator[LiveFleet]:
    """Create the fleet of a text, recorded as an operator records it."""
    _record(file, text)
    plan = _planned(file)
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        failures = [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        assert not failures, failures
        yield LiveFleet(plan, world, file)


# Resources that people use to work, to store data or to connect: their loss is noticed. All others, such as tags,
# alarms, permissions and rules, are created again within a minute.
_NOTICED: Mapping[str, str] = {
    "autoscaling/group:Group": "machines",
    "ec2/customerGateway:CustomerGateway": "a site's end",
    "ec2/natGateway:NatGateway": "a NAT gateway",
    "ec2/subnet:Subnet": "a network",
    "ec2/transitGatewayRoute:TransitGatewayRoute": "a route",
    "ec2/vpc:Vpc": "a network",
    "ec2/vpcPeeringConnection:VpcPeeringConnection": "a link",
    "ec2/vpnConnection:VpnConnection": "a connection",
    "ec2transitgateway/peeringAttachment:PeeringAttachment": "a link",
    "iam/openIdConnectProvider:OpenIdConnectProvider": "roles of pods",
    "route53/resolverRule:ResolverRule": "forwarding",
    "route53/zone:Zone": "names",
    "s3/bucketReplicationConfig:BucketReplicationConfig": "copies",
}
_GROUP = "autoscaling/group:Group"
_LAUNCH_INPUTS = {"launchTemplate", "mixedInstancesPolicy"}
# Failures that refuse an edit: protected data, another account; and the rules that keep recorded addresses.
_REFUSALS = {PROTECTED, PROTECTED_IN_PLACE, "InvalidAccount"}
_REFUSING_RULES = {"E231", "E233"}


def effect_of(live: LiveFleet, before: str, after: str) -> Effect:
    """Return the strongest effect of an edit on existing resources; an unchanged plan has none."""
    try:
        plan = live.replanned(before, after)
    except InvalidLock:
        return Effect.REFUSED
    except FleetFaults as error:
        if _REFUSING_RULES.isdisjoint(fault.code for fault in error.faults):
            raise
        return Effect.REFUSED
    assert live.replanned(before, before) == live.plan
    return Effect.FREE if plan == live.plan else effect_of_runs(live.world.snapshots, live.previews(plan))


def effect_of_runs(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Effect:
    """Return the strongest effect of previews; a stack without a preview is removed."""
    failed = {failure.code for run in runs.values() for failure in run.failures if not failure.skipped}
    if failed & _REFUSALS:
        return Effect.REFUSED
    assert not failed, failed
    effects = [effect for name, run in runs.items() for effect in _group_effects(snapshots.get(name, Snapshot()), run)]
    return max((*effects, _removal_effect(snapshots, runs)), key=lambda effect: effect.weight)


def _removal_effect(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Effect:
    """Return whether anything is removed, and whether something of the same kind replaces it."""
    moved = {"a NAT gateway"} if _change_nat_gateway(runs) else set[str]()
    removed, created = moved.union(_noticed(_deleted(snapshots, runs))), moved.union(_noticed(_created(runs)))
    if not removed:
        return Effect.FREE
    return Effect.REPLACES if removed <= created else Effect.REMOVES


def _deleted(snapshots: Mapping[str, Snapshot], runs: Mapping[str, Run]) -> Iterator[str]:
    yield from (step.urn for run in runs.values() for step in run.steps if step.op in (Op.DELETE, Op.REPLACE))
    yield from (urn for name in snapshots.keys() - runs.keys() for urn in snapshots[name].entries)


def _change_nat_gateway(runs: Mapping[str, Run]) -> bool:
    """Return whether nodes get another NAT gateway: their open connections end, and their address changes."""
    steps = (step for run in runs.values() for step in run.steps)
    return any(step.op is Op.UPDATE and "natGatewayId" in step.keys for step in steps)


def _created(runs: Mapping[str, Run]) -> Iterator[str]:
    yield from (step.urn for run in runs.values() for step in run.steps if step.op in (Op.CREATE, Op.REPLACE))


def _noticed(resources: Iterable[str]) -> Iterator[str]:
    types = (parse_urn(urn).type.removeprefix("aws:") for urn in resources)
    yield from (_NOTICED[token] for token in types if token in _NOTICED)


def _group_effects(before: Snapshot, run: Run) -> Iterator[Effect]:
    """Yield the effects of group updates on their instances, and of volumes that would shrink."""
    for step in (step for step in run.steps if step.op is Op.UPDATE):
        old, new = before.entries[step.urn].inputs, run.snapshot.entries[step.urn].inputs
        if parse_urn(step.urn).type == f"aws:{_GROUP}":
            yield _group_effect(step.keys, old, new)
        # No preview shows that AWS refuses it.
        elif parse_urn(step.urn).type == "aws:ebs/volume:Volume" and new["size"] < old["size"]:
            yield Effect.REFUSED


def _group_effect(keys: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]) -> Effect:
    """Return the effect of a group update on its instances; AWS terminates those above a lowered maximum."""
    if after["maxSize"] < before["maxSize"]:
        return Effect.REMOVES
    if _LAUNCH_INPUTS.isdisjoint(keys):
        return Effect.FREE
    return Effect.NEW_NODES


TWELVE = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"),
    *("eu-west-1", "eu-west-2", "eu-central-1", "eu-north-1", "ap-northeast-1", "ap-southeast-2"),
)


def _fleet(regions: Mapping[str, Sequence[str]], **parts: Any) -> Fleet:  # noqa: ANN401  raw values, as sketch takes them
    """Return a fleet with instances in each of its regions."""
    box = group(*({"region": name} for name in regions), types=("m7i.xlarge",), nodes={"min": 0, "max": 4})
    return sketch(regions, groups={"box": box}, **parts)


_ONE = {"us-west-2": ZONES["us-west-2"][:2]}
_THREE = {name: zones[:1] for name, zones in ZONES.items()}
_TWO_SITES = {**LANS, "attic": "192.168.60.0/24"}
_GATEWAYS = laptops({"region": "us-west-2"}, {"site": "cellar"})


def _two_sites() -> Fleet:
    """Return a fleet of two regions and two sites with a gateway each."""
    regions = {name: ZONES[name][:1] for name in list(ZONES)[:2]}
    fleet = _fleet(regions, sites=_TWO_SITES, vpn=_GATEWAYS, alarms={"email": "infra@lab.example"})
    attic = fleet.sites["attic"]
    gateway = attic.gateway.model_copy(update={"public": IPv4Address("8.20.30.41"), "asn": 65011})
    return fleet.model_copy(update={"sites": {**fleet.sites, "attic": attic.model_copy(update={"gateway": gateway})}})


def _connected_by_gateways() -> Fleet:
    """Return a fleet whose regions are connected by their own gateways, one region excepted, and a site."""
    gateways = laptops({"region": "us-west-2"}, {"region": "eu-north-1"}, {"site": "cellar"})
    return _fleet(_THREE, sites=LANS, vpn=gateways, network={"interconnect": "none"}, kubernetes=cluster())


FLEETS: Mapping[str, Fleet] = MappingProxyType(
    {
        "one region": _fleet(_ONE),
        "one region and a site": _fleet(_ONE, sites=LANS, vpn=_GATEWAYS),
        "peering": _fleet(_THREE, sites=LANS, vpn=_GATEWAYS, network={"interconnect": "peering"}, kubernetes=cluster()),
        "none": _fleet(_THREE, network={"interconnect": "none"}, kubernetes=cluster()),
        "joined by gateways": _connected_by_gateways(),
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
    """Return the report of a whole rehearsal of a fleet: created, run again, destroyed."""
    plan = plan_named(plan_name)
    return rehearse(plan.account, waves(plan))


@cache
def graph_of(plan_name: str) -> tuple[dict[str, Any], ...]:
    """Return the resources of all stacks of a fleet after their creation in the simulated AWS."""
    report = report_of(plan_name)
    assert not [failure for stack in report.stacks for failure in stack.failures]
    entries = (entry for stack in report.stacks for entry in stack.runs[Phase.CREATE].snapshot.entries.values())
    return tuple(graph(entries))


_ACL = Ec2Resource(
    "networkAcl", "describe_network_acls", "NetworkAclIds", "NetworkAcls", "InvalidNetworkAclID.NotFound"
)
_NOUNS = (_ACL, *(value for value in vars(ec2).values() if isinstance(value, Ec2Resource)))


def census(aws: Aws) -> frozenset[str]:
    """Return a text for each live resource: its kind and the ids in its description."""
    live = {
        f"{noun.word} {sorted(value for key, value in item.items() if key.endswith('Id') and isinstance(value, str))}"
        for noun in _NOUNS
        for item in aws.call("ec2", noun.operation)[noun.listing]
        if is_live(item)
    }
    fakes = {f"{token} {ident}" for token, edits_of in aws.simulation.fakes.items() for ident in edits_of}
    return frozenset(live | fakes)


# Returns the description of a resource in AWS, from the client, its id and its inputs.
Describe = Callable[[Aws, str, Mapping[str, Any]], object]


def describe_by_id(noun: Ec2Resource) -> Describe:
    """Return a function that describes a resource by its id."""

    def describe(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, ident)

    return describe


def describe_by_input(noun: Ec2Resource, key: str) -> Describe:
    """Return a function that describes the resource whose id is an input."""

    def describe(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return described(aws, noun, inputs[key])

    return describe


_ENVELOPE = frozenset({"LastUpdatedTime", "ResponseMetadata", "RequestId"})


def stable_reply(value: object) -> object:
    """Return a reply without timestamps and metadata; a boolean is given in both of its spellings."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key not in _ENVELOPE}
        return {key: stable_reply(item) for key, item in kept.items() if not isinstance(item, datetime)}
    if isinstance(value, list):
        return [stable_reply(item) for item in value]
    return [value, str(value).lower()] if isinstance(value, bool) else value


def describe_by_call(service: str, operation: str, **params: Callable[[str, Mapping[str, Any]], object]) -> Describe:
    """Return a function that describes a resource by one call, with parameters made from its id and inputs."""

    def describe(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        values = {name: make(ident, inputs) for name, make in params.items()}
        return stable_reply(aws.call(service, operation, **values))

    return describe


def describe_all(*functions: Describe) -> Describe:
    """Return a function that returns the results of several."""

    def describe(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return [function(aws, ident, inputs) for function in functions]

    return describe


def describe_fakes(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the fakes with an id: resources that moto does not model."""
    return [row for edits_of in aws.simulation.fakes.values() for key, row in edits_of.items() if key.endswith(ident)]


def own_id(ident: str, inputs: Mapping[str, Any]) -> str:
    """Return the id, as a parameter of a call."""
    return ident


def id_list(ident: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return the id in a list, as a parameter of a call."""
    return [ident]
