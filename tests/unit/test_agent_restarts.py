"""Decisions of the agent about restarts: the first cause of an attempt, what follows, and complete checkpoints."""

import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.programs.agent.checkpoints import Opened, complete
from bedplate.programs.agent.restarts import (
    AGAIN,
    DONE,
    FABRIC,
    MACHINE,
    MADE_AGAIN,
    NOTICE,
    OVER,
    PROGRAM,
    STOP,
    UNKNOWN,
    Cause,
    Checkpoint,
    History,
    Policy,
    decide,
    first_cause,
    first_step,
    history_of,
    kind_of,
    suspects,
)

POLICY = Policy(0, is_scratch_ok=False, folder="/home/c")
RAN = History(attempt=0, has_run=True)
OLD, NEW = Checkpoint("step-1", 1), Checkpoint("step-2", 2)
NOTHING = frozenset[str]()


def end(
    at: float, code: int = 1, kind: str = PROGRAM, text: str = "rank 0 ended", *, is_torn_down: bool = False
) -> Cause:
    """Return the end of a rank."""
    return Cause(kind, code, text, at=at, is_torn_down=is_torn_down)


KILLED = end(10.0, 137, UNKNOWN, "rank 1 was killed")


@pytest.mark.parametrize(
    ("code", "tail", "kind"),
    [
        (0, b"connection reset by peer", DONE),
        (1, b"Traceback (most recent call last)\nValueError: x\n", PROGRAM),
        (1, b"RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:5", FABRIC),
        (134, b"[Rank 3] Watchdog caught collective operation timeout", FABRIC),
        (134, b"double free or corruption", PROGRAM),
        (137, b"", UNKNOWN),
        (143, b"", UNKNOWN),
        (139, b"", PROGRAM),
        (78, b"connection reset by peer", STOP),
    ],
)
def test_the_kind_of_an_end_is_by_code_and_output(code: int, tail: bytes, kind: str) -> None:
    """Peers that have lost a peer print it; a rank that nobody stopped and that was killed is no failure of its own."""
    assert kind_of(code, tail) == kind


def test_a_rank_without_memory_has_failed_itself() -> None:
    """The kernel kills it with the same signal as an unknown one."""
    assert kind_of(137, b"", is_out_of_memory=True) == PROGRAM


@pytest.mark.parametrize(
    ("ends", "events", "text"),
    [
        ([end(10.1, text="other"), KILLED], [], "rank 1 was killed"),
        ([end(9.9, text="other"), KILLED], [], "rank 1 was killed"),
        ([end(8.0, text="first"), KILLED], [], "first"),
        ([end(9.9, kind=FABRIC, text="victim"), end(11, text="first")], [], "first"),
        ([end(1.0, 134, PROGRAM, "aborted"), end(2.0, 1, PROGRAM, "first")], [], "first"),
        ([end(9.0, kind=FABRIC, text="victim")], [Cause(MACHINE, 200, "lost", "b", 10.5)], "lost"),
        ([end(9.0, text="first")], [Cause(MACHINE, 200, "lost", "b", 30)], "first"),
        ([end(9.0, text="first")], [Cause(STOP, 201, "stopped", at=5), Cause(NOTICE, 201, "spot", at=6)], "stopped"),
        ([end(3.0, 9, text="torn", is_torn_down=True), end(4.0, 3, text="first")], [], "first"),
        ([end(3.0, 201, text="first"), end(3.5, 1, text="later")], [], "first"),
    ],
)
def test_victims_are_no_causes(ends: list[Cause], events: list[Cause], text: str) -> None:
    """Killed ranks are before errors of the same second, own errors before lost peers, and machines before both."""
    assert first_cause(ends, events).text == text
    assert first_cause(ends[::-1], events[::-1]).text == text


