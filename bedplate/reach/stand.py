"""What has an address of a VPC: a network interface, an EFS mount target, a machine of a group, or nothing known."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from bedplate.reach.resource import Resource, Resources

NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Stand:
    """The security groups of what stands there, and its public address if it has one.

    `forwards` tells that it takes packets that are neither from nor to its own address.
    """

    name: str
    groups: frozenset[str]
    public: int | None = None
    forwards: bool = False
    subnet: str = ""
    address: int | None = None


def interfaces(resources: Resources) -> dict[str, Stand]:
    """Return the network interfaces, single machines, resolvers and mount targets of a graph by id."""
    publics = _elastic(resources)
    found = {each.id: _interface(each, publics) for each in resources.of("ec2/networkInterface:NetworkInterface")}
    found |= {each.id: _machine(each, publics) for each in resources.of("ec2/instance:Instance")}
    return found | dict(_resolvers(resources)) | dict(_mount_targets(resources))


def launched(resources: Resources, public_subnets: frozenset[str]) -> dict[str, Stand]:
    """Return, for each subnet that an Auto Scaling group launches into, what it launches there."""
    templates = {each.id: each for each in resources.of("ec2/launchTemplate:LaunchTemplate")}
    found: dict[str, Stand] = {}
    for group in sorted(resources.of("autoscaling/group:Group"), key=lambda each: each.name):
        template = next((templates[ident] for ident in _template_ids(group) if ident in templates), None)
        if template is not None:
            for subnet in group.texts("vpcZoneIdentifiers"):
                found.setdefault(subnet, _launch(group, template, subnet, public=subnet in public_subnets))
    return found


def _interface(each: Resource, publics: dict[str, int]) -> Stand:
    return Stand(
        name=each.name,
        groups=frozenset(each.texts("securityGroups")),
        public=publics.get(each.id),
        forwards=not each.flag("sourceDestCheck", default=True),
        subnet=each.text("subnetId"),
        address=_number(each.text("privateIp") or next(iter(each.texts("privateIps")), "")),
    )


def _machine(each: Resource, publics: dict[str, int]) -> Stand:
    return Stand(
        name=each.name,
        groups=frozenset(each.texts("vpcSecurityGroupIds")),
        public=publics.get(each.id) or _number(each.text("publicIp")),
        forwards=not each.flag("sourceDestCheck", default=True),
        subnet=each.text("subnetId"),
        address=_number(each.text("privateIp")),
    )


def _resolvers(resources: Resources) -> Iterator[tuple[str, Stand]]:
    """Yield the addresses of resolvers: each bears the groups of its endpoint."""
    for each in resources.of("route53/resolverEndpoint:ResolverEndpoint"):
        for values in each.blocks("ipAddresses"):
            address, subnet = str(values.get("ip") or ""), str(values.get("subnetId") or "")
            groups = frozenset(each.texts("securityGroupIds"))
            yield f"{each.id}/{address}", Stand(each.name, groups, subnet=subnet, address=_number(address))


def _mount_targets(resources: Resources) -> Iterator[tuple[str, Stand]]:
    """Yield the addresses at which EFS file systems are mounted."""
    for each in resources.of("efs/mountTarget:MountTarget"):
        groups = frozenset(each.texts("securityGroups"))
        address = _number(each.text("ipAddress"))
        yield each.id, Stand(each.name, groups, subnet=each.text("subnetId"), address=address)


def _elastic(resources: Resources) -> dict[str, int]:
    """Return elastic addresses by the interface or machine that bears them."""
    numbers = {each.id: _number(each.text("publicIp")) for each in resources.of("ec2/eip:Eip")}
    pairs = [(each.id, each) for each in resources.of("ec2/eip:Eip")]
    pairs += [(each.text("allocationId"), each) for each in resources.of("ec2/eipAssociation:EipAssociation")]
    borne = ((each.text(key), numbers.get(ident)) for ident, each in pairs for key in _BEARERS)
    return {bearer: number for bearer, number in borne if bearer and number is not None}


_BEARERS = ("networkInterface", "networkInterfaceId", "instance", "instanceId")


def _template_ids(group: Resource) -> Iterator[str]:
    yield from (str(values.get("id", "")) for values in group.blocks("launchTemplate"))
    for policy in group.blocks("mixedInstancesPolicy"):
        specification = policy.get("launchTemplate") or {}
        yield str((specification.get("launchTemplateSpecification") or {}).get("launchTemplateId", ""))


def _launch(group: Resource, template: Resource, subnet: str, *, public: bool) -> Stand:
    cards = template.blocks("networkInterfaces")
    groups = {ident for card in cards for ident in card.get("securityGroups") or ()}
    wished = [str(card["associatePublicIpAddress"]).lower() for card in cards if card.get("associatePublicIpAddress")]
    exposed = "true" in wished or (public and "false" not in wished)
    return Stand(
        name=group.name,
        groups=frozenset(groups | set(template.texts("vpcSecurityGroupIds"))),
        public=_SOME_PUBLIC if exposed else None,
        subnet=subnet,
    )


# A launched machine's public address is AWS's choice: this one, of TEST-NET-2 (RFC 5737), stands for it.
_SOME_PUBLIC = int(IPv4Address("198.51.100.1"))


def _number(text: str) -> int | None:
    return int(IPv4Address(text)) if text.count(".") == 3 else None  # noqa: PLR2004  a dotted quad has three dots
