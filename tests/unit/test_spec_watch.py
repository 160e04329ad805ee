"""Keys that bound and watch an account."""

import pytest
from pydantic import ValidationError

from bedplate.spec.alarms import Alarms
from bedplate.spec.budget import Budget
from bedplate.spec.identity import Identity

BOUND = "arn:aws:iam::111122223333:policy/team/bound"


def test_a_budget_and_a_boundary_are_read() -> None:
    """As they are written."""
    assert Budget(monthly=5000, email="infra@lab.example").monthly == 5000
    assert Identity(permissions_boundary=BOUND).permissions_boundary == BOUND


@pytest.mark.parametrize("email", ["infra", "a@b", "a b@lab.example", "a@lab.example\n", ""])
def test_what_is_no_address_is_refused(email: str) -> None:
    """A warning that reaches nobody is none."""
    with pytest.raises(ValidationError):
        Budget(monthly=5000, email=email)
    with pytest.raises(ValidationError):
        Alarms(email=email)


@pytest.mark.parametrize("arn", ["bound", BOUND.replace("policy", "role"), BOUND.replace("1111", "")])
def test_what_is_no_policy_is_refused(arn: str) -> None:
    """Before IAM does, in the middle of a run."""
    with pytest.raises(ValidationError):
        Identity(permissions_boundary=arn)
