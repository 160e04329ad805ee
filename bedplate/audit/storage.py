"""What holds data: encrypted at rest, refused in clear text, kept when its stack goes."""

from collections.abc import Callable, Iterable, Iterator

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.policy import Statement, is_hidden, statements
from bedplate.audit.value import is_on, is_seen, part, says

_DATA = ("efs.FileSystem", "s3.Bucket", "kms.Key")


def check_encryption(graph: Graph) -> Iterator[StackFault]:
    """Tell file systems, buckets and parameters that do not say how they are encrypted."""
    for node in graph.of("efs.FileSystem"):
        if not is_on(node.inputs, "encrypted"):
            yield fault("S201", node.urn, "encrypted", "the file system is not encrypted")
    ciphered = graph.guards("s3.BucketServerSideEncryptionConfiguration", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if node.urn not in ciphered and not node.inputs.get("serverSideEncryptionConfiguration"):
            yield fault("S202", node.urn, "", "nothing says which key encrypts the bucket")
    for node in graph.of("ssm.Parameter"):
        if not says(node.inputs, "type", "SecureString"):
            yield fault("S204", node.urn, "type", f"the parameter is a {node.inputs.get('type', 'String')}")


def check_clear_text(graph: Graph) -> Iterator[StackFault]:
    """Tell buckets and file systems that answer without TLS."""
    policies = graph.guards("s3.BucketPolicy", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if not _is_guarded(_holders(node, policies.get(node.urn, ())), _covers_bucket):
            yield fault("S401", node.urn, "", "no policy refuses clear text")
    policies = graph.guards("efs.FileSystemPolicy", "fileSystemId", "efs.FileSystem")
    for node in graph.of("efs.FileSystem"):
        if not _is_guarded(policies.get(node.urn, ()), _covers_files):
            yield fault("S402", node.urn, "", "no policy refuses clear-text mounts")


def _holders(bucket: Node, policies: Iterable[Node]) -> tuple[Node, ...]:
    return (*policies, bucket) if "policy" in bucket.inputs else tuple(policies)


def _is_guarded(holders: Iterable[Node], covers: Callable[[Statement], bool]) -> bool:
    return any(
        is_hidden(node.inputs, "policy")
        or any(one.refuses_clear_text and covers(one) for one in statements(node.inputs, "policy"))
        for node in holders
    )


def _covers_bucket(statement: Statement) -> bool:
    """Whether a statement is of every action on a bucket, its list of objects too, and on every object in it."""
    is_whole = any(action in {"*", "s3:*"} for action in statement.actions)
    named = [name.rpartition(":")[2].partition("/") for name in statement.resources]
    is_on_bucket = any(not slash for _, slash, _ in named)
    is_on_objects = any(key == "*" if slash else bucket.endswith("*") for bucket, slash, key in named)
    return is_whole and is_on_bucket and is_on_objects


def _covers_files(statement: Statement) -> bool:
    return any(action in {"*", "elasticfilesystem:*", "elasticfilesystem:client*"} for action in statement.actions)


def check_keeping(graph: Graph) -> Iterator[StackFault]:
    """Tell data that a destroy, or a slip, would take."""
    for node in graph.of(*_DATA):
        if node.protect is False:
            yield fault("S601", node.urn, "protect", "nothing protects it from being destroyed")
    versioned = graph.guards("s3.BucketVersioning", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if node.inputs.get("forceDestroy") in (True, "true"):
            yield fault("S602", node.urn, "forceDestroy", "a destroy deletes every object")
        if not any(_keeps_versions(one) for one in versioned.get(node.urn, ())) and not _is_versioned(node):
            yield fault("S603", node.urn, "", "old versions of objects are not kept")


def _keeps_versions(node: Node) -> bool:
    told = node.inputs.get("versioningConfiguration")
    return not is_seen(told) or says(part(node.inputs, "versioningConfiguration"), "status", "Enabled")


def _is_versioned(bucket: Node) -> bool:
    return is_on(part(bucket.inputs, "versioning"), "enabled")
