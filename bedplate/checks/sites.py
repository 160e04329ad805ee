"""Sites: addresses on their LAN, gateways, tunnels between sites, host names, and name servers."""

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address

from bedplate.checks.addresses import is_private, smallest_lan
from bedplate.checks.diagnostics import Context, one_of, repeated
from bedplate.errors import nearest
from bedplate.plan.cluster import PODS_DOMAIN
from bedplate.plan.links import TRANSIT_ASNS
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.sites import Dials, Machine, Site
from bedplate.spec.text import DOMAIN, LONGEST

AWS_ASN = 64512
# Numbers that BGP reserves, and numbers that EC2 rejects for a customer gateway (CreateCustomerGateway).
RESERVED_ASNS = (
    (range(7224, 7225), "AWS reserves it"),
    (range(9059, 9060), "AWS reserves it"),
    (range(AWS_ASN, AWS_ASN + 1), "AWS's side of the tunnels has it"),
    (range(23456, 23457), "it is AS_TRANS (RFC 6793)"),
    (range(64496, 64512), "it is reserved for documentation (RFC 5398)"),
    (range(65535, 65552), "it is reserved (RFC 7300, RFC 5398)"),
    (TRANSIT_ASNS, "the regions' transit gateways have these numbers"),
)
# Prefix lengths of /31 and /32 have no network and no broadcast address (RFC 3021).
_NO_RESERVED_ENDS = 31


def check_sites(context: Context) -> Iterator[Fault]:
    """Yield faults within each site."""
    for name, site in context.fleet.sites.items():
        if name in context.declared.names("regions"):
            yield fault(SITE_NAMED_LIKE_REGION, f"sites.{name}", f"{name} is also the name of a region")
        if name == PODS_DOMAIN and context.fleet.kubernetes:
            yield fault(
                SITE_NAMED_LIKE_REGION,
                f"sites.{name}",
                f"{name}.{context.fleet.domain} is the domain of the cluster's services",
            )
        if context.declared.has(f"sites.{name}", "lan") == context.declared.has(f"sites.{name}", "lans"):
            message = f"{name} has `lan` and `lans`" if site.lan else f"{name} has no network"
            yield fault(SITE_NETWORKS, f"sites.{name}", message)
        elif site.networks:
            yield from _check_addresses(f"sites.{name}", site)
        for label, machine in site.machines.items():
            yield from _check_scratch(f"sites.{name}.machines.{label}.scratch", machine)
        yield from _check_gateway(context, name, site)
        yield from _check_host_names(context, name, site)


def check_gateways(context: Context) -> Iterator[Fault]:
    """Yield faults of sites with the same ASN or public address."""
    sites = context.fleet.sites.items()
    asns = ((f"sites.{name}.gateway.asn", site.gateway.asn) for name, site in sites)
    publics = ((f"sites.{name}.gateway.public", site.gateway.public) for name, site in sites)
    for key, asn, first in repeated(asns):
        yield fault(
            DUPLICATE_ASN, key, f"{asn} is also the ASN of {first.split('.')[1]}", f"write {_free_asn(context)}"
        )
    for key, public, first in repeated(publics):
        yield fault(DUPLICATE_GATEWAY_ADDRESS, key, f"{public} is also the gateway of {first.split('.')[1]}")


def _check_addresses(key: str, site: Site) -> Iterator[Fault]:
    addresses = tuple((f"{key}.machines.{name}.address", machine.address) for name, machine in site.machines.items())
    outside = [address for _, address in addresses if not any(address in lan for lan in site.networks.values())]
    first, block = next(iter(site.networks.items()))
    if len(addresses) > 1 and ((outside and block.prefixlen >= _NO_RESERVED_ENDS) or len(outside) == len(addresses)):
        # A LAN that is not private is an error of its own.
        if is_private(block):
            lan = smallest_lan(address for _, address in addresses)
            message = f"{len(outside)} of {len(addresses)} machines have an address outside the LAN {_names(site)}"
            yield fault(ADDRESS_OUTSIDE_LAN, f"{key}.{first}", message, f"write {lan}, or correct the addresses")
        return
    for place, address in addresses:
        yield from _check_host_address(place, address, site)
    for place, address, first in repeated(addresses):
        other = first.split(".")[-2]
        message = f"{address} is also the address of {other}"
        yield fault(DUPLICATE_ADDRESS, place, message, f"correct the address of {place.split('.')[-2]} or of {other}")


def _names(site: Site) -> str:
    return ", ".join(map(str, site.networks.values()))


def _check_host_address(key: str, address: IPv4Address, site: Site) -> Iterator[Fault]:
    lans = tuple(site.networks.values())
    lan = next((lan for lan in lans if address in lan), None)
    if lan is None:
        near = IPv4Address(int(lans[0].network_address) | int(address) & int(lans[0].hostmask))
        yield fault(
            ADDRESS_OUTSIDE_LAN,
            key,
            f"{address} is not on the site's LAN {_names(site)}",
            f"write an address of the LAN, such as {near}, or list its network in `lans`",
        )
    elif lan.prefixlen < _NO_RESERVED_ENDS and address in (lan.network_address, lan.broadcast_address):
        near = address + 1 if address == lan.network_address else address - 1
        yield fault(NETWORK_ADDRESS, key, f"{address} is the first or the last address of {lan}", f"write {near}")


