"""Direct tunnels between sites: to a site that there is, once, and with one end that can be dialled."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.site import Dials, Site


def check_joins(evidence: Evidence) -> Iterator[Fault]:
    """Tell joints of sites that cannot be built."""
    said = tuple(_said(evidence))
    for key, name, other in said:
        yield from _unknown(evidence, key, name, other)
    pairs = ((key, frozenset((name, other))) for key, name, other in said if name != other)
    for key, pair, first in repeated(pairs):
        yield fault("E252", key, f"{' and '.join(sorted(pair))} are joined by {first} already")
    for key, name, other in said:
        if other in evidence.fleet.sites and _are_hidden(evidence, name, other):
            yield fault("E253", key, f"{name} and {other} both stand behind address translation")
    yield from _waiting(evidence)


def _said(evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """Yield the key of each joint, the site that says it, and the one that it names."""
    for name, site in evidence.fleet.sites.items():
        for index, other in enumerate(site.gateway.joins):
            yield f"sites.{name}.gateway.joins.{index}", name, other


def _unknown(evidence: Evidence, key: str, name: str, other: str) -> Iterator[Fault]:
    others = sorted(evidence.declared.names("sites") - {name})
    fix = f"write one of {', '.join(others)}" if others else "declare the other site under sites"
    if other == name:
        yield fault("E251", key, f"{name} is the site itself", fix)
    elif other not in others:
        yield fault("E251", key, f"the file has no site {other}", fix)


def _are_hidden(evidence: Evidence, *names: str) -> bool:
    return len(set(names)) > 1 and all(evidence.fleet.sites[name].gateway.behind_nat for name in names)


def _waiting(evidence: Evidence) -> Iterator[Fault]:
    for name, site in evidence.fleet.sites.items():
        if _waits_in_vain(site):
            yield fault("E254", f"sites.{name}.gateway.dials", f"AWS cannot dial {name}: its gateway is behind_nat")


def _waits_in_vain(site: Site) -> bool:
    return site.gateway.behind_nat and site.gateway.dials is Dials.AWS
