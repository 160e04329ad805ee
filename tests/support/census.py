"""Every EC2 network resource that lives in a region, and every fake: to see what a deleted one left behind."""

from bedplate.rehearsal.kinds import described
from bedplate.rehearsal.kinds.described import Noun, is_live
from bedplate.rehearsal.simulation import Aws

_ACL = Noun("networkAcl", "describe_network_acls", "NetworkAclIds", "NetworkAcls", "InvalidNetworkAclID.NotFound")
_NOUNS = (_ACL, *(value for value in vars(described).values() if isinstance(value, Noun)))


def census(aws: Aws) -> frozenset[str]:
    """Return a text for each live resource: its kind and what of its description does not change by itself."""
    found = {
        f"{noun.word} {sorted(value for key, value in item.items() if key.endswith('Id') and isinstance(value, str))}"
        for noun in _NOUNS
        for item in aws.call("ec2", noun.operation)[noun.listing]
        if is_live(item)
    }
    fakes = {f"{token} {ident}" for token, rows in aws.simulation.fakes.items() for ident in rows}
    return frozenset(found | fakes)
