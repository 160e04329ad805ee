"""Tests that parliament finds nothing in the policies except listed findings, and finds each seeded defect."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import DATA
from tests.testlab.machines.judges import (
    Verdict,
    accepted_findings,
    obsolete_acceptances,
    parliament,
    policies_of,
    unaccepted_findings,
)
from tests.testlab.rehearsal.graphs import Node

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "policies.yaml")
HOLDERS = {"efs.FileSystemPolicy", "iam.Role", "iam.RolePolicy", "kms.Key", "s3.BucketPolicy", "sns.Topic"}


@pytest.fixture(scope="module")
def findings(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Return parliament's findings in all policies of the stacks."""
    return parliament(policies_of(graph), tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Return parliament's findings for each seeded defect and its valid counterpart."""
    policies = {f"{side}-{at}": row[side] for at, row in enumerate(ROWS) for side in ("bad", "good")}
    return parliament(policies, tmp_path_factory.mktemp("seeded"))


def test_policies_of_all_types_are_scanned(graph: list[Node]) -> None:
    """Role policies, trust policies, and policies of buckets, keys, topics and file systems are scanned."""
    assert {".".join(name.rsplit(".", 3)[1:3]) for name in policies_of(graph)} == HOLDERS


def test_every_finding_is_listed(findings: Verdict) -> None:
    """Each finding is fixed, or has its reason in docs/judges.md."""
    assert not unaccepted_findings(findings.failed, accepted_findings("parliament"))


def test_every_listed_finding_exists(findings: Verdict) -> None:
    """An entry without a finding would hide the next finding."""
    assert not obsolete_acceptances(findings.failed, accepted_findings("parliament"))


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_a_seeded_defect_is_found(at: int, tried: Verdict) -> None:
    """Parliament reports the defect by its name, and not the valid counterpart."""
    checks = {(finding.file, finding.check) for finding in tried.failed}

    assert (f"bad-{at}", ROWS[at]["finds"]) in checks
    assert (f"good-{at}", ROWS[at]["finds"]) not in checks
