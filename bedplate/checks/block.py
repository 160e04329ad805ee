"""Declared blocks and sizes: of a range that hosts may use, of a size that AWS takes, and clear of one another."""

from collections.abc import Iterator

from bedplate.checks.claim import CARRIER, DEFAULT_VPC, DOCKER, PRIVATE, RESERVED, Claim, claims
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault

LARGEST_VPC, SMALLEST_VPC = 16, 28


def check_ranges(evidence: Evidence) -> Iterator[Fault]:
    """Tell blocks of ranges that are somebody else's."""
    for claim in claims(evidence.fleet):
        reserved = next((block for block in RESERVED if claim.block.overlaps(block)), None)
        if reserved:
            message = f"{claim} takes in {reserved} ({RESERVED[reserved]})"
            yield fault("E220", claim.key, message)
        elif claim.block.overlaps(CARRIER):
            yield fault("E222", claim.key, f"{claim} takes in addresses of {CARRIER} (RFC 6598)")
        elif not any(claim.block.subnet_of(block) for block in PRIVATE):
            yield fault("E221", claim.key, f"{claim} takes in public addresses")
        yield from _shared(claim)


def _shared(claim: Claim) -> Iterator[Fault]:
    """Tell private ranges that every node or account has already."""
    if claim.meets(DOCKER):
        yield fault("E224", claim.key, f"{claim} takes in {DOCKER}, docker's own on every node")
    if claim.meets(DEFAULT_VPC):
        yield fault("W223", claim.key, f"{claim} takes in {DEFAULT_VPC}, every account's default VPC")


def check_overlaps(evidence: Evidence) -> Iterator[Fault]:
    """Tell each declared block that lies in or around an earlier one; one pass over the blocks in order."""
    blocks = sorted(
        (claim for claim in claims(evidence.fleet) if claim.exact),
        key=lambda claim: (claim.block.network_address, claim.block.prefixlen),
    )
    widest: Claim | None = None
    for claim in blocks:
        if widest and claim.block.subnet_of(widest.block):
            message = f"{claim} overlaps {widest}: they share {claim.block}"
            yield fault("E226", claim.key, message)
        else:
            widest = claim


def check_sizes(evidence: Evidence) -> Iterator[Fault]:
    """Tell sizes that AWS, Kubernetes or OpenVPN would refuse, or that are no part of the supernet."""
    fleet = evidence.fleet
    for name, region in fleet.regions.items():
        if region.block is not None:
            yield from _vpc_size(f"regions.{name}.block", region.block.prefixlen)
    yield from _vpc_size("network.region_size", fleet.network.region_size)
    for key, size, low, high in _sizes(evidence):
        least = max(low, fleet.network.supernet.prefixlen + 1)
        if least > high:
            message = f"{fleet.network.supernet} has no room for it: even /{high}, the smallest, is all of it or more"
            yield fault("E227", key, message, f"a supernet of /{high - 1} or wider")
        elif not least <= size <= high:
            message = f"/{size} is out of range here: from /{least} to /{high}"
            yield fault("E227", key, message, f"write /{min(max(size, least), high)}")


def _vpc_size(key: str, size: int) -> Iterator[Fault]:
    if not LARGEST_VPC <= size <= SMALLEST_VPC:
        message = f"/{size} is no size of a VPC: AWS takes /{LARGEST_VPC} to /{SMALLEST_VPC}"
        yield fault("E225", key, message, f"write /{min(max(size, LARGEST_VPC), 20)}")


def _sizes(evidence: Evidence) -> Iterator[tuple[str, int, int, int]]:
    """Yield key, size, and the largest and smallest that its user takes.

    Kubernetes gives each node a /24 of the pods and takes at most a /12 of services; OpenVPN takes /16 to /29.
    """
    kubernetes, vpn = evidence.fleet.kubernetes, evidence.fleet.vpn
    if kubernetes:
        yield "kubernetes.services", kubernetes.services, 12, 24
        if kubernetes.pods is not None:
            yield "kubernetes.pods", kubernetes.pods, 8, 22
    if vpn and vpn.laptops:
        yield "vpn.laptops.pool", vpn.laptops.pool, 16, 29
