"""Rules for members of the control plane and the hub: tokens for people, who get nothing else there."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files, parse_keywords
from bedplate.plan.fleet import Access
from bedplate.plan.nodes import NodePlan
from roles.hardened.logins import HUB_TOKEN_PROGRAM, TOKEN_PROGRAM
from roles.tokens.role import Tokens, cluster_accounts


@applies_if(lambda node: node.cluster is not None and node.cluster.member is not None)
def test_people_get_their_own_token_only(host: Host, node: NodePlan) -> None:
    """The program that makes tokens is the planned one: it asks the kernel who has connected."""
    assert node.cluster
    assert node.cluster.member
    changed = differing_files(host, Tokens(node.cluster.member.address, cluster_accounts(node.accounts)).files())

    assert not changed, f"changed: {', '.join(changed)}"


@applies_if(lambda node: bool(node.accounts.having(Access.TOKENS)))
def test_others_than_administrators_get_tokens_only(host: Host, node: NodePlan) -> None:
    """For people without administration, sshd runs the token program only: no shell, terminal or forwarding."""
    program = HUB_TOKEN_PROGRAM if node.hub else TOKEN_PROGRAM
    for person in node.accounts.having(Access.TOKENS):
        sshd = parse_keywords(host.check_output("sshd -T -C user=%s,host=elsewhere,addr=192.0.2.1", person.name))

        forced = [sshd[keyword] for keyword in ("forcecommand", "permittty", "disableforwarding")]
        assert forced == [program, "no", "yes"], person.name
