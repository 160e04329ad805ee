"""The one shell by which an audit asks a machine, here a shell of this one."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.compliance.shell import asked, ended


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


def test_much_is_read_whole(shell: subprocess.Popen[bytes]) -> None:
    """Both streams are emptied at once, so that neither holds up the other."""
    status, said, complained = asked(shell, "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")

    assert (status, len(said), len(complained)) == (0, 3_000_000, 3_000_000)


def test_nothing_is_left_to_the_next_question(shell: subprocess.Popen[bytes]) -> None:
    """A command that changes its folder or its variables changes them for itself."""
    asked(shell, "cd /; LEFT=over; export LEFT; umask 077")

    assert asked(shell, "echo $LEFT")[1] == b"\n"


def test_a_shell_that_is_gone_answers_as_openssh_does(shell: subprocess.Popen[bytes]) -> None:
    """Status 255, which testinfra and the ledger take for a machine that is not reached."""
    shell.kill()
    shell.wait()

    assert asked(shell, "true")[0] == 255
    assert shell.poll() is not None
