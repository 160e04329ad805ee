"""Copies of stores: who makes them, of what, and with what rights."""

import json

import pytest

from bedplate.plan import FleetPlan
from stacks.policy import policy
from stacks.replication import copier_permissions, copies
from tests.support.declared import EXAMPLES, plan_of


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Give the plan of the larger example: one store in three regions, one in a single region."""
    return plan_of(EXAMPLES / "lab.yaml")


def test_a_store_is_copied_from_its_first_region_to_all_others(plan: FleetPlan) -> None:
    """A store of one region has nowhere to be copied to."""
    regions = {store: [bucket.region for bucket in buckets] for store, buckets in copies(plan).items()}

    assert regions == {"datasets": ["us-west-2", "us-east-1", "eu-north-1"]}


def test_the_copier_reads_sources_and_writes_copies_alone(plan: FleetPlan) -> None:
    """By name: it could neither read a copy nor write over a source."""
    found = {one["Sid"]: one["Resource"] for one in json.loads(policy(*copier_permissions(plan)))["Statement"]}

    assert found["ReadSources"] == ["arn:aws:s3:::lab-datasets-111122223333-us-west-2/*"]
    assert found["WriteCopies"] == [
        "arn:aws:s3:::lab-datasets-111122223333-eu-north-1/*",
        "arn:aws:s3:::lab-datasets-111122223333-us-east-1/*",
    ]


def test_the_copier_uses_keys_only_through_s3(plan: FleetPlan) -> None:
    """Keys of the source to open, keys of the copies to seal."""
    keys = {one.sid: one for one in copier_permissions(plan) if one.actions[0].startswith("kms:")}

    assert keys["OpenSources"].conditions["StringEquals"] == {"kms:ViaService": ("s3.us-west-2.amazonaws.com",)}
    assert keys["SealCopies"].conditions["StringEquals"] == {
        "kms:ViaService": ("s3.eu-north-1.amazonaws.com", "s3.us-east-1.amazonaws.com")
    }
