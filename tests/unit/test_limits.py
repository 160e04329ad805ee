"""Texts and tags of a large fleet, within the limits of AWS: 12 regions, 20 stores in each, the longest names."""

import json
from base64 import b64decode
from collections import Counter
from dataclasses import replace

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.storage import check_policies
from bedplate.permissions import LONGEST_INLINE, length, role_policies
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.spec.text import LONGEST_FLEET_NAME
from stacks.storage.buckets import bucket_policy
from tests.testlab.fleets.sketch import cluster, group, sketch
from tests.testlab.rehearsal.programs import declared

CATALOG = load_catalog()
REGIONS = {
    name: CATALOG.regions[name].zones[:2]
    for name in ["us-west-2", *sorted(name for name, facts in CATALOG.regions.items() if not facts.opt_in)][:13]
}
STORES = [f"datasets-{'x' * 3}{number:02}" for number in range(20)]  # the longest for a bucket's name of 63 characters


def large(stores: int = 20, regions: int = 12) -> FleetPlan:
    """Return the plan of a fleet with a cluster, workers and workbenches in each region."""
    places = dict(list(REGIONS.items())[:regions])
    ladder = [{"region": region} for region in places]
    fleet = sketch(
        places,
        name="f" * LONGEST_FLEET_NAME,
        kubernetes=cluster(),
        groups={
            f"workbench-{'x' * 10}": group(*ladder, types=("m7i.large",), idle="2h", expires="permanent"),
            f"workers-{'x' * 10}": group(*ladder, types=("m7i.large",), use="kubernetes"),
        },
        storage={name: {"kind": "s3", "regions": tuple(places)} for name in STORES[:stores]},
    )
    return plan_fleet(fleet, Record({}), CATALOG)


def test_policies_of_roles_are_within_the_limit_of_iam() -> None:
    """The text of every role of the fleet: nodes, members, gateways and replication."""
    lengths = {role: length(texts) for role, texts in role_policies(large())}

    assert max(lengths.values()) <= LONGEST_INLINE, lengths
    assert not [*check_policies(large())]


def test_policies_of_members_hardly_grow_with_regions() -> None:
    """A region adds its name to conditions, and no ARN: twelve regions are less than twice the text of one."""
    few, many = (dict(role_policies(large(2, regions))) for regions in (1, 12))

    assert {role for role in few if length(many[role]) > 2 * length(few[role])} == set()


def test_a_role_with_too_long_a_policy_is_refused() -> None:
    """The check measures the text that the stack writes, before AWS refuses it."""
    plan = large()
    bucket = plan.buckets[0]
    more = tuple(replace(bucket, store=f"s{number}", name=f"{bucket.name}-{number}") for number in range(100))
    (fault, *_) = check_policies(replace(plan, buckets=(*plan.buckets, *more)))

    assert (fault.code, fault.key) == ("E422", "storage")
    assert "characters; IAM allows 10,240" in fault.message


def test_policies_of_buckets_are_within_the_limit_of_s3() -> None:
    """20 KB for each bucket."""
    plan = large()

    assert max(len(bucket_policy(plan, bucket)) for bucket in plan.buckets) < 20 * 1024


# Characters, by type of resource and input. Sources: IAM and STS quotas; S3, bucket policies; KMS, resource quotas;
# SNS, topic policies; EC2, user data and VPC endpoint policies; EFS, resource policies.
LIMITS = {
    ("aws:iam/role:Role", "assumeRolePolicy"): 2048,
    ("aws:s3/bucketPolicy:BucketPolicy", "policy"): 20 * 1024,
    ("aws:kms/key:Key", "policy"): 32 * 1024,
    ("aws:sns/topic:Topic", "policy"): 30 * 1024,
    ("aws:ec2/vpcEndpoint:VpcEndpoint", "policy"): 20 * 1024,
    ("aws:efs/fileSystemPolicy:FileSystemPolicy", "policy"): 20_000,
    ("aws:ec2/launchTemplate:LaunchTemplate", "userData"): 16 * 1024,
}
MOST_TAGS = 50


@pytest.mark.nightly
def test_all_texts_and_tags_of_the_stacks_are_within_the_limits_of_aws() -> None:
    """What each stack of the large fleet declares: policies, user data before its encoding, tags."""
    entries = [entry for stack in declared(large()).values() for entry in stack]
    found: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        for (token, key), limit in LIMITS.items():
            text = entry.inputs.get(key)
            if entry.type == token and isinstance(text, str):
                size = len(b64decode(text) if key == "userData" else text.encode())
                assert size <= limit, (entry.name, key, size)
                found[token, key] += 1
        tags = entry.inputs.get("tags") or {}
        assert len(json.loads(json.dumps(tags))) < MOST_TAGS, entry.name

    assert len(found) >= 5, found
