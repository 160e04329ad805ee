"""Logging in before a line is a line: what a shell, ssh or sudo says in the agent's stead."""

from pathlib import Path

import pytest

from bedplate.nodes.event import Kind, Trouble
from roles.engine.line import Line
from tests.support.engine_line import opening


def test_a_greeting_of_the_shell_is_no_part_of_the_talk(tmp_path: Path) -> None:
    """Some shells say something to whoever logs in."""
    greeting = tmp_path / "greeting"
    greeting.write_text('#!/bin/sh\necho "Welcome to the cellar"\nexec sh -c "$1"\n')
    greeting.chmod(0o755)

    line = Line("here", (str(greeting),), opening(tmp_path))

    assert line.run("echo in").out == "in\n"
    line.close()


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Permission denied (publickey).", Kind.UNREACHED, "does not let this account in"),
        ("ssh: connect to host x port 22: Connection timed out", Kind.UNREACHED, "does not answer"),
        ("ssh: Could not resolve hostname x: Name or service not known", Kind.UNREACHED, "does not resolve"),
        ("sudo: a password is required", Kind.UNREACHED, "asks for a password"),
        ("ada is not in the sudoers file.", Kind.UNREACHED, "may not become root"),
        ("sh: 1: exec: sudo: not found", Kind.UNREACHED, "no sudo"),
        ("sh: 1: exec: python3: not found", Kind.UNREACHED, "no Python"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            Kind.REFUSED,
            "not the",
        ),
        ("No ED25519 host key is known for x\nHost key verification failed.", Kind.REFUSED, "not known"),
        ("kex_exchange_identification: weird", Kind.UNREACHED, "weird"),
    ],
    ids=["key", "silent", "name", "password", "sudoers", "sudo", "python", "changed", "unknown", "other"],
)
def test_a_login_that_fails_is_told_in_words(said: str, kind: Kind, told: str, tmp_path: Path) -> None:
    """An operator reads what is the matter and what to do, whatever ssh says."""
    text = tmp_path / "said"
    text.write_text(said)

    with pytest.raises(Trouble, match=told) as trouble:
        Line("titan-01.cellar", ("sh", "-c", f"cat {text} >&2; exit 255"), opening(tmp_path))

    assert trouble.value.kind is kind
    assert trouble.value.fix


def test_sudo_is_understood_whatever_language_the_operator_speaks(tmp_path: Path) -> None:
    """A terminal brings its language along, and what sudo refuses is known by its words."""
    programs = {
        "id": "echo 1000",
        "sudo": 'test "$LANGUAGE$LC_ALL" = C.UTF-8 && echo "a password is required" >&2; exit 1',
        "login": f'export LANGUAGE=de LC_ALL=de_DE.UTF-8 PATH={tmp_path}:$PATH; exec sh -c "$1"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    with pytest.raises(Trouble, match="sudo asks for a password"):
        Line("titan-01.cellar", (str(tmp_path / "login"),), opening(tmp_path))


def test_a_login_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as a machine that does not answer, and not as one of which nobody says why."""
    monkeypatch.setattr("roles.engine.line._LOGIN_SECONDS", 0.5)

    with pytest.raises(Trouble, match="does not answer"):
        Line("here", ("sh", "-c", "exec sleep 600", "sh"), opening(tmp_path))
