"""Name servers of sites: a domain that nobody else answers for, and servers on the LAN."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.checks.site import ends

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