def _check_scratch(key: str, machine: Machine) -> Iterator[Fault]:
    if machine.scratch and not machine.is_ssh:
        yield fault(SCRATCH_WITHOUT_SSH, key, "scratch needs a machine with `use: ssh`")
    for place, disk, _ in repeated((f"{key}.{index}", disk) for index, disk in enumerate(machine.scratch)):
        yield fault(DUPLICATE_DISK, place, f"{disk} is listed twice")


def _check_gateway(context: Context, name: str, site: Site) -> Iterator[Fault]:
    key, gateway = f"sites.{name}.gateway", site.gateway
    machines = context.declared.names("sites", name, "machines")
    if gateway.machine not in machines:
        near = nearest(gateway.machine, machines)
        fix = f"write {near}" if near else one_of(machines) or f"declare {gateway.machine} under sites.{name}.machines"
        yield fault(UNKNOWN_GATEWAY, f"{key}.machine", f"{name} has no machine {gateway.machine}", fix)
    reason = next((reason for numbers, reason in RESERVED_ASNS if gateway.asn in numbers), None)
    if reason:
        message = f"a site cannot have ASN {gateway.asn}: {reason}"
        yield fault(RESERVED_ASN, f"{key}.asn", message, f"write {_free_asn(context)}, or another of 64513 to 65534")
    if not gateway.public.is_global:
        fix = f"write the address that `curl https://checkip.amazonaws.com` prints on {gateway.machine}"
        yield fault(PRIVATE_GATEWAY_ADDRESS, f"{key}.public", f"{gateway.public} is not a public address", fix)


def _free_asn(context: Context) -> int:
    """Return the lowest private ASN that no site has."""
    used = {site.gateway.asn for site in context.fleet.sites.values()}
    return next(asn for asn in range(AWS_ASN + 1, AWS_ASN + len(used) + 2) if asn not in used)


def _check_host_names(context: Context, name: str, site: Site) -> Iterator[Fault]:
    for machine in site.machines:
        host = f"{machine}.{name}.{context.fleet.domain}"
        if len(host) > LONGEST:
            message = f"the full name of {machine} has {len(host)} characters; RFC 1123 allows {LONGEST}"
            yield fault(HOST_NAME_TOO_LONG, f"sites.{name}.machines.{machine}", message)


def check_connections(context: Context) -> Iterator[Fault]:
    """Yield faults of tunnels between sites, and of gateways that no end can dial."""
    connections = tuple(_connections(context))
    for key, name, other in connections:
        yield from _check_other_site(context, key, name, other)
    pairs = ((key, frozenset((name, other))) for key, name, other in connections if name != other)
    for key, pair, first in repeated(pairs):
        yield fault(DUPLICATE_CONNECTION, key, f"{first} already connects {' and '.join(sorted(pair))}")
    for key, name, other in connections:
        if other in context.fleet.sites and _are_behind_nat(context, name, other):
            yield fault(BOTH_BEHIND_NAT, key, f"{name} and {other} are both behind NAT")
    for name, site in context.fleet.sites.items():
        if site.gateway.behind_nat and site.gateway.dials is Dials.AWS:
            yield fault(
                AWS_DIALS_BEHIND_NAT,
                f"sites.{name}.gateway.dials",
                f"AWS cannot dial {name}: its gateway is behind NAT",
            )


def _connections(context: Context) -> Iterator[tuple[str, str, str]]:
    """Yield the key of each connection, the site that lists it, and the other site."""
    for name, site in context.fleet.sites.items():
        for index, other in enumerate(site.gateway.joins):
            yield f"sites.{name}.gateway.joins.{index}", name, other


def _check_other_site(context: Context, key: str, name: str, other: str) -> Iterator[Fault]:
    others = context.declared.names("sites") - {name}
    fix = one_of(others) or f"declare {other} under sites"
    if other in context.declared.names("regions"):
        fix = "delete it: every site has tunnels to all regions"
    if other == name:
        yield fault(UNKNOWN_CONNECTED_SITE, key, f"{name} cannot be connected to itself", one_of(others) or "delete it")
    elif other not in others:
        yield fault(UNKNOWN_CONNECTED_SITE, key, f"the file has no site {other}", fix)


def _are_behind_nat(context: Context, *names: str) -> bool:
    return len(set(names)) > 1 and all(context.fleet.sites[name].gateway.behind_nat for name in names)


# Domains that AWS resolves inside every VPC (Amazon VPC user guide, DNS attributes).
AWS_DOMAINS = ("amazonaws.com", "compute.internal", "ec2.internal")


