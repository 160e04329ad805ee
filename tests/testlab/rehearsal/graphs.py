"""Graphs written by hand, and copies of real graphs with seeded defects, for the checks of stacks."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.graph.audit.document import StackFault, graph_of, kind_of
from bedplate.graph.audit.run import audit
from bedplate.plan.registration import device_counts
from tests.testlab.rehearsal.terraform import plan_document

Resource = Mapping[str, Any]


def resource(token: str, name: str = "one", /, ident: str = "", **inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return one resource in the form of `bedplate graph`, with a tag `owner` and only the fields that checks read."""
    tags = {"tags": {"owner": "infra"}} | inputs
    return {"urn": f"urn:pulumi:lab::bedplate::{token}::{name}", "type": token, "id": ident or name, "inputs": tags}


def group(name: str = "nodes", **inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a security group."""
    return resource("aws:ec2/securityGroup:SecurityGroup", name, **inputs)


def rule(block: str = "", /, ports: tuple[int, int] = (22, 22), protocol: str = "tcp", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an ingress rule of the group `nodes` as a separate resource; a block with colons is IPv6."""
    inputs: dict[str, Any] = {"securityGroupId": "nodes", "ipProtocol": protocol}
    inputs |= {"cidrIpv6" if ":" in block else "cidrIpv4": block} if block else {}
    inputs |= {"fromPort": ports[0], "toPort": ports[1]} if protocol not in {"-1", "all"} else {}
    name = f"{block}-{ports}-{protocol}-{sorted(more)}"
    return resource("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", name, **(inputs | more))


def prefix_list(*blocks: str) -> dict[str, Any]:
    """Return a prefix list with the id pl-1."""
    entries = [{"cidr": block} for block in blocks]
    return resource("aws:ec2/managedPrefixList:ManagedPrefixList", "list", "pl-1", entries=entries)


def faults(resources: Iterable[Resource]) -> tuple[StackFault, ...]:
    """Return the findings of the checks in a graph of these resources."""
    return audit(graph_of(list(resources), "here"), device_counts(load_catalog()))


def codes(resources: Iterable[Resource]) -> set[str]:
    """Return the codes of the rules that a graph of these resources violates."""
    return {fault.code for fault in faults(resources)}


Node = dict[str, Any]


def node(token: str, name: str = "one", /, stack: str = "lab.here", parent: str = "", **more: Any) -> Node:  # noqa: ANN401
    """Return one resource in the form of `bedplate graph`; `parent` is the type of its parent component."""
    plain = {
        "urn": f"urn:pulumi:{stack}::bedplate::{f'{parent}$' if parent else ''}{token}::{name}",
        "type": token,
        "name": name,
        "custom": True,
        "external": False,
        "id": "",
        "inputs": {},
        "outputs": {},
        "property_dependencies": {},
        "provider": "",
    }
    return plain | more


def values(*nodes: Node) -> list[dict[str, Any]]:
    """Return the planned values of the resources that a graph creates."""
    document: Any = plan_document(nodes)
    return [resource["values"] for resource in document["planned_values"]["root_module"]["resources"]]


def addresses(*nodes: Node) -> list[str]:
    """Return the Terraform addresses of the resources that a graph creates."""
    document: Any = plan_document(nodes)
    return [change["address"] for change in document["resource_changes"]]


def references(*nodes: Node) -> dict[str, dict[str, list[str]]]:
    """Return the references of each property, by the name of the resource."""
    document: Any = plan_document(nodes)
    return {
        item["name"]: {key: expression["references"] for key, expression in item["expressions"].items()}
        for item in document["configuration"]["root_module"]["resources"]
    }


Row = Mapping[str, Any]
STACK = "lab.us-west-2"


def without_defect(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return copies of the resources of a row; the first one is the resource that its defect changes."""
    by_name = {_full_name(node): node for node in graph}
    names = [name if "/" in name.split()[0] else f"{row.get('stack', STACK)}/{name}" for name in row["of"]]
    return copy.deepcopy([by_name[name] for name in names])


def with_defect(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return the same copies with the seeded defect."""
    nodes = without_defect(row, graph)
    for path, value in row.get("set", {}).items():
        holder, key = _holder(nodes[0], path)
        holder[key] = value
    for path in row.get("unset", ()):
        holder, key = _holder(nodes[0], path)
        del holder[key]
    return [node for node in nodes if _kind(node) != row.get("without")]


def _full_name(node: Node) -> str:
    return f"{node['urn'].split(':')[2]}/{_kind(node)} {node['name']}"


def _kind(node: Node) -> str:
    """Return the short type; a provider has only the name of its package."""
    return kind_of(node["type"]).removeprefix("pulumi:providers:")


def _holder(node: Node, property_path: str) -> tuple[Any, Any]:
    """Return the object or list that holds a property, and its key in it; a missing property is set at the top."""
    holder: Any = node["inputs"]
    *path, last = (int(part) if part.isdecimal() else part for part in property_path.split("."))
    for part in path:
        holder = holder[part]
    return holder, last
