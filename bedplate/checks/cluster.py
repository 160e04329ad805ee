"""Kubernetes and the VPN: a cluster where there are workers, and gateways in places that exist."""

from collections.abc import Iterator

from bedplate.checks.context import Evidence, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.groups import unknown_type
from bedplate.checks.ladders import undeclared_region
from bedplate.checks.storage import undeclared_site
from bedplate.spec.sites import Use

LEAST_VCPUS, LEAST_MEMORY_MIB = 2, 2048


def check_workers(evidence: Evidence) -> Iterator[Fault]:
    """Tell workers that have no cluster to join."""
    if "kubernetes" in evidence.declared.raw:
        return
    fleet = evidence.fleet
    uses = [(f"groups.{name}.use", group.use) for name, group in fleet.groups.items()]
    for site, place in fleet.sites.items():
        uses += [(f"sites.{site}.machines.{name}.use", it.use) for name, it in place.machines.items() if it.use]
    for key, use in uses:
        if use is Use.KUBERNETES:
            yield fault("E602", key, "there is no cluster for this worker")


def check_control_plane(evidence: Evidence) -> Iterator[Fault]:
    """Tell a control plane that cannot keep its quorum, or run at all."""
    if evidence.fleet.kubernetes is None:
        return
    plane, key = evidence.fleet.kubernetes.control_plane, "kubernetes.control_plane"
    if plane.count % 2 == 0:
        message = f"{plane.count} machines survive no more failures than {plane.count - 1}"
        yield fault("E603", f"{key}.count", message, f"write {plane.count - 1} or {plane.count + 1}")
    yield from unknown_type(evidence.catalog, f"{key}.type", plane.type)
    facts = evidence.catalog.types.get(plane.type)
    if facts and (facts.vcpus < LEAST_VCPUS or facts.memory_mib < LEAST_MEMORY_MIB):
        message = f"{plane.type} has {facts.vcpus} vCPUs and {facts.memory_mib} MiB"
        yield fault("E604", f"{key}.type", message)
    yield from _home_offer(evidence, f"{key}.type", plane.type)


def check_laptops(evidence: Evidence) -> Iterator[Fault]:
    """Tell laptop gateways without one place of their own."""
    laptops = evidence.fleet.vpn.laptops if evidence.fleet.vpn else None
    gateways = enumerate(laptops.gateways if laptops else ())
    places = tuple((f"vpn.laptops.gateways.{index}", gateway) for index, gateway in gateways)
    for key, gateway in places:
        if (gateway.region is None) == (gateway.site is None):
            seen = "neither" if gateway.region is None else "both"
            yield fault("E608", key, f"one of region and site is wanted, not {seen}")
        if gateway.region:
            yield from undeclared_region(evidence, f"{key}.region", gateway.region)
        if gateway.site:
            yield from undeclared_site(evidence, f"{key}.site", gateway.site)
    for key, gateway, _ in repeated(places):
        yield fault("E609", key, f"{gateway.region or gateway.site} has a gateway already")


def _home_offer(evidence: Evidence, key: str, kind: str) -> Iterator[Fault]:
    """Tell a control plane of a type that the home region does not offer."""
    home = next((name for name, region in evidence.fleet.regions.items() if region.home), None)
    catalog = evidence.catalog
    if home and home in catalog.regions and kind in catalog.types and not catalog.offered(kind, home):
        yield fault("E302", key, f"the home region {home} does not offer {kind}")


FORMAT_RULES = (
    Rule("E601", "other-format", "Another format's keys may mean other things.", "write `version: 1`"),
    Rule("E602", "no-cluster", "Workers need a cluster to join.", "add the kubernetes section, or use ssh"),
)

KUBERNETES_RULES = (
    Rule(
        "E603",
        "even-control-plane",
        "An even number survives no more than one less.",
        "use 1, 3, 5 or 7",
        "etcd FAQ",
    ),
    Rule(
        "E604",
        "small-control-plane",
        "An API server and etcd need 2 vCPUs and 2 GiB.",
        "choose m7i.xlarge",
        "kubeadm",
    ),
    Rule("E605", "cluster-version", "A minor version is what kubeadm installs.", "write it as '1.36'"),
    Rule(
        "E615",
        "unreleased-version",
        "Kubernetes has no such version yet, as far as the catalogue knows.",
        "write one that is out",
        "kubernetes.io/releases",
        allowable=True,
    ),
    Rule(
        "W616",
        "version-ended",
        "What Kubernetes no longer mends stays broken.",
        "write a version that is mended",
        "kubernetes.io/releases",
        allowable=True,
    ),
)

VPN_RULES = (
    Rule("E608", "gateway-place", "A gateway stands in one place.", "give one of region and site"),
    Rule("E609", "gateway-repeated", "A second gateway in one place adds nothing.", "delete one of them"),
    Rule(
        "E618",
        "certificate-name-too-long",
        "A gateway proves itself by its whole name in the domain.",
        "shorten the domain",
        "X.520; RFC 5280, appendix A.1",
    ),
)

EXCEPTION_RULES = (
    Rule(
        "E701",
        "unknown-rule",
        "There is no rule of that code.",
        "`bedplate check --explain all` lists them",
        at_key=True,
    ),
    Rule(
        "E702",
        "rule-not-allowable",
        "Breaking this rule breaks the fleet.",
        "mend what it tells",
        at_key=True,
    ),
    Rule("W703", "unused-exception", "The file breaks no such rule.", "delete it", at_key=True),
    Rule("E704", "no-reason", "An exception without its reason cannot be judged.", "write why"),
)
