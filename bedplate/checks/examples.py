"""What a live fleet must not have: values of the files in examples/, and zones from offers of another account."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bedplate.checks.context import Context
from bedplate.checks.diagnostics import Fault, Level, Rule, fault
from bedplate.spec import Fleet

EXAMPLE_VALUE, OTHER_OFFERS = "E417", "E418"
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
    """Yield a warning for each example value; none in a fleet with the account of the examples, which is one."""
    if _has_account(context):
        yield from _example_values("", context.fleet.model_dump(mode="json", exclude={"allow"}))


def live_faults(fleet: Fleet) -> Iterator[Fault]:
    """Yield an error for each example value, as a deployment needs it."""
    for warning in _example_values("", fleet.model_dump(mode="json", exclude={"allow"})):
        yield replace(warning, level=Level.ERROR)


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
    """Yield a warning if zones are chosen from offers of another account; none for the account of the examples."""
    account = context.fleet.account
    if not _has_account(context):
        return
    regions = {
        name for name in _regions_with_choice(context.fleet) if not context.catalog.has_letters_of(account, name)
    }
    if regions:
        message = f"zones in {', '.join(sorted(regions))} are chosen from offers of another account"
        fix = f"run `bedplate catalog refresh` with credentials of account {account}, then `bedplate check`"
        yield fault(OTHER_OFFERS, "account", message, fix)


def _regions_with_choice(fleet: Fleet) -> set[str]:
    """Return the regions where the offers decide the zones of a pool, the control plane or a laptop gateway."""
    regions = {rung.region for group in fleet.groups.values() for rung in group.ladder if rung.zone is None}
    if fleet.kubernetes:
        regions |= {name for name, region in fleet.regions.items() if region.home}
    if fleet.vpn and fleet.vpn.laptops:
        regions |= {gateway.region for gateway in fleet.vpn.laptops.gateways if gateway.region}
    return regions


CHECKS = (check_examples, check_offers)
RULES = (
    Rule(
        EXAMPLE_VALUE,
        "example-value",
        "The value belongs to nobody or to somebody else.",
        "write your own value",
        warns=True,
    ),
    Rule(
        OTHER_OFFERS,
        "offers-of-other-account",
        "In older regions each account has its own zone letters: a chosen zone may not offer the type.",
        "run `bedplate catalog refresh` with credentials of this account, then `bedplate check`",
        "AWS Regions and Availability Zones, AZ IDs",
        allowable=True,
        warns=True,
    ),
)
