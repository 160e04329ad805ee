"""Certificates, revocation lists and keys of the project between two real OpenVPN processes on loopback."""

import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.testlab.keys.authority import begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.authority import Reason, new_root
from vpn.certificates import (
    Bundle,
    Issuer,
    certificate_text,
    client_key,
    gateway_subject,
    issue,
    key_text,
    laptop,
    new_key,
    new_server_key,
)
from vpn.pki import PkiFolder, bundle_of, open_issuer
from vpn.signing import add, revoke

GATEWAY, LAPTOP = gateway_subject("cellar", "lab.internal"), laptop("ada")
DONE, PATIENCE_S = "Initialization Sequence Completed", 20.0


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(params=[False, True], ids=["alone", "under a root"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> PkiFolder:
    """Return an authority with one laptop and one gateway."""
    need_program("openvpn")
    root = new_root("lab", _now()) if request.param else None
    begun = begun_in(tmp_path, _now(), root=root)
    add(pki_in(begun), [GATEWAY, LAPTOP], _now(), unasked)
    return begun


def _file_options(
    folder: PkiFolder, name: str, tls_crypt: str | None = None, bundle: Bundle | None = None
) -> list[str]:
    """Return OpenVPN's options for the files of one end, which are written to the folder."""
    bundle = bundle or bundle_of(pki_in(folder), name, unasked)
    texts = {"cert": bundle.certificate, "key": bundle.key, "tls-crypt-v2": tls_crypt or bundle.tls_crypt}
    texts["ca"] = pki_in(folder).authority.trusted
    options = []
    for word, text in texts.items():
        path = folder.path.with_name(f"{name}.{word}")
        path.write_text(text)
        path.chmod(0o600)
        options += [f"--{word}", str(path)]
    return options


def _free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _connect(folder: PkiFolder, laptop_key: str | None = None, laptop_bundle: Bundle | None = None) -> tuple[bool, str]:
    """Connect a laptop to a gateway; return whether it succeeded, and the gateway's log."""
    port = _free_port()
    log = folder.path.with_name("gateway.log")
    both = ["--dev", "null", "--ifconfig-noexec", "--proto", "udp4", "--verb", "4", "--data-ciphers", "AES-256-GCM"]
    both += ["--tls-version-min", "1.2", "--hand-window", "5"]
    listens = [
        "--tls-server",
        "--local",
        "127.0.0.1",
        "--lport",
        port,
        "--crl-verify",
        str(folder.lists),
        "--dh",
        "none",
    ]
    dials = ["--tls-client", "--remote", "127.0.0.1", port, "--nobind", "--verify-x509-name", "gateway.", "name-prefix"]
    commands = (
        ["openvpn", *both, *listens, "--remote-cert-tls", "client", *_file_options(folder, GATEWAY.name)],
        [
            "openvpn",
            *both,
            *dials,
            "--remote-cert-tls",
            "server",
            *_file_options(folder, LAPTOP.name, laptop_key, laptop_bundle),
        ],
    )
    with log.open("w") as sink, log.with_suffix(".laptop").open("w") as other:
        ends = [
            subprocess.Popen(command, stdout=stream, stderr=stream)
            for command, stream in zip(commands, (sink, other), strict=True)
        ]
        try:
            has_met = _wait_for_result(log)
        finally:
            for end in ends:
                end.kill()
                end.wait()
    return has_met, log.read_text()


def _wait_for_result(log: Path) -> bool:
    """Wait until the gateway has accepted or rejected the laptop."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        text = log.read_text()
        if DONE in text:
            return True
        if "VERIFY ERROR" in text or "tls-crypt unwrap error" in text or "TLS Error" in text:
            return False
        time.sleep(0.05)
    return False


def test_a_valid_laptop_is_accepted(folder: PkiFolder) -> None:
    """OpenVPN reads its certificate, its tls-crypt-v2 key and the revocation list."""
    has_met, log = _connect(folder)

    assert has_met, log


def test_a_revoked_laptop_is_rejected(folder: PkiFolder) -> None:
    """OpenVPN's log says that the certificate was revoked."""
    revoke(pki_in(folder), [LAPTOP.name], Reason.LOST, _now(), unasked)

    has_met, log = _connect(folder)

    assert not has_met
    assert "certificate revoked" in log


def test_a_successor_rejects_certificates_of_a_stolen_authority(tmp_path: Path) -> None:
    """Both are under one root, and the thief sends the stolen authority's certificate too."""
    need_program("openvpn")
    root = new_root("lab", _now())
    stolen, successor = (_begun_under(root, tmp_path / name) for name in ("stolen", "successor"))
    thief = open_issuer(pki_in(stolen), unasked)[0]
    key = new_key()
    forged = issue(thief, LAPTOP, key.public_key(), 7, _now())
    chain = certificate_text(forged) + certificate_text(thief.certificate)
    hidden = bundle_of(pki_in(successor), LAPTOP.name, unasked).tls_crypt

    assert _connect(successor)[0]
    has_met, log = _connect(successor, laptop_bundle=Bundle(chain, key_text(key), hidden))

    assert not has_met
    assert "unable to get local issuer certificate" in log


def _begun_under(root: Issuer, path: Path) -> PkiFolder:
    path.mkdir()
    begun = begun_in(path, _now(), root=root)
    add(pki_in(begun), [GATEWAY, LAPTOP], _now(), unasked)
    return begun


def test_a_laptop_with_another_tls_crypt_key_is_rejected(folder: PkiFolder) -> None:
    """Its packets are dropped before TLS starts, although its certificate is valid."""
    has_met, log = _connect(folder, client_key(new_server_key(), LAPTOP.name))

    assert not has_met
    assert "tls-crypt" in log
