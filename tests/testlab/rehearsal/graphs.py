"""Graphs written down by hand, for the checks of what stacks hold."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.cli.fleet import device_counts
from bedplate.graph.audit.document import graph_of, kind_of
from bedplate.graph.audit.rules import StackFault
from bedplate.graph.audit.run import audit
from bedplate.graph.terraform import plan_document

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
    return audit(graph_of(list(resources), "here"), device_counts())


def codes(resources: Iterable[Resource]) -> set[str]:
    """Return the rules that a graph of these resources breaks."""
    return {fault.code for fault in faults(resources)}


Node = dict[str, Any]


def node(token: str, name: str = "one", /, stack: str = "lab.here", parent: str = "", **more: Any) -> Node:  # noqa: ANN401
    """Return one resource in the form of `bedplate graph`; `parent` is the type of the component that holds it."""
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
    """Return the planned values of what a graph creates."""
    document: Any = plan_document(nodes)
    return [each["values"] for each in document["planned_values"]["root_module"]["resources"]]


def addresses(*nodes: Node) -> list[str]:
    """Return the addresses of what a graph creates."""
    document: Any = plan_document(nodes)
    return [each["address"] for each in document["resource_changes"]]


def references(*nodes: Node) -> dict[str, dict[str, list[str]]]:
    """Return what each property refers to, by the resource's name."""
    document: Any = plan_document(nodes)
    return {
        each["name"]: {key: told["references"] for key, told in each["expressions"].items()}
        for each in document["configuration"]["root_module"]["resources"]
    }


Row = Mapping[str, Any]
STACK = "lab.us-west-2"


def twin(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return the resources that a row takes, untouched; the one that its defect changes comes first."""
    known = {_called(node): node for node in graph}
    wanted = [one if "/" in one.split()[0] else f"{row.get('stack', STACK)}/{one}" for one in row["of"]]
    return copy.deepcopy([known[one] for one in wanted])


def sown(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return the same with the defect planted."""
    nodes = twin(row, graph)
    for way, value in row.get("set", {}).items():
        holder, key = _holder(nodes[0], way)
        holder[key] = value
    for way in row.get("unset", ()):
        holder, key = _holder(nodes[0], way)
        del holder[key]
    return [node for node in nodes if _kind(node) != row.get("without")]


def _called(node: Node) -> str:
    return f"{node['urn'].split(':')[2]}/{_kind(node)} {node['name']}"


def _kind(node: Node) -> str:
    """Return the type in short; a provider is called by its package alone."""
    return kind_of(node["type"]).removeprefix("pulumi:providers:")


def _holder(node: Node, way: str) -> tuple[Any, Any]:
    """Return the object or list that holds a property, and its key there; what is not there yet is set at the top."""
    holder: Any = node["inputs"]
    *path, last = (int(word) if word.isdecimal() else word for word in way.split("."))
    for word in path:
        holder = holder[word]
    return holder, last
