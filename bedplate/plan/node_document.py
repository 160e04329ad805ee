"""The node document: the plan of a machine as JSON, for the configuration run on it."""

import json

from pydantic import TypeAdapter, ValidationError

from bedplate.catalog.catalog import Catalog
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, pool_node
from bedplate.plan.pools import PoolPlan

_VERSION = 1


def pool_document(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> str:
    """Return the document of the machines of a pool; each machine puts its own host name into it."""
    return node_document(pool_node(plan, pool, f"{pool.group}.{pool.region}", catalog))


def node_document(node: NodePlan) -> str:
    """Return the document of a machine."""
    return (
        json.dumps({"version": _VERSION, "node": _ADAPTER.dump_python(node, mode="json", fallback=dict)}, indent=1)
        + "\n"
    )


def read_node_document(text: str) -> NodePlan:
    """Return the plan in a document. Raises InputError for an unknown version, or an invalid document."""
    try:
        document = json.loads(text)
        version = document["version"]
        if version != _VERSION:
            fix = "promote the bundle of the bedplate version that wrote the document"
            raise InputError(f"node document of version {version}, this bundle reads {_VERSION}", fix=fix)
        return _ADAPTER.validate_python(document["node"], strict=False)
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise InputError(f"invalid node document: {str(error).splitlines()[0]}", fix="push it again") from None


_ADAPTER = TypeAdapter(NodePlan)
