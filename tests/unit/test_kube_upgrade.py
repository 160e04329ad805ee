"""The steps of an upgrade by a minor version."""

from dataclasses import replace

import pytest

from bedplate.errors import InputError
from bedplate.kube.members import Action, Step, Worker, parse_workers, upgrade_steps

OLD, NEW = "v1.36.3", "v1.37.0"
TITAN = Worker("titan-01.cellar", OLD, "bedplate://cellar/titan-01")
TRAIN = Worker("train-9f3c21aa.us-west-2", OLD, "aws:///us-west-2b/i-0123456789abcdef0")


def test_members_are_upgraded_before_workers() -> None:
    """After a snapshot, one member after the other; then machines of sites are upgraded, and instances replaced."""
    assert upgrade_steps({"a": OLD, "b": OLD}, (TITAN, TRAIN), "1.37", "1.37") == (
        Step(Action.SNAPSHOT, "a"),
        Step(Action.UPGRADE_MEMBER, "a"),
        Step(Action.UPGRADE_MEMBER, "b"),
        Step(Action.DRAIN, TITAN.name),
        Step(Action.UPGRADE_WORKER, TITAN.name),
        Step(Action.UNCORDON, TITAN.name),
        Step(Action.DRAIN, TRAIN.name),
        Step(Action.REPLACE, TRAIN.name),
    )


def test_a_second_run_continues() -> None:
    """A component that has its version has no step."""
    assert upgrade_steps({"a": NEW, "b": OLD}, (), "1.37", "1.37")[-1] == Step(Action.UPGRADE_MEMBER, "b")
    assert upgrade_steps({"a": NEW}, (Worker("w", NEW, ""),), "1.37", "1.37") == ()


def test_a_second_run_uncordons_an_upgraded_worker() -> None:
    """A run that ended between the packages and the last step has left its mark; a person who cordons leaves none."""
    marked, other = (replace(TITAN, version=NEW, is_upgrading=is_upgrading) for is_upgrading in (True, False))

    assert upgrade_steps({"a": NEW}, (marked,), "1.37", "1.37") == (Step(Action.UNCORDON, TITAN.name),)
    assert upgrade_steps({"a": NEW}, (other,), "1.37", "1.37") == ()


def test_workers_may_stay_older() -> None:
    """With `image.kubernetes` they keep their version."""
    assert {step.node for step in upgrade_steps({"a": OLD}, (TITAN,), "1.37", "1.36")} == {"a"}


@pytest.mark.parametrize(
    ("members", "workers", "versions", "fix"),
    [
        ({"a": OLD}, (), ("1.38", "1.38"), "write version: '1.37', upgrade, then write the next one"),
        ({"a": OLD}, (), ("1.35", "1.35"), "write version: '1.36'"),
        ({"a": NEW}, (Worker("w", NEW, ""),), ("1.37", "1.36"), "write image.kubernetes: '1.37'"),
        ({"a": OLD}, (Worker("w", "v1.33.1", ""),), ("1.37", "1.37"), "upgrade the workers first"),
    ],
    ids=["two-steps", "back", "worker-back", "skew"],
)
def test_an_impossible_upgrade_has_no_steps(
    members: dict[str, str], workers: tuple[Worker, ...], versions: tuple[str, str], fix: str
) -> None:
    """Nothing is begun that Kubernetes does not support; the fix has the right value."""
    with pytest.raises(InputError) as refused:
        upgrade_steps(members, workers, *versions)

    assert fix in refused.value.fix


def test_members_are_no_workers() -> None:
    """A node without a provider id counts as a machine of a site."""
    text = (
        f"control-1.us-west-2 {OLD} aws:///us-west-2a/i-1\n{TRAIN.name} {OLD} {TRAIN.provider}\nbare {OLD}  upgrading\n"
    )

    workers = parse_workers(text, frozenset({"control-1.us-west-2"}))

    assert workers == (TRAIN, Worker("bare", OLD, "", is_upgrading=True))
    assert [worker.instance for worker in workers] == ["i-0123456789abcdef0", ""]
