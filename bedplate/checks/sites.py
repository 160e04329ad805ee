"""Sites: addresses on their LAN, a gateway that AWS can reach, and names that fit in DNS."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from bedplate.checks.context import Evidence, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.plan.links import TRANSIT_ASNS
from bedplate.spec.sites import Dials, Machine, Site, Use
from bedplate.spec.text import LONGEST

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


# What AWS answers for inside every VPC (Amazon VPC user guide, DNS attributes).
AWS_DOMAINS = ("amazonaws.com", "compute.internal", "ec2.internal")


def check_name_servers(evidence: Evidence) -> Iterator[Fault]:
    """Tell domains that are somebody else's, and servers that cannot be asked."""
    for name, site in evidence.fleet.sites.items():
        if site.dns:
            yield from _domain(f"sites.{name}.dns.domain", site.dns.domain, evidence.fleet.domain)
            servers = tuple((f"sites.{name}.dns.servers.{index}", each) for index, each in enumerate(site.dns.servers))
            for key, server in servers:
                if server not in site.lan:
                    yield fault("E240", key, f"{server} is not on the site's LAN {site.lan}")
                elif server in ends(site.lan):
                    yield fault("E241", key, f"{server} is the first or the last address of {site.lan}")
            for key, server, _ in repeated(servers):
                yield fault("E250", key, f"{server} is listed twice")
    yield from _shared(evidence)


def _domain(key: str, domain: str, own: str) -> Iterator[Fault]:
    if _is_within(domain, own):
        yield fault("E249", key, f"{domain} lies in the fleet's own domain {own}")
    elif _is_within(own, domain):
        yield fault("E249", key, f"the fleet's own domain {own} lies in {domain}")
    for theirs in AWS_DOMAINS:
        if _is_within(domain, theirs) or _is_within(theirs, domain):
            yield fault("E249", key, f"{domain} takes in names of {theirs}, which AWS answers for")


def _shared(evidence: Evidence) -> Iterator[Fault]:
    sites = evidence.fleet.sites.items()
    domains = ((f"sites.{name}.dns.domain", site.dns.domain) for name, site in sites if site.dns)
    for key, domain, first in repeated(domains):
        yield fault("E249", key, f"{domain} is the domain of {first.split('.')[1]} too")


def _is_within(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


SITE_RULES = (
    Rule(
        "E207",
        "shared-place-name",
        "Hosts are named by region or site.",
        "give the site another name",
        at_key=True,
    ),
    Rule(
        "E240",
        "address-elsewhere",
        "A machine or a server of a site has an address on its LAN.",
        "write an address of the LAN",
    ),
    Rule(
        "E241",
        "address-of-network",
        "The first and the last address of a LAN are no host's.",
        "choose another",
        "RFC 1122",
    ),
    Rule("E242", "address-twice", "Two machines cannot share an address.", "give one of them another address"),
    Rule("E243", "unknown-gateway", "The gateway is a machine of the site.", "name one of the site's machines"),
    Rule(
        "E244",
        "reserved-asn",
        "This number is AWS's side of the tunnels or nobody's.",
        "use 64513 to 65534",
        "RFC 7607, RFC 7300, RFC 5398",
    ),
    Rule(
        "E245",
        "asn-twice",
        "Routes from a site of the same number are dropped.",
        "give each site its own number",
        "RFC 4271",
    ),
    Rule(
        "E246",
        "gateway-not-public",
        "AWS reaches the gateway over the internet.",
        "write its fixed public address",
    ),
    Rule("E247", "gateway-twice", "A customer gateway is known by its address.", "give each site its own"),
    Rule(
        "E248",
        "host-name-too-long",
        "A full name has at most 253 characters.",
        "shorten one of its parts",
        "RFC 1123",
    ),
    Rule(
        "E249",
        "domain-taken",
        "What is forwarded hides every name below it, and whoever else answers for it.",
        "give the site a domain of its own",
        "Amazon Route 53 developer guide, resolver rules and private hosted zones",
    ),
    Rule("E250", "name-server-twice", "Asked again, a server gives the same answer.", "delete one of them"),
    Rule("E251", "join-elsewhere", "A site is joined to another site of the file.", "name one of the other sites"),
    Rule("E252", "join-twice", "Two gateways have one tunnel between them.", "say it once, at either of the two"),
    Rule(
        "E253",
        "nobody-dialled",
        "Of two gateways, one has to be dialled.",
        "forward UDP 500 and 4500 to one of them, and take its behind_nat away",
    ),
    Rule(
        "E254",
        "aws-dials-nobody",
        "Behind address translation, a gateway is not dialled.",
        "`dials: site`, or forward UDP 500 and 4500 to it and take behind_nat away",
    ),
    Rule(
        "E255",
        "scratch-of-nobody",
        "People that log in work on scratch, and nobody else.",
        "delete it, or add use: ssh",
    ),
    Rule("E256", "disk-twice", "A disk is striped with others once.", "delete one of them"),
)
