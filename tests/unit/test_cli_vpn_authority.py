"""`bedplate vpn init`, and what no command does without it: an authority, made once, its keys where it is said."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from moto import mock_aws

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support.authority import NOW
from tests.support.laptop_plans import HOME, PUBLIC, RESOLVERS
from vpn.authority import new_root
from vpn.certificate import certificate_text
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists

_OTHER = certificate_text(new_root("lab", NOW).certificate).encode()


def test_an_authority_is_made_once(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said what to commit; a second time it is refused, and nothing is changed."""
    assert run(["vpn", "init", str(lab)]) == 0
    first = folder_of(lab).authority.read_bytes()
    assert run(["vpn", "init", str(lab)]) == 2

    told = capsys.readouterr()
    assert "commit the folder" in told.out
    assert "authority already" in told.err
    assert folder_of(lab).authority.read_bytes() == first


@pytest.mark.parametrize(
    "verb", [["add", "ada"], ["renew", "ada"], ["revoke", "ada"], ["list"], ["show", "ada"], ["sync"]]
)
def test_no_command_works_without_an_authority(verb: list[str], lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says which command makes one."""
    assert run(["vpn", *verb, str(lab)]) == 2

    assert "`bedplate vpn init`" in capsys.readouterr().err


def test_a_damaged_journal_ends_every_command(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way back, and no traceback."""
    journal = folder_of(begun).journal
    journal.write_text(journal.read_text()[:-40])

    for verb in (["add", "ada"], ["list"], ["sync"]):
        assert run(["vpn", *verb, str(begun)]) == 2

    assert capsys.readouterr().err.count("cp journal.copy journal") == 3


def secret_file(path: Path, text: str) -> Path:
    """Write a file that nobody else may read."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _locked(lab: Path, told: Path) -> list[str]:
    return ["vpn", "init", str(lab), "--locked", "--passphrase-file", str(told)]


def test_locked_keys_open_with_their_passphrase(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file; without one, and with nobody at a terminal, it is said how."""
    told = secret_file(tmp_path / "passphrase", "correct horse battery\n")
    wrong = secret_file(tmp_path / "wrong", "another horse battery\n")
    assert run(_locked(lab, told)) == 0

    assert run(["vpn", "add", "ada", str(lab)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(wrong)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(told)]) == 0

    errors = capsys.readouterr().err
    assert "nobody is here to be asked" in errors
    assert "horse" not in errors


def test_an_empty_passphrase_is_told_as_one(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty file, or nothing typed: it opens nothing, and is no defect."""
    told, empty = secret_file(tmp_path / "passphrase", "correct horse battery\n"), secret_file(tmp_path / "empty", "\n")
    assert run(_locked(lab, told)) == 0

    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(empty)]) == 2

    assert "the passphrase is empty" in capsys.readouterr().err


def test_a_passphrase_that_others_may_read_is_refused(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ssh does with a key: whoever reads it has what it locks."""
    told = secret_file(tmp_path / "passphrase", "correct horse battery\n")
    told.chmod(0o640)

    assert run(_locked(lab, told)) == 2

    assert f"chmod 600 {told}" in capsys.readouterr().err
    assert not folder_of(lab).authority.exists()


def test_a_short_passphrase_is_refused(lab: Path, tmp_path: Path) -> None:
    """Before anything is made."""
    told = secret_file(tmp_path / "passphrase", "short\n")

    assert run(_locked(lab, told)) == 2

    assert not folder_of(lab).authority.exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: root.with_name("root.key.crt").unlink(), "certificate cannot be read"),
        (lambda root: root.write_text("no key\n"), "nothing can be read as the root's key"),
        (lambda root: root.with_name("root.key.crt").write_bytes(_OTHER), "does not belong to the key"),
    ],
    ids=["no certificate", "no key", "another's certificate"],
)
def test_a_root_that_cannot_sign_is_refused(
    spoil: Callable[[Path], None], message: str, lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made then; the same root, whole, signs."""
    root = tmp_path / "disk" / "root.key"
    root.parent.mkdir()
    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 0
    assert root.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(folder_of(lab).path)
    whole = (root.read_bytes(), root.with_name("root.key.crt").read_bytes())
    spoil(root)

    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 2

    assert message in capsys.readouterr().err
    root.write_bytes(whole[0])
    root.with_name("root.key.crt").write_bytes(whole[1])
    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 0


def test_a_root_beside_the_fleet_file_is_refused(lab: Path) -> None:
    """It would be kept where the authority is, and protect from nothing."""
    assert run(["vpn", "init", str(lab), "--root", str(lab.with_name("root.key"))]) == 2

    assert not folder_of(lab).authority.exists()


def test_a_root_signs_a_successor(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`vpn init --replaces` revokes the former authority; without the root's key nothing is created."""
    root = str(tmp_path / "root.key")
    assert run(["vpn", "init", "--root", root]) == 0
    folder_of(here).path.rename("former.pki")

    assert run(["vpn", "init", "--replaces", "former.pki/authority.crt"]) == 2
    assert "write `--root KEY`" in capsys.readouterr().err
    assert run(["vpn", "init", "--root", root, "--replaces", "former.pki/authority.crt"]) == 0

    assert len(read_lists(folder_of(here).root_list.read_text())[0]) == 1


def test_keys_in_the_account_are_on_no_disk(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signing and showing read them from the account; a second authority of the fleet is refused."""
    lab.write_text(lab.read_text().replace("111122223333", "123456789012"))
    record_doors(lock_path(lab), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 0
        assert run(["vpn", "add", "ada", str(lab)]) == 0
        assert run(["vpn", "show", "ada", str(lab)]) == 0
        shutil.rmtree(folder_of(lab).path)
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 2

    told = capsys.readouterr()
    assert "BEGIN PRIVATE KEY" in told.out
    assert "the account keeps an authority of lab already" in told.err
    assert not folder_of(lab).keys.exists()


def test_keys_in_another_account_are_not_written(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both accounts are named, and nothing was made."""
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 2

    assert "111122223333" in capsys.readouterr().err
    assert not folder_of(lab).authority.exists()