def test_peers_that_are_lost_without_a_reason_are_the_network() -> None:
    """The sentence says so, and the attempt is repeated as after a lost machine."""
    cause = first_cause([end(9.0, kind=FABRIC), end(9.1, kind=FABRIC)], [])

    assert cause.text == "rank 0 ended: it lost a peer, or the network"
    assert decide(RAN, cause, NOTHING, [NEW], POLICY).action == AGAIN


def test_ranks_that_have_all_ended_well_are_done() -> None:
    """Also if a machine is lost long after."""
    assert first_cause([end(1, 0, DONE), end(2, 0, DONE)], []).kind == DONE


@pytest.mark.parametrize(
    ("kind", "kinds", "action"),
    [
        (DONE, NOTHING, OVER),
        (STOP, NOTHING, OVER),
        (PROGRAM, NOTHING, OVER),
        (UNKNOWN, NOTHING, AGAIN),
        (FABRIC, NOTHING, AGAIN),
        (MACHINE, {MACHINE}, MADE_AGAIN),
        (NOTICE, {NOTICE}, MADE_AGAIN),
        (UNKNOWN, {NOTICE}, MADE_AGAIN),
        (UNKNOWN, {STOP}, OVER),
    ],
)
def test_what_follows_is_by_the_cause(kind: str, kinds: frozenset[str], action: str) -> None:
    """Failures of the program itself end the run; a stop ends it, also one that comes after the cause."""
    assert decide(RAN, Cause(kind, 1, "it ended"), frozenset(kinds), [NEW], POLICY).action == action


def test_own_failures_are_repeated_as_often_as_asked_for() -> None:
    """Each from the newest checkpoint, and no more."""
    policy, history, actions = replace(POLICY, restarts=2), RAN, list[str]()
    for number in range(3):
        step = decide(history, end(1), NOTHING, [Checkpoint(f"step-{number}", number)], policy)
        history = replace(step.history, attempt=number + 1)
        actions.append(step.action)

    assert actions == [AGAIN, AGAIN, OVER]


def test_no_later_attempt_starts_from_scratch_in_silence() -> None:
    """Without a checkpoint the run ends, and its cause says what allows more."""
    step = decide(RAN, KILLED, NOTHING, [], POLICY)

    assert (step.action, step.code) == (OVER, 137)
    assert step.text == (
        "rank 1 was killed; not repeated: /home/c has no complete checkpoint, and --scratch-ok is not given"
    )
    allowed = decide(RAN, KILLED, NOTHING, [], replace(POLICY, is_scratch_ok=True))
    assert allowed.text == "rank 1 was killed: attempt 1 goes on from the beginning, as --scratch-ok allows"
    unborn = decide(History(attempt=0), replace(KILLED, kind=MACHINE), NOTHING, [], POLICY)
    assert unborn.text == "rank 1 was killed: attempt 1 goes on from the beginning: no program had run"


def test_attempts_without_a_new_checkpoint_are_a_loop() -> None:
    """Three in a row end the run; a new checkpoint, also of the same name, begins the count again."""
    history, texts = RAN, list[str]()
    for stamp in (1, 1, 1, 2, 2, 2, 2):
        step = decide(history, KILLED, NOTHING, [Checkpoint("last", stamp)], POLICY)
        history = step.history
        texts.append(step.action)

    assert texts == [AGAIN] * 6 + [OVER]
    assert step.text == "rank 1 was killed; restart loop: 3 attempts have written no checkpoint in /home/c"


def test_a_program_fails_as_often_as_its_person_allows() -> None:
    """Also without checkpoints, if it may start from the beginning."""
    history, policy, actions = RAN, Policy(5, is_scratch_ok=True, folder="/c"), list[str]()
    for _ in range(6):
        step = decide(history, end(1), NOTHING, [], policy)
        history = step.history
        actions.append(step.action)

    assert actions == [AGAIN] * 5 + [OVER]
    assert step.text == end(1).text


