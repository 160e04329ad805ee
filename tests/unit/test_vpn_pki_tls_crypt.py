"""The keys that hide gateways, by the format that OpenVPN reads."""

import base64
import subprocess
from pathlib import Path

import pytest

from bedplate.errors import InputError
from tests.support.needs import need_program
from vpn.tls_crypt import client_key, new_server_key

SERVER = new_server_key()


def _payload(text: str) -> bytes:
    return base64.b64decode("".join(text.splitlines()[1:-1]))


def test_two_laptops_share_no_key() -> None:
    """Nor does one laptop twice."""
    assert client_key(SERVER, "ada.laptop") != client_key(SERVER, "ada.laptop")


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519 AAAA", client_key(SERVER, "ada.laptop")], ids=["none", "ssh", "client"]
)
def test_what_is_no_servers_key_wraps_nothing(text: str) -> None:
    """A mixed-up file is told, without what it holds."""
    with pytest.raises(InputError, match="no OpenVPN tls-crypt-v2 server key"):
        client_key(text, "ada.laptop")


def test_keys_are_as_long_as_openvpns_own(tmp_path: Path) -> None:
    """`openvpn --genkey` is the judge of the form; its own keys are read as ours are."""
    need_program("openvpn")
    server, client = tmp_path / "server.key", tmp_path / "client.key"
    subprocess.run(["openvpn", "--genkey", "tls-crypt-v2-server", server], check=True, capture_output=True)
    command = ["openvpn", "--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(client)]
    metadata = base64.b64encode(b"ada.laptop").decode()
    subprocess.run([*command, metadata], check=True, capture_output=True)

    assert len(_payload(server.read_text())) == len(_payload(SERVER))
    assert len(_payload(client.read_text())) == len(_payload(client_key(SERVER, "ada.laptop")))
