"""What every stack owes its operator: tags, nothing public, data that stays, machines that keep their keys."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.snapshot import Entry
from tests.support.declared import EXAMPLES, Declared, declared, declared_of, plan_of

KEPT = {
    "aws:ebs/volume:Volume",
    "aws:efs/backupPolicy:BackupPolicy",
    "aws:efs/fileSystem:FileSystem",
    "aws:efs/fileSystemPolicy:FileSystemPolicy",
    "aws:kms/alias:Alias",
    "aws:kms/key:Key",
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketVersioning:BucketVersioning",
}
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared_of(EXAMPLES / "lab.yaml")


# The one thing of a region that the world may dial.
GATEWAY = "lab-laptops"
# Machines of which there is one, at an address of their own: they are of no pool.
LONE = (GATEWAY, "lab-control-")


def _made(stacks: Declared, *types: str) -> Iterator[Entry]:
    for entries in stacks.values():
        yield from (entry for entry in entries if entry.is_in_cloud and (not types or entry.type in types))


def _pools(stacks: Declared, of: str) -> Iterator[Entry]:
    yield from (entry for entry in _made(stacks, of) if not entry.name.startswith(LONE))


def test_everything_that_can_carry_tags_has_a_name(stacks: Declared) -> None:
    """What has no Name tag is a mere id in AWS's console and on its bill."""
    taggable = [entry for entry in _made(stacks) if "tags" in schema.inputs(entry.type)]

    unnamed = [entry.urn for entry in taggable if entry.type != GROUP and not entry.inputs["tags"].get("Name")]

    assert not unnamed


def test_a_provider_tags_what_it_makes_with_fleet_stack_and_owner(stacks: Declared) -> None:
    """Whose a resource is, is never left to whoever writes the resource down."""
    providers = {name: entry for name, entries in stacks.items() for entry in entries if entry.is_provider}

    for name, provider in providers.items():
        tags = {"bedplate:fleet": "lab", "bedplate:stack": name, "owner": "research-infra@lab.example"}
        assert json.loads(provider.inputs["defaultTags"]) == {"tags": tags}
        assert json.loads(provider.inputs["allowedAccountIds"]) == ["111122223333"]


def test_every_resource_has_an_explicit_provider(stacks: Declared) -> None:
    """A default provider would take region and account from whoever runs the program."""
    assert not [entry.urn for entry in _made(stacks) if "::default" in entry.provider or not entry.provider]


def test_machines_are_tagged_by_group_and_template_alike(stacks: Declared) -> None:
    """No provider's default tags reach what an Auto Scaling group launches."""
    wanted = {"Name", "bedplate:fleet", "bedplate:stack", "bedplate:group", "bedplate:pool", "bedplate:use", "owner"}

    for group in _pools(stacks, GROUP):
        assert {tag["key"] for tag in group.inputs["tags"] if tag["propagateAtLaunch"]} == wanted
    for template in _pools(stacks, TEMPLATE):
        kinds = {one["resourceType"]: set(one["tags"]) for one in template.inputs["tagSpecifications"]}
        request = ["spot-instances-request"] if template.name.endswith("-spot") else []
        assert kinds == dict.fromkeys(("instance", "network-interface", "volume", *request), wanted)


def test_no_machine_gets_a_public_address(stacks: Declared) -> None:
    """Only NAT gateways and the laptops' gateway have one: nodes are reached over the VPN."""
    for subnet in _made(stacks, "aws:ec2/subnet:Subnet"):
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
    for template in _pools(stacks, TEMPLATE):
        nics = template.inputs["networkInterfaces"]
        # Beside others, an interface takes no word on it, and its subnet gives none.
        assert [one.get("associatePublicIpAddress") for one in nics] == (["false"] if len(nics) == 1 else [None] * 33)
    assert all(entry.name.endswith(("-nat", GATEWAY)) for entry in _made(stacks, "aws:ec2/eip:Eip"))


def test_nothing_lets_the_internet_in(stacks: Declared) -> None:
    """A rule admits the group itself, or a block of the fleet's own; the world gets to the laptops' gateway alone."""
    rules = list(_made(stacks, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"))

    fleets = [rule for rule in rules if not rule.name.startswith(GATEWAY)]
    blocks = [rule.inputs["cidrIpv4"] for rule in fleets if "referencedSecurityGroupId" not in rule.inputs]

    assert blocks
    assert all(block.startswith(("10.", "192.168.")) and int(block.split("/")[1]) >= 16 for block in blocks)


def test_data_outlives_its_stack(stacks: Declared) -> None:
    """File systems, keys by their names, buckets and what guards them are protected and retained; nothing else is."""
    kept = {entry.type for entry in _made(stacks) if entry.protect and entry.retain}
    either = {entry.type for entry in _made(stacks) if entry.protect or entry.retain}

    assert kept == either == KEPT
    assert all(entry.protect for entry in _made(stacks, *KEPT))


def test_instance_metadata_needs_a_token_from_the_machine_itself(stacks: Declared) -> None:
    """Neither a forwarded request nor a pod may fetch the node's credentials; people's own containers may."""
    for template in _made(stacks, TEMPLATE):
        options = template.inputs["metadataOptions"]
        hops = 2 if template.name.startswith("lab-workbench") else 1
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", hops)


def test_root_volumes_are_encrypted_gp3_of_the_groups_size(stacks: Declared) -> None:
    """The file's `disk` is the size of the root volume."""
    disks = [one["ebs"] for each in _made(stacks, TEMPLATE) for one in each.inputs["blockDeviceMappings"]]

    assert {(disk["encrypted"], disk["volumeType"]) for disk in disks} == {("true", "gp3")}
    assert {disk["volumeSize"] for disk in disks} == {16, 50, 100, 500}


def test_whoever_scales_a_pool_owns_its_desired_capacity(stacks: Declared) -> None:
    """A deployment must not undo what an autoscaler did."""
    assert not [group.urn for group in _made(stacks, GROUP) if "desiredCapacity" in group.inputs]


def test_a_boundary_holds_every_role() -> None:
    """An account that demands a boundary refuses the one role that lacks it."""
    arn = "arn:aws:iam::111122223333:policy/bound"
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), boundary=arn)

    roles = [entry for entries in declared(plan).values() for entry in entries if entry.type == "aws:iam/role:Role"]

    assert roles
    assert {role.inputs.get("permissionsBoundary") for role in roles} == {arn}


def test_somebody_is_told_before_the_budget_is_spent() -> None:
    """Of money spent and of money foreseen, at the address of the file."""
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), budget=(5000, "infra@lab.example"))

    (budget,) = (entry for entry in declared(plan)["solo.shared"] if entry.type == "aws:budgets/budget:Budget")

    told = {(one["notificationType"], one["threshold"]) for one in budget.inputs["notifications"]}
    assert told == {("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100)}
    assert all(one["subscriberEmailAddresses"] == ["infra@lab.example"] for one in budget.inputs["notifications"])