def test_a_damaged_checkpoint_is_left_out() -> None:
    """An attempt that fails before it writes a newer one goes on from the one before, once for each."""
    begun = replace(RAN, newest=NEW.key, resumed=NEW.key)

    step = decide(begun, end(1), NOTHING, [NEW, OLD], POLICY)
    assert (step.action, step.resume, step.history.failures) == (AGAIN, "step-1", 0)

    again = decide(step.history, end(1), NOTHING, [NEW, OLD], POLICY)
    assert again.action == OVER


def test_no_run_goes_back_through_all_its_checkpoints() -> None:
    """A program that always fails has no damaged checkpoints: three attempts are the end."""
    checkpoints = [Checkpoint(f"step-{number}", number) for number in range(100, 0, -1)]
    history, actions = replace(RAN, newest=checkpoints[0].key, resumed=checkpoints[0].key), list[str]()
    while not actions or actions[-1] == AGAIN:
        step = decide(history, end(1), NOTHING, checkpoints, POLICY)
        history = step.history
        actions.append(step.action)

    assert len(actions) <= 3


def test_a_checkpoint_is_not_blamed_for_what_comes_from_outside() -> None:
    """After a notice it is used again; a rank that is killed a second time may be killed by it."""
    begun = replace(RAN, newest=NEW.key, resumed=NEW.key)
    noticed = Cause(NOTICE, 201, "spot")

    assert decide(begun, noticed, frozenset({NOTICE}), [NEW, OLD], POLICY).resume == "step-2"
    killed = decide(begun, KILLED, NOTHING, [NEW, OLD], POLICY)
    assert killed.resume == "step-2"
    assert decide(killed.history, KILLED, NOTHING, [NEW, OLD], POLICY).resume == "step-1"


def test_a_notice_before_the_program_counts_for_nothing() -> None:
    """Such as a run that is preempted while images are pulled."""
    history, cause = History(attempt=0), Cause(NOTICE, 201, "preempted")
    for _ in range(10):
        step = decide(history, cause, frozenset({NOTICE}), [], POLICY)
        history = step.history

    assert (step.action, history.stale) == (MADE_AGAIN, 0)


def test_new_agents_know_why_the_former_ones_have_left() -> None:
    """Their first step has the same sentence."""
    step = decide(RAN, Cause(MACHINE, 200, "lost", "a"), frozenset({MACHINE}), [NEW], POLICY)

    assert first_step(history_of(step.history.text), [NEW], POLICY).text == step.text


def test_a_machine_that_is_blamed_twice_is_a_suspect() -> None:
    """Once is no reason."""
    history = RAN
    for machine in ("a", "b", "b"):
        history = decide(history, Cause(MACHINE, 200, "lost", machine), NOTHING, [], POLICY).history

    assert suspects(history) == "b"


def test_a_history_is_a_text() -> None:
    """The record keeps it; what a person writes there is refused."""
    history = replace(RAN, skipped=["1/a"], blamed={"m": 2}, first=1.5)

    assert history_of(history.text) == history
    assert history_of("") == History()
    with pytest.raises((ValueError, TypeError)):
        history_of('{"a": 1}')


def test_a_history_of_many_lost_machines_is_no_longer_than_a_tag() -> None:
    """A tag that is cut off would end the run. Machines that were blamed once are left out first, then the oldest."""
    blamed = {"worst": 2, **{f"ip-10-0-0-{number}.us-east-2.compute.internal": 1 for number in range(300)}}
    skipped = [f"{number:019}/step-{number}" for number in range(20)]
    history = replace(RAN, blamed=blamed, skipped=skipped, cause="c" * 9_000)

    kept = history_of(history.text)

    assert len(history.text) <= 5_000
    assert {"worst", "ip-10-0-0-299.us-east-2.compute.internal"} <= kept.blamed.keys()
    assert (kept.skipped, kept.attempt, kept.has_run) == (skipped, 0, True)
    long = replace(history, skipped=[f"{number}/{'é' * 127}" for number in range(20)])
    assert history_of(long.text).skipped == long.skipped[-len(history_of(long.text).skipped) :]


