"""Sites: addresses on their LAN, a gateway that AWS can reach, and names that fit in DNS."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.plan.beyond import TRANSIT_ASNS
from bedplate.spec.domain import LONGEST
from bedplate.spec.site import Machine, Site, Use

AWS_ASN = 64512
# Numbers that BGP cannot use, and those that EC2 refuses for a customer gateway (CreateCustomerGateway).
RESERVED_ASNS = (
    (range(7224, 7225), "AWS keeps it"),
    (range(9059, 9060), "AWS keeps it"),
    (range(AWS_ASN, AWS_ASN + 1), "it is AWS's side of the tunnels"),
    (range(23456, 23457), "it is AS_TRANS (RFC 6793)"),
    (range(64496, 64512), "it is kept for documentation (RFC 5398)"),
    (range(65535, 65552), "it is reserved (RFC 7300, RFC 5398)"),
    (TRANSIT_ASNS, "the regions' transit gateways have these"),
)
_NO_HOSTS_ENDS = 31


def check_sites(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong within each site."""
    for name, site in evidence.fleet.sites.items():
        if name in evidence.declared.names("regions"):
            yield fault("E207", f"sites.{name}", f"a region is called {name} too")
        yield from _addresses(f"sites.{name}.machines", site)
        for label, machine in site.machines.items():
            yield from _scratch(f"sites.{name}.machines.{label}.scratch", machine)
        yield from _gateway(evidence, name, site)
        yield from _host_names(evidence, name, site)


def check_gateways(evidence: Evidence) -> Iterator[Fault]:
    """Tell sites that share a number or a public address."""
    sites = evidence.fleet.sites.items()
    asns = ((f"sites.{name}.gateway.asn", site.gateway.asn) for name, site in sites)
    publics = ((f"sites.{name}.gateway.public", site.gateway.public) for name, site in sites)
    for key, asn, first in repeated(asns):
        yield fault("E245", key, f"{asn} is the number of {first.split('.')[1]} too")
    for key, public, first in repeated(publics):
        yield fault("E247", key, f"{public} is the gateway of {first.split('.')[1]} too")


def _addresses(key: str, site: Site) -> Iterator[Fault]:
    addresses = tuple((f"{key}.{name}.address", machine.address) for name, machine in site.machines.items())
    for place, address in addresses:
        if address not in site.lan:
            yield fault("E240", place, f"{address} is not on the site's LAN {site.lan}")
        elif address in ends(site.lan):
            yield fault("E241", place, f"{address} is the first or the last address of {site.lan}")
    for place, address, first in repeated(addresses):
        yield fault("E242", place, f"{address} is the address of {first.split('.')[-2]} too")


def ends(lan: IPv4Network) -> tuple[IPv4Address, ...]:
    """Return the two addresses of a LAN that are no host's."""
    return (lan.network_address, lan.broadcast_address) if lan.prefixlen < _NO_HOSTS_ENDS else ()


def _scratch(key: str, machine: Machine) -> Iterator[Fault]:
    if machine.scratch and machine.use is not Use.SSH:
        yield fault("E255", key, "nobody logs in to this machine to work on it")
    for place, disk, _ in repeated((f"{key}.{index}", each) for index, each in enumerate(machine.scratch)):
        yield fault("E256", place, f"{disk} is listed twice")


def _gateway(evidence: Evidence, name: str, site: Site) -> Iterator[Fault]:
    key, gateway = f"sites.{name}.gateway", site.gateway
    machines = evidence.declared.names("sites", name, "machines")
    if gateway.machine not in machines:
        fix = f"write one of {', '.join(sorted(machines))}" if machines else "declare it under machines"
        yield fault("E243", f"{key}.machine", f"{name} has no machine {gateway.machine}", fix)
    why = next((why for numbers, why in RESERVED_ASNS if gateway.asn in numbers), None)
    if why:
        yield fault("E244", f"{key}.asn", f"{gateway.asn} cannot be a site's number: {why}")
    if not gateway.public.is_global:
        yield fault("E246", f"{key}.public", f"{gateway.public} is no public address")


def _host_names(evidence: Evidence, name: str, site: Site) -> Iterator[Fault]:
    for machine in site.machines:
        host = f"{machine}.{name}.{evidence.fleet.domain}"
        if len(host) > LONGEST:
            message = f"the full name of {machine} has {len(host)} characters; RFC 1123 allows {LONGEST}"
            yield fault("E248", f"sites.{name}.machines.{machine}", message)
