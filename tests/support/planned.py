"""Graphs written down by hand, for the form of a Terraform plan."""

from typing import Any

from bedplate.terraform.plan import plan_document

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
