"""Who may reach data and services: public ACLs, policies for everybody, buckets that are not shut."""

from collections.abc import Iterator

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.policy import statements
from bedplate.audit.value import is_on, part, parts, words

SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_ACLS = ("public-read", "public-read-write", "authenticated-read", "website")
_STRANGERS = ("/global/AllUsers", "/global/AuthenticatedUsers")
# Kinds with a policy of their own that says who may come; an endpoint's is not among them, for it opens nothing.
_POLICIES = (
    "ecr.RepositoryPolicy",
    "efs.FileSystemPolicy",
    "kms.Key",
    "kms.KeyPolicy",
    "kms.ReplicaKey",
    "s3.Bucket",
    "s3.BucketPolicy",
    "secretsmanager.Secret",
    "secretsmanager.SecretPolicy",
    "sns.Topic",
    "sns.TopicPolicy",
    "sqs.Queue",
    "sqs.QueuePolicy",
)


def check_bucket_blocks(graph: Graph) -> Iterator[StackFault]:
    """Tell buckets that a policy or an ACL could make public."""
    if any(all(is_on(node.inputs, key) for key in SWITCHES) for node in graph.of("s3.AccountPublicAccessBlock")):
        return
    blocks = graph.guards("s3.BucketPublicAccessBlock", "bucket", "s3.Bucket")
    for bucket in graph.of("s3.Bucket"):
        if bucket.urn not in blocks:
            yield fault("S301", bucket.urn, "", "no public access block guards the bucket")
    for node in graph.of("s3.BucketPublicAccessBlock"):
        off = [key for key in SWITCHES if not is_on(node.inputs, key)]
        if off:
            yield fault("S301", node.urn, off[0], f"{', '.join(off)}: not on")


def check_acls(graph: Graph) -> Iterator[StackFault]:
    """Tell buckets and objects whose ACL names strangers."""
    for node in graph.of("s3.Bucket", "s3.BucketAcl", "s3.BucketObject", "s3.BucketObjectv2"):
        acl = node.inputs.get("acl")
        if acl in _ACLS:
            yield fault("S302", node.urn, "acl", f"the ACL is {acl}")
        grants = (*parts(node.inputs.get("grants")), *parts(part(node.inputs, "accessControlPolicy").get("grants")))
        uris = [
            uri for grant in grants for holder in (grant, part(grant, "grantee")) for uri in words(holder.get("uri"))
        ]
        if any(uri.endswith(_STRANGERS) for uri in uris):
            yield fault("S302", node.urn, "grants", "the ACL grants something to strangers")


def check_policies(graph: Graph) -> Iterator[StackFault]:
    """Tell policies that let everybody in."""
    for node in graph.of(*_POLICIES):
        for statement in statements(node.inputs, "policy"):
            if statement.allows and statement.is_for_everybody and not statement.is_narrowed:
                yield fault("S303", node.urn, statement.key, "the statement is for everybody")


def check_publicly_accessible(graph: Graph) -> Iterator[StackFault]:
    """Tell databases and brokers that ask for a public address."""
    for node in graph.nodes:
        if node.inputs.get("publiclyAccessible") in (True, "true"):
            yield fault("S304", node.urn, "publiclyAccessible", "it has a public address")
