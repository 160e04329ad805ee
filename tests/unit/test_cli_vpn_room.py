"""`bedplate vpn add` where the gateways' pools are full: told before anything is signed."""

import json
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path
from vpn.pki_folder import folder_of


@pytest.fixture
def narrow(begun: Path) -> Path:
    """Give a fleet whose pools have room for one laptop, recorded, and taken."""
    begun.write_text(begun.read_text().replace("pool: /22", "pool: /29"))
    assert run(["plan", "--write", str(begun)]) == 0
    assert run(["vpn", "add", "ada", str(begun)]) == 0
    return begun


def _widen(lab: Path, place: str) -> None:
    """Record a wider pool of a place, far from all others."""
    told = json.loads(lock_path(lab).read_text())
    told["blocks"][f"pool/{place}"] = "10.127.252.0/22"
    lock_path(lab).write_text(json.dumps(told))


def test_a_laptop_without_room_is_told_before_anything_is_signed(
    narrow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, the journal as it was, and what to do: else somebody would carry home a profile that opens nothing."""
    before = folder_of(narrow).journal.read_bytes()

    assert run(["vpn", "add", "grace", str(narrow)]) == 2

    told = capsys.readouterr().err
    assert "no gateway's pool has room for grace.laptop" in told
    assert "is for 1" in told
    assert "wider pool" in told
    assert folder_of(narrow).journal.read_bytes() == before
    assert not list(folder_of(narrow).keys.glob("grace*"))


def test_a_laptop_that_was_revoked_makes_room(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way out that costs nothing; whoever has an address may be renewed, whatever room there is."""
    assert run(["vpn", "renew", "ada", str(narrow)]) == 0
    run(["vpn", "revoke", "ada", str(narrow)])

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


def test_room_at_one_gateway_is_enough(narrow: Path) -> None:
    """A sync names the gateways that have none for it."""
    _widen(narrow, "cellar")

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


@pytest.mark.parametrize(
    "text",
    [None, "{}", "[]", "{", '{"blocks": {"pool/us-west-2": "10.0.0.0/29"}}', '{"blocks": {"pool/us-west-2": 7}}'],
)
def test_what_no_lock_says_keeps_nobody_out(text: str | None, narrow: Path) -> None:
    """A lock that is not there, is damaged, or knows not all pools: what is wrong with it other commands tell."""
    lock_path(narrow).unlink()
    if text is not None:
        lock_path(narrow).write_text(text)

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


def test_the_pool_of_a_gateway_that_is_gone_counts_no_more(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock remembers it for ever; nobody dials it."""
    _widen(narrow, "attic")

    assert run(["vpn", "add", "grace", str(narrow)]) == 2

    assert "no gateway's pool has room" in capsys.readouterr().err
