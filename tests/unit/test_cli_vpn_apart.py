"""Several operators: an older clone, a clock that was ahead, and two commands at the same time."""

import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.cli.vpn_opening import keys_of, known_passphrase, now
from tests.support.laptop_desk import HOSTS
from tests.support.page import ROOT
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists
from vpn.signing import relist

# An ssh that waits until somebody lets it go, and is then the one behind it.
_LATE = """#!/bin/sh
touch "$ASKED"
while [ ! -e "$GO" ]; do sleep 0.05; done
exec {ssh} "$@"
"""


def _let_in(gateways: Path) -> "list[set[str]]":
    return [{file.name for file in (gateways / host / "udp.laptops").iterdir()} for host in HOSTS.values()]


def _clone(fleet: Path) -> Path:
    return Path(shutil.copytree(fleet.parent, fleet.parent.with_name("clone"))) / fleet.name


def test_an_older_clone_is_refused(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sync from a clone without the last change exits with status 6, and the gateways keep what they have."""
    other = _clone(begun)
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    capsys.readouterr()

    assert run(["vpn", "sync", str(other)]) == 6

    assert "is older than the one in force" in capsys.readouterr().err
    assert _let_in(gateways) == [{"ada.laptop"}] * 2


def test_a_clock_that_was_ahead_is_made_good(
    begun: Path, gateways: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was signed then is not carried; with the files that were committed before, all goes on."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    folder = folder_of(begun)
    files = (folder.journal, folder.copy, folder.lists)
    kept = [each.read_bytes() for each in files]
    relist(keys_of("lab", begun), now() + timedelta(days=365), known_passphrase(None))

    assert run(["vpn", "sync", str(begun)]) == 2

    assert "The clock was ahead" in capsys.readouterr().err
    for each, text in zip(files, kept, strict=True):
        each.write_bytes(text)
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert _let_in(gateways) == [set(), set()]


def test_an_older_book_never_comes_after_a_newer(begun: Path, gateways: Path, tmp_path: Path) -> None:
    """Two real processes: a sync that is slow to arrive, and a revocation meanwhile. Both end well, and it stands."""
    run(["vpn", "add", "ada", str(begun)])
    late, asked, go = tmp_path / "late", tmp_path / "asked", tmp_path / "go"
    late.mkdir()
    (late / "ssh").write_text(_LATE.format(ssh=shutil.which("ssh")))
    (late / "ssh").chmod(0o755)
    env = {**os.environ, "PATH": f"{late}:{os.environ['PATH']}", "ASKED": str(asked), "GO": str(go)}
    command = [sys.executable, "-m", "bedplate", "vpn", "sync", str(begun)]

    slow = subprocess.Popen(command, env={**env, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    while not asked.exists():
        assert slow.poll() is None, slow.communicate()[1]
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    go.touch()
    errors = slow.communicate(timeout=120)[1]

    assert slow.returncode == 0, errors
    assert _let_in(gateways) == [set()] * 2
    assert [len(read_lists((gateways / host / "crl.pem").read_text())[0]) for host in HOSTS.values()] == [1, 1]
