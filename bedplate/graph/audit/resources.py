"""How machines start: metadata service, public addresses, volumes, and the group that they fall back on."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.graph.audit.document import Graph, Node, Properties, is_on, is_seen, number, part, parts, says, words
from bedplate.graph.audit.policies import Statement, is_hidden, statements
from bedplate.graph.audit.rules import StackFault, fault
from bedplate.plan.registration import DEVICES, EFA, ENABLED, INSTANCE_TYPE, LABEL, RESOURCE, devices

LAUNCHERS = ("ec2.LaunchTemplate", "ec2.Instance", "ec2.LaunchConfiguration", "ec2.SpotInstanceRequest")
_USE, _PEOPLES_HOPS = "bedplate:use", 2
_MAPPINGS = "blockDeviceMappings"
_VOLUMES = ("rootBlockDevice", "ebsBlockDevices")


def check_metadata(graph: Graph) -> Iterator[StackFault]:
    """Tell machines whose credentials a forwarded request, or a container, can fetch."""
    for node in graph.of(*LAUNCHERS):
        options = part(node.inputs, "metadataOptions")
        if options.get("httpEndpoint") == "disabled" or not is_seen(node.inputs.get("metadataOptions")):
            continue
        if not says(options, "httpTokens", "required"):
            told = options.get("httpTokens", "not set")
            yield fault("S106", node.urn, "metadataOptions.httpTokens", f"tokens are {told}")
        hops = number(options.get("httpPutResponseHopLimit"))
        if hops is not None and hops > (_PEOPLES_HOPS if _is_for_people(node) else 1):
            yield fault("S107", node.urn, "metadataOptions.httpPutResponseHopLimit", f"{hops} hops are allowed")


def _is_for_people(node: Node) -> bool:
    """Whether its machines say by their tags that people log in: those hold the role anyhow, container or not."""
    tags = [spec.get("tags") for spec in parts(node.inputs.get("tagSpecifications"))]
    return any(isinstance(each, dict) and each.get(_USE) == "ssh" for each in (node.inputs.get("tags"), *tags))


def check_public_addresses(graph: Graph) -> Iterator[StackFault]:
    """Tell what gives a machine a public address when it starts."""
    for node in graph.of("ec2.Subnet", "ec2.DefaultSubnet"):
        if node.inputs.get("mapPublicIpOnLaunch") in (True, "true"):
            yield fault("S105", node.urn, "mapPublicIpOnLaunch", "each machine here gets a public address")
    for node in graph.of(*LAUNCHERS):
        faces = [("", node.inputs)]
        faces += [
            (f"networkInterfaces.{i}.", face) for i, face in enumerate(parts(node.inputs.get("networkInterfaces")))
        ]
        for path, face in faces:
            if face.get("associatePublicIpAddress") in (True, "true"):
                yield fault("S105", node.urn, f"{path}associatePublicIpAddress", "it starts with a public address")


def check_volumes(graph: Graph) -> Iterator[StackFault]:
    """Tell volumes that are not encrypted; an account that encrypts all of them by default is believed."""
    if any(
        is_on(node.inputs, "enabled") or "enabled" not in node.inputs for node in graph.of("ebs.EncryptionByDefault")
    ):
        return
    for node in graph.of("ebs.Volume"):
        if not is_on(node.inputs, "encrypted"):
            yield fault("S203", node.urn, "encrypted", "the volume is not encrypted")
    for node in graph.of(*LAUNCHERS):
        yield from _volumes_of(node)


def _volumes_of(node: Node) -> Iterator[StackFault]:
    told = dict(_volumes(node))
    for path, volume in told.items():
        # A volume made from an encrypted snapshot is encrypted; which one is, only AWS knows.
        if not is_on(volume, "encrypted") and not volume.get("snapshotId"):
            yield fault("S203", node.urn, f"{path}.encrypted", "the volume is not encrypted")
    if not told and all(is_seen(node.inputs.get(key)) for key in (_MAPPINGS, *_VOLUMES)):
        yield fault("S203", node.urn, _MAPPINGS, "nothing says that its root volume is encrypted")


def _volumes(node: Node) -> Iterator[tuple[str, Properties]]:
    for index, mapping in enumerate(parts(node.inputs.get(_MAPPINGS))):
        if "ebs" in mapping:
            yield f"{_MAPPINGS}.{index}.ebs", part(mapping, "ebs")
    for key in _VOLUMES:
        for index, volume in enumerate(parts(node.inputs.get(key))):
            yield f"{key}.{index}", volume


def check_default_groups(graph: Graph) -> Iterator[StackFault]:
    """Tell default security groups that let anything in or out."""
    for node in graph.of("ec2.DefaultSecurityGroup"):
        for key in ("ingress", "egress"):
            if node.inputs.get(key):
                yield fault("S104", node.urn, key, "the default security group has rules")


_FABRIC = ("efa", "efa-only")


def check_from_zero(graph: Graph) -> Iterator[StackFault]:
    """Tell groups whose tags promise other machines than their templates launch."""
    for node in graph.of("autoscaling.Group"):
        told = node.inputs.get("tags")
        tags = {str(tag.get("key")): tag.get("value") for tag in parts(told)}
        if is_seen(told) and ENABLED in tags:
            yield from _judge(node, _template(graph, node), tags)


def _template(graph: Graph, group: Node) -> Node | None:
    """Return the launch template of a group, where the graph holds it."""
    policy = part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate")
    spec = part(policy, "launchTemplateSpecification") or part(group.inputs, "launchTemplate")
    key = "mixedInstancesPolicy" if policy else "launchTemplate"
    idents = words([spec.get("launchTemplateId"), spec.get("id")])
    kinds = "ec2.LaunchTemplate"
    found = graph.targets(group, key, kinds, ident=idents[0] if idents else "")
    return next(iter(found), None)


def _judge(group: Node, template: Node | None, tags: Mapping[str, object]) -> Iterator[StackFault]:
    types = _types(group, template)
    told = {key: tags.get(f"{RESOURCE}{key}") for key in sorted(DEVICES)}
    if types and load_catalog().types.keys() >= {*types}:
        there = _devices(types) | _fabric(template)
        for key, count in told.items():
            if not _agrees(count, there.get(key, 0)):
                yield _fault(group, f"{RESOURCE}{key}", count, f"each machine has {there.get(key, 0)}")
    named = tags.get(f"{LABEL}{INSTANCE_TYPE}")
    if len(types) == 1 and is_seen(named) and named != types[0]:
        yield _fault(group, f"{LABEL}{INSTANCE_TYPE}", named, f"it launches {types[0]}")


def _agrees(told: object, count: int) -> bool:
    return not is_seen(told) or str(told or 0) == str(count)


def _fault(group: Node, tag: str, told: object, truth: str) -> StackFault:
    return fault("S801", group.urn, "tags", f"the tag {tag} is {told or 'missing'}, and {truth}")


def _types(group: Node, template: Node | None) -> tuple[str, ...]:
    """Return the types that a group launches; none where it asks for them by requirements."""
    overrides = parts(part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate").get("overrides"))
    if any(one.get("instanceRequirements") for one in overrides):
        return ()
    own = words(template.inputs.get("instanceType")) if template else ()
    return words([one.get("instanceType") for one in overrides]) or own


def _devices(types: tuple[str, ...]) -> dict[str, int]:
    """Return what a pod may count on, whichever of the types comes: of each device the least."""
    each = [devices(load_catalog().types[name]) for name in types]
    return {key: min(one[key] for one in each) for key in each[0] if all(key in one for one in each)}


def _fabric(template: Node | None) -> dict[str, int]:
    faces: tuple[Properties, ...] = parts(template.inputs.get("networkInterfaces")) if template else ()
    return {EFA: sum(face.get("interfaceType") in _FABRIC for face in faces)}


OWNER = "owner"
_PROVIDER = "pulumi:providers:aws"
_LAUNCHED = ("instance", "volume")


def check_owners(graph: Graph) -> Iterator[StackFault]:
    """Tell what carries tags and none of an owner's."""
    defaults = {node.urn: _default_tags(node) for node in graph.of(_PROVIDER)}
    for node in graph.nodes:
        if not _is_tagged(node) or node.kind == _PROVIDER:
            continue
        tags = _tags(node)
        # The provider's check merges its default tags into the inputs: where it has, they do not count again.
        inherited = defaults.get(node.provider.rpartition("::")[0], {})
        told = tags if tags is None or tags.keys() & inherited.keys() else {**inherited, **tags}
        if told is not None and not _names_owner(told):
            yield fault("S701", node.urn, "tags", "no tag names its owner")


