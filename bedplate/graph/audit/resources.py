"""Checks of machines, storage and tags (S104 to S107, S2, S401 and S402, S6, S7, S8)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bedplate.graph.audit.document import (
    Graph,
    Node,
    Properties,
    StackFault,
    embedded,
    fault,
    has_value,
    is_on,
    is_seen,
    number,
    part,
    parts,
    public_names,
    words,
)
from bedplate.graph.audit.policies import Statement, is_hidden, statements
from bedplate.rules import Rule

DEFAULT_GROUP_IN_USE = Rule(
    "S104",
    "Resources launched without a security group get the default one, and its rules by accident.",
    "remove its rules, and create a security group for the resources that need them",
    "CIS AWS Foundations Benchmark, VPC default security group",
)
PUBLIC_ON_LAUNCH = Rule(
    "S105",
    "A machine with a public address is one wrong rule away from the internet.",
    "launch without one; attach an elastic IP where one is needed",
)
METADATA_WITHOUT_TOKEN = Rule(
    "S106",
    "With IMDSv1, a program that forwards requests (SSRF) leaks the machine's credentials.",
    "require IMDSv2: `httpTokens: required` in metadataOptions",
    "Amazon EC2 user guide, instance metadata",
)
METADATA_HOPS = Rule(
    "S107",
    "With a hop limit above 1, a container can use the machine's role.",
    "set `httpPutResponseHopLimit: 1`; 2 for machines with the tag bedplate:use = ssh",
    "Amazon EC2 user guide, instance metadata",
)
FILES_IN_CLEAR = Rule("S201", "A file system cannot be encrypted after its creation.", "set `encrypted: true`")
BUCKET_KEY_UNSAID = Rule(
    "S202",
    "The key that encrypts a bucket decides who can read it.",
    "add a server-side encryption configuration with a key",
)
VOLUME_IN_CLEAR = Rule("S203", "Snapshots of an unencrypted volume are readable.", "set `encrypted: true`")
PARAMETER_IN_CLEAR = Rule("S204", "Parameters tend to hold secrets sooner or later.", "set `type: SecureString`")
BUCKET_BY_HTTP = Rule(
    "S401",
    "S3 accepts plain HTTP unless the bucket policy denies it.",
    "deny s3:* to all principals if aws:SecureTransport is false, on the bucket and its objects",
    "Amazon S3 user guide, security best practices",
)
FILES_BY_CLEAR_MOUNT = Rule(
    "S402",
    "EFS accepts unencrypted NFS unless the file system policy denies it.",
    "add a policy that denies access if aws:SecureTransport is false",
    "Amazon EFS user guide, encrypting data in transit",
)
DATA_UNPROTECTED = Rule("S601", "A single `pulumi destroy` deletes the data.", "set the option `protect`")
BUCKET_FORCED = Rule("S602", "With forceDestroy, `pulumi destroy` deletes all objects.", "remove forceDestroy")
BUCKET_UNVERSIONED = Rule("S603", "Overwritten and deleted objects are lost.", "enable versioning")
NO_OWNER = Rule("S701", "The tag shows whom to ask about a resource and who pays.", "add the tag owner")
LAUNCHED_WITHOUT_OWNER = Rule(
    "S702",
    "The provider's default tags do not apply to machines and volumes that a launch template creates.",
    "add the tag owner to the tagSpecifications of instances and volumes",
)
FROM_ZERO_TAGS = Rule(
    "S801",
    "The autoscaler knows an empty group's machines only by its tags. A pod waits for ever if they are wrong.",
    "set the node-template tags by the instance types and network interfaces of the launch template",
    "cluster-autoscaler, cloudprovider/aws, Scaling a node group to 0",
)

LAUNCHERS = ("ec2.LaunchTemplate", "ec2.Instance", "ec2.LaunchConfiguration", "ec2.SpotInstanceRequest")
_USE, _SSH_HOPS = "bedplate:use", 2
_MAPPINGS = "blockDeviceMappings"
_VOLUMES = ("rootBlockDevice", "ebsBlockDevices")


def check_metadata(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each machine whose credentials a forwarded request or a container can read."""
    for node in graph.of(*LAUNCHERS):
        options = part(node.inputs, "metadataOptions")
        if options.get("httpEndpoint") == "disabled" or not is_seen(node.inputs.get("metadataOptions")):
            continue
        if not has_value(options, "httpTokens", "required"):
            value = options.get("httpTokens", "not set")
            yield fault(METADATA_WITHOUT_TOKEN, node.urn, "metadataOptions.httpTokens", f"httpTokens is {value}")
        hops = number(options.get("httpPutResponseHopLimit"))
        if hops is not None and hops > (_SSH_HOPS if _is_for_ssh(node) else 1):
            yield fault(METADATA_HOPS, node.urn, "metadataOptions.httpPutResponseHopLimit", f"the hop limit is {hops}")


