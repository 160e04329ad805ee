"""All checks of a graph."""

from collections.abc import Callable, Iterator

from bedplate.audit.access import check_acls, check_bucket_blocks, check_policies, check_publicly_accessible
from bedplate.audit.edge import check_edge
from bedplate.audit.exposure import check_exposure
from bedplate.audit.fault import StackFault
from bedplate.audit.from_zero import check_from_zero
from bedplate.audit.graph import Graph
from bedplate.audit.machine import check_default_groups, check_metadata, check_public_addresses, check_volumes
from bedplate.audit.permission import check_attachments, check_permissions, check_trust
from bedplate.audit.storage import check_clear_text, check_encryption, check_keeping
from bedplate.audit.tag import check_launched, check_owners

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