def check_name_servers(context: Context) -> Iterator[Fault]:
    """Yield faults of domains that overlap with others, and of unusable name servers."""
    fleet = context.fleet
    yield from _check_aws_domain(DOMAIN, "domain", fleet.domain, f"write {fleet.name}.internal")
    for name, site in fleet.sites.items():
        if site.dns:
            yield from _check_domain(f"sites.{name}.dns.domain", site.dns.domain, fleet.domain)
            key = f"sites.{name}.dns.servers"
            servers = tuple((f"{key}.{index}", server) for index, server in enumerate(site.dns.servers))
            for place, server in servers:
                yield from _check_host_address(place, server, site) if site.networks else ()
            for place, server, _ in repeated(servers):
                yield fault(DUPLICATE_NAME_SERVER, place, f"duplicate name server {server}")
    sites = fleet.sites.items()
    domains = ((f"sites.{name}.dns.domain", site.dns.domain) for name, site in sites if site.dns)
    for key, domain, first in repeated(domains):
        yield fault(OVERLAPPING_DOMAIN, key, f"{domain} is also the domain of {first.split('.')[1]}")


def _check_domain(key: str, domain: str, fleet_domain: str) -> Iterator[Fault]:
    if _is_within(domain, fleet_domain):
        yield fault(OVERLAPPING_DOMAIN, key, f"{domain} is within the fleet's domain {fleet_domain}")
    elif _is_within(fleet_domain, domain):
        yield fault(OVERLAPPING_DOMAIN, key, f"the fleet's domain {fleet_domain} is within {domain}")
    yield from _check_aws_domain(OVERLAPPING_DOMAIN, key, domain)


def _check_aws_domain(rule: Rule, key: str, domain: str, fix: str = "") -> Iterator[Fault]:
    for aws_domain in AWS_DOMAINS:
        if _is_within(domain, aws_domain):
            yield fault(rule, key, f"{domain} overlaps {aws_domain}, a domain of AWS", fix)


def _is_within(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


CHECKS = (check_sites, check_gateways, check_connections, check_name_servers)
_rule = partial(Rule, section="sites")
SITE_NAMED_LIKE_REGION = _rule(
    "E207",
    "Host names contain the name of a region or a site; `pods` is that of the cluster's services.",
    "rename the site",
    at_key=True,
)
SITE_NETWORKS = _rule(
    "E257", "A site has one network or several.", "write either lan: BLOCK or lans: [BLOCK, BLOCK]", at_key=True
)
ADDRESS_OUTSIDE_LAN = _rule(
    "E240", "Machines and name servers of a site have addresses on its LAN.", "write an address of the LAN"
)
NETWORK_ADDRESS = _rule(
    "E241",
    "The first and the last address of a LAN are not host addresses.",
    "write another address of the LAN",
    "RFC 1122",
)
DUPLICATE_ADDRESS = _rule("E242", "Two machines cannot share an address.", "change one of the two")
UNKNOWN_GATEWAY = _rule("E243", "The gateway is a machine of the site.", "write the name of a machine of the site")
RESERVED_ASN = _rule(
    "E244",
    "BGP, AWS or the fleet's transit gateways reserve this number.",
    "use 64513 to 65534",
    "RFC 7607, RFC 7300, RFC 5398",
)
DUPLICATE_ASN = _rule(
    "E245", "BGP drops routes that contain the receiver's own number.", "give each site its own number", "RFC 4271"
)
PRIVATE_GATEWAY_ADDRESS = _rule("E246", "AWS reaches the gateway over the internet.", "write its fixed public address")
DUPLICATE_GATEWAY_ADDRESS = _rule(
    "E247", "AWS identifies a customer gateway by its address.", "write the public address of this site's gateway"
)
HOST_NAME_TOO_LONG = _rule(
    "E248",
    "A full host name has at most 253 characters.",
    "shorten the domain, or the name of the group, site or machine",
    "RFC 1123",
)
OVERLAPPING_DOMAIN = _rule(
    "E249",
    "A forwarded domain hides all other names below it.",
    "write a domain of the site only",
    "Amazon Route 53 developer guide, resolver rules and private hosted zones",
)
DUPLICATE_NAME_SERVER = _rule("E250", "A second entry has no effect.", "delete one of the two")
UNKNOWN_CONNECTED_SITE = _rule("E251", "A site connects to another site of the file.", "write the name of another site")
DUPLICATE_CONNECTION = _rule("E252", "Two gateways have one tunnel.", "list it at one of the two sites")
BOTH_BEHIND_NAT = _rule(
    "E253",
    "One of two gateways must accept connections.",
    "forward UDP 500 and 4500 to one of them and delete its behind_nat",
)
AWS_DIALS_BEHIND_NAT = _rule(
    "E254",
    "A gateway behind NAT does not accept connections.",
    "write `dials: site`, or forward UDP 500 and 4500 and delete behind_nat",
)
SCRATCH_WITHOUT_SSH = _rule("E255", "Only people who log in use scratch.", "delete scratch, or write `use: ssh`")
DUPLICATE_DISK = _rule("E256", "A volume contains each disk once.", "delete one of the two")
