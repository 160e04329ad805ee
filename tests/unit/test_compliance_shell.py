"""The one shell by which an audit asks a machine, here a shell of this one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.errors import PartError
from bedplate.nodes.audit import CHECKS
from bedplate.nodes.verdict import Outcome, findings_of
from tests.compliance.shell import HereBackend, asked, ended
from tests.support.declared import EXAMPLES


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    """Give a shell that waits for questions."""
    pipe = subprocess.PIPE
    opened = subprocess.Popen(["sh"], stdin=pipe, stdout=pipe, stderr=pipe)
    yield opened
    ended(opened)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        pytest.param("echo yes", (0, b"yes\n", b""), id="said"),
        pytest.param("printf 'no end'", (0, b"no end", b""), id="without an end of line"),
        pytest.param("echo oh >&2; exit 3", (3, b"", b"oh\n"), id="complained"),
        pytest.param("exit 255", (255, b"", b""), id="the status of a lost connection"),
        pytest.param("cat", (0, b"", b""), id="reads nothing"),
        pytest.param(r"printf '\000\377\n'", (0, b"\x00\xff\n", b""), id="bytes"),
        pytest.param("echo \"it's\" '$HOME'", (0, b"it's $HOME\n", b""), id="quotes"),
        pytest.param("yes | head -c 300000 | wc -c", (0, b"300000\n", b""), id="pipes"),
    ],
)
def test_a_question_has_its_own_answer(
    command: str, answer: tuple[int, bytes, bytes], shell: subprocess.Popen[bytes]
) -> None:
    """Status, words and complaints come back as a login of its own would give them, again and again."""
    first, second = asked(shell, command), asked(shell, command)

    assert first == second == answer


def test_answers_are_in_plain_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever language the operator's terminal brings along: rules read the words of programs."""
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    answer = HereBackend("here").run("echo $LANGUAGE$LC_ALL")

    assert answer.stdout == "C.UTF-8\n"


def test_much_is_read_whole(shell: subprocess.Popen[bytes]) -> None:
    """Both streams are emptied at once, so that neither holds up the other."""
    status, said, complained = asked(shell, "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")

    assert (status, len(said), len(complained)) == (0, 3_000_000, 3_000_000)


def test_nothing_is_left_to_the_next_question(shell: subprocess.Popen[bytes]) -> None:
    """A command that changes its folder or its variables changes them for itself."""
    asked(shell, "cd /; LEFT=over; export LEFT; umask 077")

    assert asked(shell, "echo $LEFT")[1] == b"\n"


def test_what_does_not_end_is_ended(shell: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """With all that it started and whatever it makes of signals; the next question has its answer."""
    stubborn = f"trap '' TERM; sleep 30 & echo $! >{tmp_path}/child; wait"
    begun = time.monotonic()

    with pytest.raises(TimeoutError):
        asked(shell, stubborn, 1)

    assert time.monotonic() - begun < 15
    assert asked(shell, "echo yes") == (0, b"yes\n", b"")
    child = (tmp_path / "child").read_text().strip()
    # Whoever has ended and whose end nobody has asked for yet is there still.
    assert asked(shell, f"ps -o stat= -p {child} | grep -v Z")[1] == b""


@pytest.mark.parametrize("status", [124, 137])
def test_a_status_like_that_of_a_late_end_is_its_own(status: int, shell: subprocess.Popen[bytes]) -> None:
    """A command may end as timeout(1) would, in its time."""
    assert asked(shell, f"exit {status}")[0] == status


LOOKING = """
import pytest
from tests.compliance import shell

@pytest.fixture(scope="module")
def late(host):
    host.backend._patience, shell._HASTE_SECONDS = 1, 0.2
    host.check_output("sleep 30")

def test_first(late):
    "A fixture waits."

def test_second(host):
    "The rule itself waits, less long."
    assert not host.file("/").exists or host.run("sleep 30").succeeded

def test_third(host):
    "The others are judged."
    assert host.run("true").succeeded
"""


def test_a_rule_whose_machine_does_not_answer_is_not_seen(tmp_path: Path) -> None:
    """It is neither kept nor violated, the rules after it are judged, and the whole is a success in part."""
    rules, found = tmp_path / "test_storage.py", tmp_path / "found"
    rules.write_text(LOOKING)
    plugins = ("-p", "testinfra.plugin", "-p", "tests.compliance.conftest", "-c", str(CHECKS / "pytest.ini"))
    where = ("--hosts=here://titan-03.cellar", f"--fleet={EXAMPLES / 'lab.yaml'}", f"--findings={found}")
    run = (sys.executable, "-m", "pytest", *plugins, "--rootdir", str(tmp_path), *where, str(rules))
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(run, cwd=CHECKS.parents[1], env=alone, capture_output=True, text=True, check=False)

    assert done.returncode == PartError.exit_code, done.stdout + done.stderr
    (findings,) = findings_of(found.read_text())
    assert [each.outcome for each in findings.verdicts] == [Outcome.UNSEEN, Outcome.UNSEEN, Outcome.KEPT]
    assert [each.words for each in findings.of(Outcome.UNSEEN)] == [
        "no answer within 1 s: sleep 30",
        "no answer within 0.2 s: sleep 30",
    ]


def test_a_shell_that_is_gone_answers_as_openssh_does(shell: subprocess.Popen[bytes]) -> None:
    """Status 255, which testinfra and the ledger take for a machine that is not reached."""
    shell.kill()
    shell.wait()

    assert asked(shell, "true")[0] == 255
    assert shell.poll() is not None
