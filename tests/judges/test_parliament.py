"""parliament finds nothing in any policy that is not listed with a reason, and finds each planted defect."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import DATA
from tests.testlab.machines.judges import Verdict, listed, parliament, policies_of, unfound, unlisted
from tests.testlab.rehearsal.graphs import Node

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "policies.yaml")
HOLDERS = {"efs.FileSystemPolicy", "iam.Role", "iam.RolePolicy", "kms.Key", "s3.BucketPolicy", "sns.Topic"}


@pytest.fixture(scope="module")
def told(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Give what parliament says of every policy of the stacks."""
    return parliament(policies_of(graph), tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Give what parliament says of every planted defect and of its good twin."""
    policies = {f"{side}-{at}": row[side] for at, row in enumerate(ROWS) for side in ("bad", "good")}
    return parliament(policies, tmp_path_factory.mktemp("sown"))


def test_policies_of_every_kind_are_judged(graph: list[Node]) -> None:
    """Of roles, their trust, buckets, keys, topics and file systems."""
    assert {".".join(name.rsplit(".", 3)[1:3]) for name in policies_of(graph)} == HOLDERS


def test_nothing_is_found_that_is_not_listed(told: Verdict) -> None:
    """Each finding is mended, or has its reason in docs/judges.md."""
    assert not unlisted(told.failed, listed("parliament"))


def test_nothing_is_listed_that_is_not_found(told: Verdict) -> None:
    """A reason that outlives its finding would hide the next one."""
    assert not unfound(told.failed, listed("parliament"))


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_a_planted_defect_is_found(at: int, tried: Verdict) -> None:
    """By the judge's name for it; the nearest right policy does not bear that name."""
    found = {(one.file, one.check) for one in tried.failed}

    assert (f"bad-{at}", ROWS[at]["finds"]) in found
    assert (f"good-{at}", ROWS[at]["finds"]) not in found
