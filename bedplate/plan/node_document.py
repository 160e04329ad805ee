"""The node document: the plan of a machine as JSON, from which its configuration run builds the roles.

Facts of AWS and of vendors that it needs are in it: the bundle is the same for all operators.
"""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from bedplate.catalog.catalog import Catalog
from bedplate.errors import InputError
from bedplate.foreign import LARGE, parse_json
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_node
from bedplate.plan.pools import PoolPlan
from bedplate.spec.groups import Ring

_VERSION = 1
_PUSH = "run `bedplate bundle push` with the bedplate version of the bundle"
_ADAPTER = TypeAdapter(NodePlan)


def pool_document(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> str:
    """Return the document of the machines of a pool; each machine puts its own host name into it."""
    return node_document(pool_node(plan, pool, f"{pool.group}.{pool.region}", catalog))


def node_document(node: NodePlan) -> str:
    """Return the document of a machine."""
    # pydantic warns about read-only views, which it writes with `fallback`.
    fields = _ADAPTER.dump_python(node, mode="json", fallback=dict, warnings=False)
    fields["roles"] = sorted(fields["roles"])
    return json.dumps({"version": _VERSION, "node": fields}, indent=1, sort_keys=True) + "\n"


def read_node_document(text: str) -> NodePlan:
    """Return the plan in a document.

    Raises InputError for an unknown version, an unknown or missing key, and a value of another type.
    """
    try:
        document = parse_json(text, LARGE)
        version = document["version"]
        node = _ADAPTER.validate_python(document["node"]) if version == _VERSION else None
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise InputError(f"invalid node document (a machine's plan): {str(error).splitlines()[0]}", fix=_PUSH) from None
    if node is None:
        raise InputError(f"node document (a machine's plan) of version {version}, bundle reads {_VERSION}", fix=_PUSH)
    # pydantic ignores unknown keys of a dataclass, and converts values: then the texts differ.
    if parse_json(node_document(node), LARGE) != document:
        raise InputError("invalid node document (a machine's plan): unknown keys, or values of another type", fix=_PUSH)
    return node


def region_documents(plan: FleetPlan, region: str, ring: Ring, catalog: Catalog) -> Mapping[str, str]:
    """Return the documents of a ring in the bucket of a region, by name: one for each pool and permanent machine.

    Permanent machines follow `stable`; those of sites are in the bucket of the home region.
    """
    pools = (pool for pool in plan.pools if pool.region == region and pool.group_spec.ring is ring)
    documents = {pool.name: pool_document(plan, pool, catalog) for pool in pools}
    for node in permanent_nodes(plan) if ring is Ring.STABLE else ():
        if node.region == region:
            documents[node.name] = node_document(node)
    return documents
