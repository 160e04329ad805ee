"""Runs all checks of stack resources."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from bedplate.graph.audit import exposure, policies, resources
from bedplate.graph.audit.document import Graph, StackFault
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
    DeviceCounts,
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
from bedplate.rules import Rule, rules_of

STACK_RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in rules_of((exposure, policies, resources))}
)
Check = Callable[[Graph], Iterator[StackFault]]

CHECKS: tuple[Check, ...] = (
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
)


def audit(graph: Graph, device_counts: DeviceCounts = MappingProxyType({})) -> tuple[StackFault, ...]:
    """Return all faults of the resources, in the order of the resources.

    `device_counts` are the GPUs and other devices of each instance type, by Kubernetes resource name. Groups of other
    types are not checked against them.
    """
    places = {node.urn: place for place, node in enumerate(graph.nodes)}
    faults = [fault for check in CHECKS for fault in check(graph)]
    faults.extend(check_from_zero(graph, device_counts))
    return tuple(sorted(faults, key=lambda fault: (places[fault.urn], fault.code, fault.key)))
