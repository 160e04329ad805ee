"""When an object of the cluster is as declared, so that an apply leaves it alone."""

import pytest

from bedplate.kubernetes.apply import has_values

DECLARED = {"spec": {"hard": {"count/pods": "2000"}, "from": ["10.0.0.0/8"], "subjects": [], "class": ""}}


@pytest.mark.parametrize(
    "current",
    [
        DECLARED,
        {"kind": "X", "spec": {"hard": {"count/pods": "2k", "pods": "5"}, "from": ["10.0.0.0/8"]}, "status": {}},
    ],
)
def test_an_object_with_all_declared_values_is_left_alone(current: object) -> None:
    """More values, another unit of the same quantity, and a missing empty value make no difference."""
    assert has_values(current, DECLARED)


@pytest.mark.parametrize(
    "spec",
    [
        {"hard": {"count/pods": "2001"}, "from": ["10.0.0.0/8"]},
        {"hard": {}, "from": ["10.0.0.0/8"]},
        {"hard": {"count/pods": "2000"}, "from": ["10.0.0.0/9"]},
        {"hard": {"count/pods": "2000"}, "from": ["10.0.0.0/8", "0.0.0.0/0"]},
        {"hard": {"count/pods": "2000"}, "from": ["10.0.0.0/8"], "class": "fast"},
        {"hard": {"count/pods": "2000"}, "from": ["10.0.0.0/8"], "subjects": ["eve"]},
    ],
)
def test_an_object_that_lacks_a_declared_value_is_applied(spec: object) -> None:
    """Another value, a missing one, a longer list, and a value where none is declared are differences."""
    assert not has_values({"spec": spec}, DECLARED)
