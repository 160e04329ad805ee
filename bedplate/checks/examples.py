"""Values that no live fleet may have: those of examples/, zones of another account's offers, unverified checksums."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bedplate.catalog import Catalog
from bedplate.catalog.software import EFA_SUM, NVIDIA_KEY_SUM
from bedplate.checks.diagnostics import Context
from bedplate.checks.groups import has_gpus
from bedplate.rules import Fault, Level, Rule, fault
from bedplate.spec import Fleet

_ACCOUNT = "111122223333"
# Each text, and what to write instead.
_FIXES = {
    _ACCOUNT: "write the number of your AWS account",
    "cr-0123456789abcdef0": "write the id of your reservation",
    "8.20.30.40": "write the public address of your gateway",
    "lab.example": "write your own domain",
    "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl": "write your own public key",
    "AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw": "write your own public key",
}


def _has_account(context: Context) -> bool:
    """Return whether the file has a valid account that is not the one of the examples."""
    is_valid = context.declared.names() >= {"account"} and context.is_whole("account")
    return is_valid and context.fleet.account != _ACCOUNT


def check_examples(context: Context) -> Iterator[Fault]:
    """Yield a fault for each example value; none in a fleet with the account of the examples, which is one."""
    if _has_account(context):
        yield from _example_values("", context.fleet.model_dump(mode="json", exclude={"allow"}))


def live_faults(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:
    """Yield the same for a deployment, where they are errors and the account of the examples is one of them."""
    values = _example_values("", fleet.model_dump(mode="json", exclude={"allow"}))
    for needed in (*_unverified(fleet, catalog), *values):
        yield replace(needed, level=Level.ERROR)


def _example_values(key: str, value: object) -> Iterator[Fault]:
    """Yield the example values in a JSON value, each with its key."""
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in items:
            yield from _example_values(f"{key}.{name}".lstrip("."), item)
    elif isinstance(value, str):
        for text in _FIXES.keys() & {value, *value.replace("@", " ").split()}:
            noun = "the public key" if text.startswith("AAAA") else text
            yield fault(EXAMPLE_VALUE, key, f"{noun} is a value of the examples", _FIXES[text])


def check_offers(context: Context) -> Iterator[Fault]:
    """Yield a fault if zones are chosen from offers of another account; none for the account of the examples."""
    account = context.fleet.account
    if not _has_account(context):
        return
    regions = {
        name for name in _regions_with_choice(context.fleet) if not context.catalog.has_letters_of(account, name)
    }
    if regions:
        message = f"zones in {', '.join(sorted(regions))} are chosen from offers of another account"
        fix = f"run `bedplate catalog refresh` with credentials of account {account}, then `bedplate check`"
        yield fault(OFFERS_OF_OTHER_ACCOUNT, "account", message, fix)


def check_account(context: Context) -> Iterator[Fault]:
    """Yield an error if the facts of the folder are of another account: its zones are not those of this one."""
    account, known = context.fleet.account, context.catalog.account
    if known not in ("", account) and context.is_whole("account"):
        yield fault(CATALOG_OF_OTHER_ACCOUNT, "account", f"fleet.catalog has facts of account {known}")


def _regions_with_choice(fleet: Fleet) -> set[str]:
    """Return the regions where the offers decide the zones of a pool, the control plane or a laptop gateway."""
    regions = {rung.region for group in fleet.groups.values() for rung in group.ladder if rung.zone is None}
    if fleet.kubernetes:
        regions |= {name for name, region in fleet.regions.items() if region.home}
    if fleet.vpn and fleet.vpn.laptops:
        regions |= {gateway.region for gateway in fleet.vpn.laptops.gateways if gateway.region}
    return regions


def check_checksums(context: Context) -> Iterator[Fault]:
    """Yield a fault for each unverified checksum that machines need; none in a fleet with the examples' account."""
    if _has_account(context):
        yield from _unverified(context.fleet, context.catalog)


def _unverified(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:
    """Yield a fault for each unverified checksum of the software set that machines need."""
    software = catalog.software_set(fleet.software)
    for item, key in _required_checksums(fleet, catalog):
        if not software.checksum(item):
            message = f"{item} of software set {software.name} was never compared with {software.items[item].source}"
            yield fault(UNVERIFIED_CHECKSUM, key, message)


def _required_checksums(fleet: Fleet, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield each checksum that a machine needs, with the key of the first such machine."""
    groups, sites = fleet.groups.items(), fleet.sites.items()
    gpus = [f"groups.{name}.types" for name, group in groups if has_gpus(catalog, group)]
    for site, machines in ((name, site.machines.items()) for name, site in sites):
        gpus += [f"sites.{site}.machines.{name}.gpus" for name, machine in machines if machine.gpus]
    fabrics = [f"groups.{name}.fabric" for name, group in groups if group.fabric]
    yield from ((NVIDIA_KEY_SUM, key) for key in gpus[:1])
    yield from ((EFA_SUM, key) for key in fabrics[:1])


CHECKS = (check_examples, check_offers, check_account, check_checksums)
EXAMPLE_VALUE = Rule(
    "E417", "The value belongs to nobody or to somebody else.", "write your own value", is_for_deployment=True
)
OFFERS_OF_OTHER_ACCOUNT = Rule(
    "E418",
    "In older regions each account has its own zone letters: a chosen zone may not offer the type.",
    "run `bedplate catalog refresh` with credentials of this account, then `bedplate check`",
    "AWS Regions and Availability Zones, AZ IDs",
    allowable=True,
    is_for_deployment=True,
)
CATALOG_OF_OTHER_ACCOUNT = Rule(
    "E421",
    "Zone letters, offers and prices of another account are not those of this one.",
    "correct `account`, or run `bedplate catalog refresh` with credentials of this account",
)
UNVERIFIED_CHECKSUM = Rule(
    "E419",
    "Nodes install software of other vendors only if its checksum was compared with its source.",
    "run `bedplate catalog refresh`",
    is_for_deployment=True,
)