def check_launched(graph: Graph) -> Iterator[StackFault]:
    """Tell launch templates whose machines and volumes would have no owner."""
    for node in graph.of("ec2.LaunchTemplate"):
        told = node.inputs.get("tagSpecifications")
        specs = {spec.get("resourceType"): spec.get("tags") for spec in parts(told)}
        bare = [kind for kind in _LAUNCHED if not _names_owner(specs.get(kind))]
        if is_seen(told) and bare:
            yield fault("S702", node.urn, "tagSpecifications", f"each {' and '.join(bare)} it launches has no owner")


def _is_tagged(node: Node) -> bool:
    return "tags" in node.inputs or "tagsAll" in node.outputs or "tags" in node.outputs


def _tags(node: Node) -> Mapping[str, Any] | None:
    """Return a resource's tags; None where they cannot be seen."""
    told = node.inputs.get("tags", node.outputs.get("tagsAll", {}))
    if not is_seen(told):
        return None
    if isinstance(told, list):
        return {str(tag.get("key")): tag.get("value") for tag in parts(told)}
    return told if isinstance(told, dict) else {}


def _names_owner(tags: object) -> bool:
    """Whether tags name an owner, or cannot be seen."""
    if not is_seen(tags):
        return True
    return isinstance(tags, dict) and any(key.lower() == OWNER and bool(value) for key, value in tags.items())


def _default_tags(provider: Node) -> Properties:
    """Return the default tags of a provider, which the engine keeps as a JSON text."""
    told = provider.inputs.get("defaultTags")
    if isinstance(told, str) and is_seen(told):
        try:
            told = json.loads(told)
        except (json.JSONDecodeError, RecursionError):
            return {}
    tags = told.get("tags") if isinstance(told, dict) else None
    return tags if isinstance(tags, dict) else {}


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
