"""`bedplate node ssh-config`, as an operator runs it; what the real ssh makes of it is in test_nodes_ssh_config.py."""

from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import record_host_keys

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

pytestmark = pytest.mark.usefixtures("here")


def test_the_ssh_configuration_is_written_with_the_keys_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it is told how many machines are refused until somebody has compared their keys."""
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)

    assert run(["node", "ssh-config", "--write", str(tmp_path / "lab"), "--user", "ada"]) == 0

    assert (tmp_path / "lab.known_hosts").read_text() == f"nas.cellar.lab.internal,192.168.40.5 {KEY}\n"
    assert f'UserKnownHostsFile "{tmp_path}/lab.known_hosts"' in (tmp_path / "lab").read_text()
    assert "44 of 45 machines" in capsys.readouterr().err


def test_a_printed_ssh_configuration_says_where_its_host_keys_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until they are written, and again when the lock knows others: what is printed is what would be written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    written, told = tmp_path / ".ssh/bedplate", []
    written.parent.mkdir()

    for words in ([], ["--write", str(written)], []):
        assert run(["node", "ssh-config", *words]) == 0
        told.append(capsys.readouterr())
    record_host_keys(Path("fleet.lock"), "lab", "nas.cellar", (KEY,), replace_known=False)
    assert run(["node", "ssh-config"]) == 0

    assert [f"`bedplate node ssh-config --write {written}` writes both" in each.err for each in told] == [
        True,
        False,
        False,
    ]
    assert told[2].out == written.read_text()
    assert "writes both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("me", "user", "note"),
    [("ada", "ada", False), ("grace", "grace", False), ("nobody", "ubuntu", True)],
    ids=["administrator", "person", "stranger"],
)
def test_an_ssh_configuration_logs_in_as_whoever_asks(
    me: str, user: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, note: bool
) -> None:
    """Whatever their other configuration says; whom the file does not have is told as whom."""
    monkeypatch.setenv("LOGNAME", me)

    assert run(["node", "ssh-config"]) == 0

    told = capsys.readouterr()
    assert told.out.count(f"  User {user}\n") == 1
    assert ("nobody called" in told.err) is note


def test_a_key_to_log_in_with_is_named_from_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ssh reads the configuration from other folders than the one in which it was asked for; a wrong name is told."""
    Path("key").touch()

    assert [run(["node", "ssh-config", "--identity", name]) for name in ("key", "none")] == [0, 2]

    assert f'IdentityFile "{Path.cwd()}/key"' in capsys.readouterr().out


def test_an_ssh_configuration_of_ones_own_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours may be written anew; ~/.ssh/config is the likeliest wrong name for it."""
    own, ours = tmp_path / "config", tmp_path / "bedplate"
    own.write_text("Host mine\n")

    done = [run(["node", "ssh-config", "--write", str(file)]) for file in (own, ours, ours)]

    assert (done, own.read_text()) == ([2, 0, 0], "Host mine\n")
    assert "Include" in capsys.readouterr().err
    assert not (tmp_path / "config.known_hosts").exists()


def test_a_folder_is_refused_before_host_keys_lie_beside_it(tmp_path: Path) -> None:
    """The fragment and its host keys are written both or not at all."""
    folder = tmp_path / "ssh"
    folder.mkdir()

    assert run(["node", "ssh-config", "--write", str(folder)]) == 4
    assert list(tmp_path.glob("ssh*")) == [folder]
