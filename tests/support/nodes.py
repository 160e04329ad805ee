"""Machines of examples/lab.yaml as roles are told of them."""

from functools import cache
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.cli.opening import planned
from bedplate.load import load_fleet
from bedplate.plan.node import NodePlan
from bedplate.plan.nodes import node_of

LAB = Path(__file__).parents[2] / "examples" / "lab.yaml"


@cache
def lab_node(name: str) -> NodePlan:
    """Return a machine of the lab by its name, as in `titan-01.cellar`."""
    catalog = load_catalog()
    return node_of(planned(load_fleet(LAB, catalog)), name, catalog)
