"""A person's way in and out, with the archive of `person invite` and a real OpenVPN client."""

from pathlib import Path
from signal import SIGKILL
from zipfile import ZipFile

import pytest

from tests.testlab.machines.gateways import LaptopGateways

pytestmark = pytest.mark.nightly


def test_an_invited_person_connects_until_removed(gateways: LaptopGateways, tmp_path: Path) -> None:
    """The profile of the archive connects; `person remove` ends the session, also before the fleet file is edited."""
    archive, fleet = tmp_path / "grace.zip", str(gateways.fleet)
    invited = gateways.operator.bedplate("person", "invite", "grace", fleet, "--write", str(archive))
    # The fleet's hub does not run here.
    assert (invited.returncode, "the archive lacks bp" in invited.stderr) == (6, True), invited.stderr
    assert gateways.vpn("sync").returncode == 0
    with ZipFile(archive) as opened:
        opened.extractall(tmp_path)
    client = gateways.connect(tmp_path / "lab/lab.ovpn")
    try:
        assert "grace.laptop" in gateways.sessions
        ssh_config = str(gateways.node_lab.ssh_config)
        removed = gateways.operator.bedplate("person", "remove", "grace", fleet, "--ssh-config", ssh_config)

        assert "cellar: updated, 1 session ended" in removed.stdout, removed.stderr
        assert (removed.returncode, "delete line" in removed.stderr) == (6, True)
        assert "grace.laptop" not in gateways.sessions
    finally:
        client.end(SIGKILL)
