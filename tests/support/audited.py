"""Graphs written down by hand, for the checks of what stacks hold."""

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.audit.document import graph_of
from bedplate.audit.fault import StackFault
from bedplate.audit.run import audit

Resource = Mapping[str, Any]


def resource(token: str, name: str = "one", /, ident: str = "", **inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return one resource in the form of `bedplate graph`, with an owner and without what a check does not read."""
    tags = {"tags": {"owner": "infra"}} | inputs
    return {"urn": f"urn:pulumi:lab::bedplate::{token}::{name}", "type": token, "id": ident or name, "inputs": tags}


def group(name: str = "nodes", **inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a security group."""
    return resource("aws:ec2/securityGroup:SecurityGroup", name, **inputs)


def rule(block: str = "", /, ports: tuple[int, int] = (22, 22), protocol: str = "tcp", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an ingress rule of the group `nodes`, a resource of its own; a block with colons is of IPv6."""
    inputs: dict[str, Any] = {"securityGroupId": "nodes", "ipProtocol": protocol}
    inputs |= {"cidrIpv6" if ":" in block else "cidrIpv4": block} if block else {}
    inputs |= {"fromPort": ports[0], "toPort": ports[1]} if protocol not in {"-1", "all"} else {}
    name = f"{block}-{ports}-{protocol}-{sorted(more)}"
    return resource("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", name, **(inputs | more))


def prefix_list(*blocks: str) -> dict[str, Any]:
    """Return a prefix list, known as pl-1."""
    entries = [{"cidr": block} for block in blocks]
    return resource("aws:ec2/managedPrefixList:ManagedPrefixList", "list", "pl-1", entries=entries)


def faults(resources: Iterable[Resource]) -> tuple[StackFault, ...]:
    """Return what the checks find in a graph of these resources."""
    return audit(graph_of(list(resources), "here"))


def codes(resources: Iterable[Resource]) -> set[str]:
    """Return the rules that a graph of these resources breaks."""
    return {fault.code for fault in faults(resources)}
