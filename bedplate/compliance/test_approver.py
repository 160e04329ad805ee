"""Rules for members of the control plane: the approver of nodes."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from roles.approver.role import Approver

pytestmark = applies_if(lambda node: node.cluster is not None and node.cluster.member is not None)


def test_approver_has_the_planned_rights(host: Host) -> None:
    """It approves certificates of nodes, and can read no Secret."""
    changed = differing_files(host, Approver().files())

    assert not changed, f"changed: {', '.join(changed)}"