def test_a_thousand_random_lives_end_and_none_repeats_for_ever() -> None:
    """Whatever happens: numbers of failures are kept, no start from scratch, an end after three without progress."""
    chance = random.Random(7)  # noqa: S311  no secret
    for _ in range(1_000):
        policy = Policy(chance.randrange(3), is_scratch_ok=chance.random() < 0.3, folder="/c")
        history, checkpoints, own, dry = History(), list[Checkpoint](), 0, 0
        step = first_step(history, checkpoints, policy)
        while step.action != OVER:
            history = replace(step.history, attempt=step.history.attempt + 1)
            assert step.resume or policy.is_scratch_ok or not history.has_run
            history = replace(history, has_run=history.has_run or chance.random() < 0.8)
            dry += 1
            if history.has_run and chance.random() < 0.4:
                checkpoints.insert(0, Checkpoint(f"c{history.attempt}", len(checkpoints) + 1))
                dry = 0
            kind = chance.choice((DONE, PROGRAM, PROGRAM, MACHINE, NOTICE, FABRIC, UNKNOWN, STOP))
            own += kind == PROGRAM
            cause, failures = Cause(kind, int(kind != DONE), kind, "m" if kind == MACHINE else ""), history.failures
            step = decide(history, cause, frozenset({kind}), checkpoints, policy)
            if kind in {DONE, STOP}:
                assert step.action == OVER
            if kind == NOTICE and not history.has_run:
                dry -= 1
            assert step.action == OVER or dry < 3 or step.history.failures > failures
            assert history.attempt < 200
        assert step.text.startswith(kind if history.attempt >= 0 else "")
        assert step.history.failures <= policy.restarts


def make(folder: Path, *names: str) -> None:
    """Write files with content in this order of their times; a name that ends with / is a folder."""
    for number, name in enumerate(names):
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        os.utime(path, (1_000 + number, 1_000 + number))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], []),
        (["b", "a", "c.tmp", ".hidden"], ["a", "b"]),
        (["step-1/", "step-2/", "step-3.tmp/"], ["step-2", "step-1"]),
        (["step-1/.complete", "step-2/model"], ["step-1"]),
        (["step-1.tmp/.complete"], ["step-1.tmp"]),
        (["step-2/.complete", "step-1/.complete", "log"], ["log", "step-1", "step-2"]),
    ],
)
def test_only_complete_checkpoints_count(names: list[str], found: list[str], tmp_path: Path) -> None:
    """Renamed files and folders, or folders with the mark, newest first by the time of their change."""
    make(tmp_path, *names)
    for name in names:
        if name.endswith("/.complete"):
            moment = (tmp_path / name).stat().st_mtime
            os.utime((tmp_path / name).parent, (moment, moment))

    assert [one.name for one in complete(tmp_path)] == found


def test_empty_files_links_and_missing_folders_are_no_checkpoints(tmp_path: Path) -> None:
    """A link to the newest one is the same one."""
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("a")
    make(tmp_path, "a")

    assert [one.name for one in complete(tmp_path)] == ["a"]
    assert complete(tmp_path / "none") == []


@pytest.mark.parametrize("kind", ["file", "folder", "deep"])
def test_a_program_that_reads_a_checkpoint_is_seen(kind: str, tmp_path: Path) -> None:
    """Whatever process of this machine opens it; a look at the names is no read, nor is the agent's own look."""
    make(tmp_path, {"file": "c", "folder": "c/model", "deep": "c/a/b/model"}[kind])
    opened = Opened(tmp_path / "c")
    subprocess.run(["ls", "-lR", tmp_path], check=True, capture_output=True)
    complete(tmp_path)

    assert not opened
    file = next(path for path in [tmp_path / "c", *(tmp_path / "c").rglob("*")] if path.is_file())
    subprocess.run(["cat", file], check=True, capture_output=True)
    assert opened


def test_a_checkpoint_that_is_gone_counts_as_opened(tmp_path: Path) -> None:
    """The program gets the error; the watch must not end a run."""
    opened = Opened(tmp_path / "none")

    assert opened
