"""All checks of a graph."""

from collections.abc import Callable, Iterator

from bedplate.graph.audit.document import Graph
from bedplate.graph.audit.exposure import check_edge, check_exposure
from bedplate.graph.audit.policies import (
    check_acls,
    check_attachments,
    check_bucket_blocks,
    check_permissions,
    check_policies,
    check_publicly_accessible,
    check_trust,
)
from bedplate.graph.audit.resources import (
    check_clear_text,
    check_default_groups,
    check_encryption,
    check_from_zero,
    check_keeping,
    check_launched,
    check_metadata,
    check_owners,
    check_public_addresses,
    check_volumes,
)
from bedplate.graph.audit.rules import StackFault

Checker = Callable[[Graph], Iterator[StackFault]]

CHECKERS: tuple[Checker, ...] = (
    check_exposure,
    check_default_groups,
    check_public_addresses,
    check_metadata,
    check_encryption,
    check_volumes,
    check_bucket_blocks,
    check_acls,
    check_policies,
    check_publicly_accessible,
    check_clear_text,
    check_edge,
    check_permissions,
    check_trust,
    check_attachments,
    check_keeping,
    check_owners,
    check_launched,
    check_from_zero,
)


def audit(graph: Graph) -> tuple[StackFault, ...]:
    """Return every fault of what a graph holds, resource by resource in its order."""
    places = {node.urn: place for place, node in enumerate(graph.nodes)}
    found = [told for check in CHECKERS for told in check(graph)]
    return tuple(sorted(found, key=lambda told: (places[told.urn], told.code, told.key)))
