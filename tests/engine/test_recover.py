"""`bedplate recover` after the real engine was killed in the middle of creations.

Skipped without `pulumi` and `pulumi-language-python` on PATH.
"""

from pathlib import Path

import pytest

from bedplate.account.objects import REPEATABLE
from bedplate.cli import run
from tests.testlab.engine.lab import engine_lab

STACKS = ("mylab.shared", "mylab.us-west-2")
NEVER = 10_000


@pytest.mark.parametrize(
    "creations",
    [
        pytest.param((14, 14), id="sample"),
        pytest.param((1, NEVER), id="every resource of shared", marks=pytest.mark.nightly),
        pytest.param((NEVER, 1), id="every resource of a region", marks=pytest.mark.nightly),
    ],
)
def test_kills_during_creations_neither_lose_nor_double_an_object(
    creations: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A deployment is killed after a few resources; `recover` adds to the state what AWS has, but settings."""
    with engine_lab(tmp_path, monkeypatch, "minimal") as lab:
        assert run(["backend", "init"]) == 0
        for number, stack in enumerate(STACKS, 1):
            while lab.kill_up(stack, creations[number - 1]):
                assert run(["recover", "--stack", stack.partition(".")[2], "--yes"]) == 0
                recorded, objects = lab.recorded(*STACKS[:number]), lab.objects()
                assert recorded <= objects
                assert {kind for kind, _ in objects - recorded} <= REPEATABLE
            assert lab.recorded(*STACKS[:number]) == lab.objects()
        capsys.readouterr()
        assert run(["up", "--yes"]) == 0
        assert capsys.readouterr().out == "no change\n"

        assert run(["destroy", "--yes", "--end-machines"]) == 0
        assert lab.recorded(*STACKS) == lab.objects()
