"""Access: what a valid fleet needs before people can use it: accounts, a VPN, a started machine, alarms, a cluster."""

from collections.abc import Iterator, Sequence
from functools import partial

from bedplate.checks.diagnostics import Context
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.sites import cloud_mounts


def check_people_and_ways_in(context: Context) -> Iterator[Fault]:
    """Yield warnings about machines for SSH without people, or without a network path to them."""
    fleet = context.fleet
    groups = [name for name, group in fleet.groups.items() if group.use.is_ssh]
    machines = [name for site in fleet.sites.values() for name, machine in site.machines.items() if machine.use]
    if (groups or machines) and not fleet.people and context.is_whole("people"):
        message = f"nobody can log in to {_listed([*groups, *machines], 'or')}: the file has no people"
        yield fault(NO_PEOPLE, "people", message)
    has_way_in = fleet.sites or (fleet.vpn and fleet.vpn.laptops)
    if groups and not has_way_in and context.is_whole("vpn") and context.is_whole("sites"):
        region = fleet.groups[groups[0]].ladder[0].region
        message = (
            f"machines of {_listed(groups, 'and')} have private addresses only, and the file has no VPN for laptops"
        )
        fix = (
            f"add vpn: {{laptops: {{gateways: [{{region: {region}}}]}}}}; without a VPN, `bedplate ssh {groups[0]}` "
            "uses Session Manager and requires AWS credentials of the account"
        )
        yield fault(NO_WAY_IN, f"groups.{groups[0]}.use", message, fix)


def _listed(names: Sequence[str], word: str) -> str:
    """Return up to three names, and the number of the others."""
    more = [f"{len(names) - 3} more"] if names[3:] else []
    *first, last = [*names[:3], *more]
    return f"{', '.join(first)} {word} {last}" if first else last


def check_start(context: Context) -> Iterator[Fault]:
    """Yield warnings about groups for SSH whose machines nothing starts."""
    fleet = context.fleet
    for name, group in fleet.groups.items():
        is_idle = group.use.is_ssh and group.nodes.min == 0 < group.nodes.max
        if is_idle and all(rung.region in fleet.regions for rung in group.ladder):
            message = f"nothing starts a machine of {name}: its minimum is 0"
            fix = f"write min: 1, or start a machine with `bedplate node start {name}`"
            yield fault(NO_START, f"groups.{name}.nodes.min", message, fix)


def check_alarms(context: Context) -> Iterator[Fault]:
    """Yield a warning about groups and sites without a recipient of alarms."""
    fleet = context.fleet
    if (fleet.groups or fleet.sites) and fleet.alarms is None and context.is_whole("alarms"):
        address = fleet.owner if "@" in fleet.owner else "ADDRESS"
        message = "alarms appear only in the AWS console: the file names no recipient"
        yield fault(NO_ALARMS, "alarms", message, f"add alarms: {{email: {address}}}")


# Areas of AWS region names that are not continents of their own.
_CONTINENTS = {"ca": "us", "mx": "us"}


def check_distance(context: Context) -> Iterator[Fault]:
    """Yield warnings about file systems that machines on another continent mount."""
    fleet = context.fleet
    rungs = [(name, rung) for name, group in fleet.groups.items() for rung in group.ladder]
    regions = {rung.region: name for name, rung in rungs if rung.region in fleet.regions}
    for name, home, mount in cloud_mounts(fleet.storage):
        distant = sorted(region for region in regions if _continent(region) != _continent(home))
        if distant and home in fleet.regions:
            places, group = " and ".join(distant), regions[distant[0]]
            message = f"machines in {places} mount {mount} from another continent, in {home}"
            fix = f"use regions near {home} in the ladder of {group}, or keep the data in an s3 store"
            yield fault(DISTANT_MOUNT, f"storage.{name}.region", message, fix)


def _continent(region: str) -> str:
    area = region.partition("-")[0]
    return _CONTINENTS.get(area, area)


CHECKS = (check_people_and_ways_in, check_start, check_alarms, check_distance)
NO_PEOPLE = Rule("W530", "Only declared people can log in.", "add people: {USER: {admin: true, keys: [KEY]}}")
NO_ALARMS = Rule("W632", "Nobody notices a failed machine or gateway.", "add alarms: {email: ADDRESS}", allowable=True)
_group_rule = partial(Rule, section="groups")
NO_START = _group_rule(
    "W360", "bedplate starts the minimum; nothing else starts machines for SSH.", "write min: 1", allowable=True
)
NO_WAY_IN = _group_rule(
    "W630",
    "Machines have private addresses, which only a VPN or Session Manager reaches.",
    "add vpn: {laptops: {gateways: [{region: REGION}]}}",
    allowable=True,
)
_storage_rule = partial(Rule, section="storage")
DISTANT_MOUNT = _storage_rule(
    "W420",
    "Every file operation takes a round trip over the ocean, about 100 ms.",
    "keep the machines on the continent of the file system",
    allowable=True,
)
