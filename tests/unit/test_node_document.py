"""Node documents: the plan of a machine as JSON and back."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan.node_document import node_document, pool_document, read_node_document, region_documents
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_node
from bedplate.spec.groups import Ring
from roles.catalog import roles_of
from tests.testlab.fleets.sketch import with_group
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

CATALOG = load_catalog()
LAB = plan_of(EXAMPLES / "lab.yaml")


def nodes(file: Path) -> Iterator[NodePlan]:
    """Yield the permanent machines, and one machine of each pool."""
    plan = plan_of(file)
    yield from permanent_nodes(plan)
    for pool in plan.pools:
        yield pool_node(plan, pool, f"{pool.group}.{pool.region}", CATALOG)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_document_gives_the_same_plan_and_the_same_roles(file: Path) -> None:
    """The roles of a machine need nothing else from the fleet file."""
    for node in nodes(file):
        read = read_node_document(node_document(node))

        assert read == node
        assert roles_of(read) == roles_of(node)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "of version 2, bundle reads 1"),
        ('"fleet": "lab"', '"fleet": "lab", "sudo": true', "unknown keys"),
        ('"fabric": false', '"fabric": "no"', "unknown keys, or values of another type"),
        ('"fleet": "lab",', "", "invalid node document"),
        ("{", "", "invalid node document"),
    ],
)
def test_an_invalid_document_is_refused(old: str, new: str, message: str) -> None:
    """An unknown version or key, a converted value, a missing key, and text that is not JSON."""
    text = pool_document(LAB, LAB.pools[0], CATALOG)

    with pytest.raises(InputError, match=message):
        read_node_document(text.replace(old, new, 1))


def test_a_bucket_has_the_documents_of_its_region() -> None:
    """One for each pool of the ring; permanent machines follow `stable`, those of sites in the home region."""
    plan = replace(LAB, pools=(with_group(LAB.pools[0], ring=Ring.CANARY), *LAB.pools[1:]))
    canary = region_documents(plan, "us-west-2", Ring.CANARY, CATALOG)
    documents = region_documents(plan, "us-west-2", Ring.STABLE, CATALOG)

    assert [*canary] == [LAB.pools[0].name]
    assert {pool.name for pool in LAB.pools[1:] if pool.region == "us-west-2"} < {*documents}
    assert not canary.keys() & documents.keys()
    assert {"control-1.us-west-2", "titan-01.cellar"} < {*documents}
    assert "titan-01.cellar" not in region_documents(plan, "us-east-1", Ring.STABLE, CATALOG)