def _is_for_ssh(node: Node) -> bool:
    """Return whether the machines have the tag bedplate:use = ssh. People who log in can use the role anyway."""
    tags = [spec.get("tags") for spec in parts(node.inputs.get("tagSpecifications"))]
    return any(isinstance(table, dict) and table.get(_USE) == "ssh" for table in (node.inputs.get("tags"), *tags))


def check_public_addresses(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each subnet or machine that assigns a public address at launch."""
    for node in graph.of("ec2.Subnet", "ec2.DefaultSubnet"):
        if node.inputs.get("mapPublicIpOnLaunch") in (True, "true"):
            yield fault(
                PUBLIC_ON_LAUNCH, node.urn, "mapPublicIpOnLaunch", "each machine in the subnet gets a public address"
            )
    for node in graph.of(*LAUNCHERS):
        cards = enumerate(parts(node.inputs.get("networkInterfaces")))
        for path, holder in (("", node.inputs), *((f"networkInterfaces.{index}.", card) for index, card in cards)):
            if holder.get("associatePublicIpAddress") in (True, "true"):
                yield fault(
                    PUBLIC_ON_LAUNCH, node.urn, f"{path}associatePublicIpAddress", "the machine gets a public address"
                )


def check_volumes(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each unencrypted volume, unless the account encrypts volumes by default."""
    if any(
        is_on(node.inputs, "enabled") or "enabled" not in node.inputs for node in graph.of("ebs.EncryptionByDefault")
    ):
        return
    for node in graph.of("ebs.Volume"):
        if not is_on(node.inputs, "encrypted"):
            yield fault(VOLUME_IN_CLEAR, node.urn, "encrypted", "the volume is not encrypted")
    for node in graph.of(*LAUNCHERS):
        yield from _volumes_of(node)


def _volumes_of(node: Node) -> Iterator[StackFault]:
    volumes = dict(_volumes(node))
    for path, volume in volumes.items():
        # A volume from an encrypted snapshot is encrypted, and the graph does not show whether the snapshot is.
        if not is_on(volume, "encrypted") and not volume.get("snapshotId"):
            yield fault(VOLUME_IN_CLEAR, node.urn, f"{path}.encrypted", "the volume is not encrypted")
    if not volumes and all(is_seen(node.inputs.get(key)) for key in (_MAPPINGS, *_VOLUMES)):
        yield fault(VOLUME_IN_CLEAR, node.urn, _MAPPINGS, "its root volume is not declared as encrypted")


def _volumes(node: Node) -> Iterator[tuple[str, Properties]]:
    for index, mapping in enumerate(parts(node.inputs.get(_MAPPINGS))):
        if "ebs" in mapping:
            yield f"{_MAPPINGS}.{index}.ebs", part(mapping, "ebs")
    for key in _VOLUMES:
        for index, volume in enumerate(parts(node.inputs.get(key))):
            yield f"{key}.{index}", volume


def check_default_groups(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each default security group with rules."""
    for node in graph.of("ec2.DefaultSecurityGroup"):
        for key in ("ingress", "egress"):
            if node.inputs.get(key):
                yield fault(DEFAULT_GROUP_IN_USE, node.urn, key, "the default security group has rules")


DeviceCounts = Mapping[str, Mapping[str, int]]
"""The devices of each instance type, by Kubernetes resource name."""

# Tags of the cluster autoscaler: cluster-autoscaler, cloudprovider/aws/README.md.
_AUTOSCALER = "k8s.io/cluster-autoscaler"
_TYPE_LABEL = f"{_AUTOSCALER}/node-template/label/node.kubernetes.io/instance-type"
_RESOURCE = f"{_AUTOSCALER}/node-template/resources/"
_EFA = "vpc.amazonaws.com/efa"
_DEVICES = ("amd.com/gpu", "aws.amazon.com/neuron", "nvidia.com/gpu", _EFA)
_EFA_INTERFACES = ("efa", "efa-only")


def check_from_zero(graph: Graph, device_counts: DeviceCounts) -> Iterator[StackFault]:
    """Yield a fault for each Auto Scaling group whose tags contradict its launch template."""
    for node in graph.of("autoscaling.Group"):
        visible = node.inputs.get("tags")
        tags = {str(tag.get("key")): tag.get("value") for tag in parts(visible)}
        if is_seen(visible) and f"{_AUTOSCALER}/enabled" in tags:
            yield from _tag_faults(node, _template(graph, node), tags, device_counts)


def _template(graph: Graph, group: Node) -> Node | None:
    """Return the launch template of a group, if the graph contains it."""
    policy = part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate")
    spec = part(policy, "launchTemplateSpecification") or part(group.inputs, "launchTemplate")
    key = "mixedInstancesPolicy" if policy else "launchTemplate"
    idents = words([spec.get("launchTemplateId"), spec.get("id")])
    targets = graph.targets(group, key, "ec2.LaunchTemplate", ident=idents[0] if idents else "")
    return next(iter(targets), None)


def _tag_faults(
    group: Node, template: Node | None, tags: Mapping[str, object], device_counts: DeviceCounts
) -> Iterator[StackFault]:
    types = _types(group, template)
    if types and all(name in device_counts for name in types):
        counts = _least_devices([device_counts[name] for name in types]) | _fabric(template)
        for device in _DEVICES:
            value, count = tags.get(f"{_RESOURCE}{device}"), counts.get(device, 0)
            if is_seen(value) and str(value or 0) != str(count):
                yield _tag_fault(group, f"{_RESOURCE}{device}", value, f"each machine has {count}")
    name = tags.get(_TYPE_LABEL)
    if len(types) == 1 and is_seen(name) and name != types[0]:
        yield _tag_fault(group, _TYPE_LABEL, name, f"the group launches {types[0]}")


def _tag_fault(group: Node, tag: str, value: object, fact: str) -> StackFault:
    return fault(FROM_ZERO_TAGS, group.urn, "tags", f"the tag {tag} is {value or 'missing'}, but {fact}")


def _types(group: Node, template: Node | None) -> tuple[str, ...]:
    """Return the instance types that a group launches; none if it has instance requirements instead."""
    overrides = parts(part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate").get("overrides"))
    if any(override.get("instanceRequirements") for override in overrides):
        return ()
    own = words(template.inputs.get("instanceType")) if template else ()
    return words([override.get("instanceType") for override in overrides]) or own


def _least_devices(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the devices that machines of every type have, each with the smallest count."""
    return {key: min(table[key] for table in counts) for key in counts[0] if all(key in table for table in counts)}


def _fabric(template: Node | None) -> dict[str, int]:
    cards: tuple[Properties, ...] = parts(template.inputs.get("networkInterfaces")) if template else ()
    return {_EFA: sum(card.get("interfaceType") in _EFA_INTERFACES for card in cards)}


OWNER = "owner"
_PROVIDER = "pulumi:providers:aws"
_LAUNCHED = ("instance", "volume")


def check_owners(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each taggable resource without the tag owner."""
    defaults = {node.urn: _default_tags(node) for node in graph.of(_PROVIDER)}
    for node in graph.nodes:
        if not _is_tagged(node) or node.kind == _PROVIDER:
            continue
        tags = _tags(node)
        # Inputs may already contain the provider's default tags.
        inherited = defaults.get(node.provider.rpartition("::")[0], {})
        merged = tags if tags is None or tags.keys() & inherited.keys() else {**inherited, **tags}
        if merged is not None and not _has_owner(merged):
            yield fault(NO_OWNER, node.urn, "tags", "the tag owner is missing")


def check_launched(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each launch template whose machines or volumes get no tag owner."""
    for node in graph.of("ec2.LaunchTemplate"):
        visible = node.inputs.get("tagSpecifications")
        specs = {spec.get("resourceType"): spec.get("tags") for spec in parts(visible)}
        bare = [kind for kind in _LAUNCHED if not _has_owner(specs.get(kind))]
        if is_seen(visible) and bare:
            yield fault(
                LAUNCHED_WITHOUT_OWNER,
                node.urn,
                "tagSpecifications",
                f"a launched {' and '.join(bare)} has no tag owner",
            )


def _is_tagged(node: Node) -> bool:
    return "tags" in node.inputs or "tagsAll" in node.outputs or "tags" in node.outputs


def _tags(node: Node) -> Mapping[str, Any] | None:
    """Return a resource's tags; None if they are hidden."""
    tags = node.inputs.get("tags", node.outputs.get("tagsAll", {}))
    if not is_seen(tags):
        return None
    if isinstance(tags, list):
        return {str(tag.get("key")): tag.get("value") for tag in parts(tags)}
    return tags if isinstance(tags, dict) else {}


def _has_owner(tags: object) -> bool:
    """Return whether the tags name an owner or are hidden."""
    if not is_seen(tags):
        return True
    return isinstance(tags, dict) and any(key.lower() == OWNER and bool(value) for key, value in tags.items())


def _default_tags(provider: Node) -> Properties:
    """Return the default tags of a provider, which Pulumi's engine stores as JSON text."""
    return embedded(embedded(provider.inputs.get("defaultTags")).get("tags"))


_DATA = ("efs.FileSystem", "s3.Bucket", "kms.Key")


def check_encryption(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each unencrypted file system or parameter, and each bucket without a declared key."""
    for node in graph.of("efs.FileSystem"):
        if not is_on(node.inputs, "encrypted"):
            yield fault(FILES_IN_CLEAR, node.urn, "encrypted", "the file system is not encrypted")
    encryption = graph.settings("s3.BucketServerSideEncryptionConfiguration", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if node.urn not in encryption and not node.inputs.get("serverSideEncryptionConfiguration"):
            yield fault(BUCKET_KEY_UNSAID, node.urn, "", "the bucket declares no encryption key")
    for node in graph.of("ssm.Parameter"):
        if not has_value(node.inputs, "type", "SecureString"):
            yield fault(
                PARAMETER_IN_CLEAR, node.urn, "type", f"the parameter has the type {node.inputs.get('type', 'String')}"
            )


def check_clear_text(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each bucket or file system that accepts requests without TLS."""
    policies = graph.settings("s3.BucketPolicy", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if not _denies_clear_text(_holders(node, policies.get(node.urn, ())), _covers_bucket):
            yield fault(BUCKET_BY_HTTP, node.urn, "", "no policy denies requests without TLS")
    policies = graph.settings("efs.FileSystemPolicy", "fileSystemId", "efs.FileSystem")
    for node in graph.of("efs.FileSystem"):
        if not _denies_clear_text(policies.get(node.urn, ()), _covers_files):
            yield fault(FILES_BY_CLEAR_MOUNT, node.urn, "", "no policy denies mounts without TLS")


def _holders(bucket: Node, policies: Iterable[Node]) -> tuple[Node, ...]:
    return (*policies, bucket) if "policy" in bucket.inputs else tuple(policies)


def _denies_clear_text(holders: Iterable[Node], covers: Callable[[Statement], bool]) -> bool:
    return any(
        is_hidden(node.inputs, "policy")
        or any(entry.denies_clear_text and covers(entry) for entry in statements(node.inputs, "policy"))
        for node in holders
    )


def _covers_bucket(statement: Statement) -> bool:
    """Return whether a statement applies to every action on a bucket and on all its objects."""
    is_whole = any(action in {"*", "s3:*"} for action in statement.actions)
    named = [name.rpartition(":")[2].partition("/") for name in statement.resources]
    is_on_bucket = any(not slash for _, slash, _ in named)
    is_on_objects = any(key == "*" if slash else bucket.endswith("*") for bucket, slash, key in named)
    return is_whole and is_on_bucket and is_on_objects


def _covers_files(statement: Statement) -> bool:
    return any(action in {"*", "elasticfilesystem:*", "elasticfilesystem:client*"} for action in statement.actions)


def check_keeping(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for data that `pulumi destroy` or an accidental overwrite would delete."""
    for node in graph.of(*_DATA):
        if node.protect is False and not public_names(node):
            yield fault(DATA_UNPROTECTED, node.urn, "protect", "the option protect is off")
    versioned = graph.settings("s3.BucketVersioning", "bucket", "s3.Bucket")
    for node in graph.of("s3.Bucket"):
        if node.inputs.get("forceDestroy") in (True, "true"):
            yield fault(BUCKET_FORCED, node.urn, "forceDestroy", "forceDestroy is on")
        keeps_versions = any(map(_keeps_versions, versioned.get(node.urn, ()))) or _is_versioned(node)
        # Public objects are no data: the stack writes them.
        if not keeps_versions and not public_names(node):
            yield fault(BUCKET_UNVERSIONED, node.urn, "", "versioning is off")


def _keeps_versions(node: Node) -> bool:
    hidden = not is_seen(node.inputs.get("versioningConfiguration"))
    return hidden or has_value(part(node.inputs, "versioningConfiguration"), "status", "Enabled")


def _is_versioned(bucket: Node) -> bool:
    return is_on(part(bucket.inputs, "versioning"), "enabled")
