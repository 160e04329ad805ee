"""What S3 asks for before they copy to another region: each row is a specimen with one fault."""

from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from tests.support import services
from tests.support.specimen import Given
from tests.support.specimens_copies import COPIES, REPLICATION, copied, encrypted, versioned
from tests.support.world import World


def inputs_of(token: str, world: World, spoiled: Given) -> dict[str, Any]:
    """Return a specimen's inputs with some of them spoiled."""
    good = next(each for each in COPIES if each.token == token).inputs_in(world)
    return {**good, **(spoiled(world) if callable(spoiled) else spoiled)}


def to(bucket: str, **more: object) -> dict[str, Any]:
    """Return the destination of a rule."""
    return {"bucket": f"arn:aws:s3:::{bucket}", **more}


def misplaced_key(world: World) -> dict[str, Any]:
    """Return a rule with a key that does not exist."""
    rule = encrypted(world)
    gone = "arn:aws:kms:us-east-2:111122223333:key/00000000-0000-0000-0000-000000000000"
    target = {**rule["destination"], "encryptionConfiguration": {"replicaKmsKeyId": gone}}
    return {"rules": [{**rule, "destination": target}]}


# Kind, what spoils the specimen's inputs, and AWS's code.
REFUSALS: tuple[tuple[str, Given, str], ...] = (
    (REPLICATION, {"bucket": "no-such-bucket"}, "404"),
    (REPLICATION, lambda world: {"bucket": services.bucket(world)}, "InvalidRequest"),
    (REPLICATION, {"role": "arn:aws:iam::111122223333:role/nobody"}, "NoSuchEntity"),
    (REPLICATION, lambda world: {"role": world.role}, "InvalidRequest"),
    (REPLICATION, lambda world: {"rules": [copied(world, destination=to("no-such-bucket"))]}, "InvalidRequest"),
    (
        REPLICATION,
        lambda world: {"rules": [copied(world, destination=to(services.bucket(world.abroad)))]},
        "InvalidRequest",
    ),
    (REPLICATION, misplaced_key, "NotFoundException"),
)


@pytest.mark.parametrize(("token", "spoiled", "code"), REFUSALS)
def test_copies_that_aws_refuses_are_refused(token: str, spoiled: Given, code: str, world: World) -> None:
    """What is missing at either end of a copy is refused with AWS's own code."""
    inputs = inputs_of(token, world, spoiled)

    with pytest.raises(Refusal) as refused:
        KINDS[token].create(world.aws, inputs)

    assert refused.value.code == code


def unmarked(world: World) -> dict[str, Any]:
    """Return a rule with a filter that leaves delete markers open."""
    rule = copied(world)
    del rule["deleteMarkerReplication"]
    return {"rules": [rule]}


# What spoils the rules of a replication, and the input that the complaint names.
COMPLAINTS: tuple[tuple[Given, str], ...] = (
    (lambda world: {"rules": [copied(world, status="On")]}, "rules.status"),
    (lambda world: {"rules": [copied(world), copied(world)]}, "rules"),
    (unmarked, "rules[0]"),
    (lambda world: {"rules": [copied(world, filter=None)]}, "rules[0]"),
    (lambda world: {"rules": [copied(world, destination={"bucket": "bare-name"})]}, "rules[0]"),
    (lambda world: {"rules": [{**encrypted(world), "sourceSelectionCriteria": None}]}, "rules[0]"),
    (
        lambda world: {"rules": [copied(world, destination=to("x", replicationTime={"status": "Enabled"}))]},
        "rules[0]",
    ),
)


@pytest.mark.parametrize(("spoiled", "key"), COMPLAINTS)
def test_rules_of_a_replication_go_together(spoiled: Given, key: str, world: World) -> None:
    """A rule that S3 would not take is told before anything is made, and nothing else is."""
    inputs = inputs_of(REPLICATION, world, spoiled)

    complaints = list(KINDS[REPLICATION].complaints(world.aws, inputs))

    assert [each.key for each in complaints] == [key]


def test_two_buckets_may_copy_to_one_another(world: World) -> None:
    """Replication both ways is two configurations, each of its own bucket."""
    near, far = versioned(world), versioned(world.abroad)
    role = inputs_of(REPLICATION, world, {})["role"]

    for here, bucket, other in ((world, near, far), (world.abroad, far, near)):
        rules = [copied(world, destination=to(other))]
        assert KINDS[REPLICATION].create(here.aws, {"bucket": bucket, "role": role, "rules": rules}) == bucket


def test_a_filter_may_have_several_parts(world: World) -> None:
    """A prefix and tags together are sent as S3 wants them: tags in a list."""
    both = {"and": {"prefix": "runs/", "tags": {"kind": "result"}}}
    inputs = inputs_of(REPLICATION, world, {"rules": [copied(world, filter=both)]})

    assert list(KINDS[REPLICATION].complaints(world.aws, inputs)) == []
    assert KINDS[REPLICATION].create(world.aws, inputs) == inputs["bucket"]
