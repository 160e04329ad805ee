"""Rules for members of the control plane: tokens of the cluster for people."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan
from roles.tokens.role import token_files

pytestmark = applies_if(lambda node: node.cluster is not None and node.cluster.member is not None)


def test_people_get_their_own_token_only(host: Host, node: NodePlan) -> None:
    """The program that makes tokens is the shipped one: it asks the kernel who has connected."""
    assert node.cluster
    assert node.cluster.member
    changed = differing_files(host, token_files(node.cluster.member.address))

    assert not changed, f"changed: {', '.join(changed)}"
