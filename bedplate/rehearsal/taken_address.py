"""Where a call takes addresses: the zones of its subnets. Groups launch without one."""

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.look import Ask

_TAKING = frozenset(
    {
        "ec2.create_nat_gateway",
        "ec2.create_network_interface",
        "ec2.create_transit_gateway_vpc_attachment",
        "ec2.create_vpc_endpoint",
        "ec2.run_instances",
        "efs.create_mount_target",
        "route53resolver.create_resolver_endpoint",
    }
)


def zones_of(call: Call, ask: Ask) -> frozenset[str]:
    """Return the zones in which a call takes an address."""
    subnets = sorted(set(_subnets(call.params))) if call.name in _TAKING else []
    if not subnets:
        return frozenset()
    listed = ask(Call("ec2", call.region, "describe_subnets", {"SubnetIds": subnets}))
    return frozenset(subnet["AvailabilityZone"] for subnet in listed["Subnets"])


def _subnets(params: Mapping[str, Any]) -> Iterator[str]:
    if "SubnetId" in params:
        yield params["SubnetId"]
    yield from params.get("SubnetIds") or []
    for block in (*(params.get("IpAddresses") or []), *(params.get("NetworkInterfaces") or [])):
        yield from _subnets(block)
