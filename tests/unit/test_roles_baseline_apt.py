"""What apt is told on every node, read by the real apt."""

import os
import subprocess
from pathlib import Path

import pytest

from roles.baseline.upgrades import HELD, upgrades
from tests.support.needs import need_program

FORCED = ("--force-confdef", "--force-confold")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give the folders of a node whose one mirror answers nobody, with our settings in force."""
    need_program("apt-get")
    for folder in ("etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    # Port 9 takes nobody.
    (tmp_path / "etc/apt/sources.list").write_text("deb http://127.0.0.1:9/debian stable main\n")
    (tmp_path / "etc/apt/apt.conf.d/zz-bedplate").write_text(upgrades()[0].text)
    return tmp_path


def _apt(node: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    start = node / "start.conf"
    start.write_text(
        f'Dir "{node}"; Dir::Bin::methods "/usr/lib/apt/methods"; Dir::Log "{node}"; APT::Sandbox::User "root";'
    )
    env = {**os.environ, "APT_CONFIG": str(start)}
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, check=False)


def test_a_mirror_that_does_not_answer_is_a_failure(node: Path) -> None:
    """Otherwise apt would be content with no lists at all, and nobody would ask again for an hour."""
    ended = _apt(node, "apt-get", "update")

    assert ended.returncode == 100
    assert "Failed to fetch" in ended.stderr

    (node / "etc/apt/apt.conf.d/zz-bedplate").unlink()
    assert _apt(node, "apt-get", "update").returncode == 0


def test_what_was_set_before_is_not_in_force(node: Path) -> None:
    """Other files switch no upgrade off, hold nothing back, and let no list of names in."""
    before = (
        'APT::Periodic::Enable "0"; Unattended-Upgrade::Package-Blacklist { ".*"; };'
        ' Unattended-Upgrade::Package-Whitelist { "none"; };'
    )
    (node / "etc/apt/apt.conf.d/99other").write_text(before)

    told = _apt(node, "apt-config", "dump", "--no-empty", "--format", "%F %v%n").stdout.splitlines()

    assert "APT::Periodic::Enable 1" in told
    held = [line.split()[1] for line in told if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert held == list(HELD)
    assert not [line for line in told if line.startswith("Unattended-Upgrade::Package-Whitelist")]


def test_an_upgrade_keeps_the_settings_that_roles_wrote(node: Path) -> None:
    """Nobody is asked, and no security upgrade is left out, for a file that a role has rewritten."""
    told = _apt(node, "apt-config", "dump", "Dpkg::Options").stdout

    assert [line.split('"')[1] for line in told.splitlines()[1:]] == list(FORCED)
