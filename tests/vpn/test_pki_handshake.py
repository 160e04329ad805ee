"""The project's own certificates, lists and keys between two real OpenVPN processes on this machine's loopback."""

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
    gateway,
    issue,
    key_text,
    laptop,
    new_key,
    new_server_key,
)
from vpn.pki import PkiFolder, bundle_of, open_issuer
from vpn.signing import add, revoke

GATEWAY, LAPTOP = gateway("cellar", "lab.internal"), laptop("ada")
DONE, PATIENCE_S = "Initialization Sequence Completed", 20.0


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(params=[False, True], ids=["alone", "under a root"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> PkiFolder:
    """Return an authority that has let one laptop in at one gateway."""
    need_program("openvpn")
    root = new_root("lab", _now()) if request.param else None
    begun = begun_in(tmp_path, _now(), root=root)
    add(pki_in(begun), [GATEWAY, LAPTOP], _now(), unasked)
    return begun


def _files(folder: PkiFolder, name: str, tls_crypt: str | None = None, bundle: Bundle | None = None) -> list[str]:
    """Return OpenVPN's options that name the files of one end, written beside the folder."""
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


def _meet(folder: PkiFolder, laptop_key: str | None = None, laptop_bundle: Bundle | None = None) -> tuple[bool, str]:
    """Let a laptop dial a gateway; return whether both have met, and what the gateway logged."""
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
        ["openvpn", *both, *listens, "--remote-cert-tls", "client", *_files(folder, GATEWAY.name)],
        [
            "openvpn",
            *both,
            *dials,
            "--remote-cert-tls",
            "server",
            *_files(folder, LAPTOP.name, laptop_key, laptop_bundle),
        ],
    )
    with log.open("w") as sink, log.with_suffix(".laptop").open("w") as other:
        ends = [
            subprocess.Popen(command, stdout=stream, stderr=stream)
            for command, stream in zip(commands, (sink, other), strict=True)
        ]
        try:
            has_met = _waited_for(log)
        finally:
            for end in ends:
                end.kill()
                end.wait()
    return has_met, log.read_text()


def _waited_for(log: Path) -> bool:
    """Wait until the gateway has let somebody in, or says that it does not."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        told = log.read_text()
        if DONE in told:
            return True
        if "VERIFY ERROR" in told or "tls-crypt unwrap error" in told or "TLS Error" in told:
            return False
        time.sleep(0.05)
    return False


def test_a_laptop_is_let_in(folder: PkiFolder) -> None:
    """By its certificate, its list and its key: all three made here, all three read by OpenVPN."""
    has_met, log = _meet(folder)

    assert has_met, log


def test_a_revoked_laptop_is_not(folder: PkiFolder) -> None:
    """OpenVPN says that it was revoked."""
    revoke(pki_in(folder), [LAPTOP.name], Reason.LOST, _now(), unasked)

    has_met, log = _meet(folder)

    assert not has_met
    assert "certificate revoked" in log


def test_a_stolen_authority_opens_nothing_of_its_successor(tmp_path: Path) -> None:
    """Both are under one root: a thief sends a certificate of the stolen key, with the stolen authority's own."""
    need_program("openvpn")
    root = new_root("lab", _now())
    stolen, successor = (_begun_under(root, tmp_path / name) for name in ("stolen", "successor"))
    thief = open_issuer(pki_in(stolen), unasked)[0]
    key = new_key()
    forged = issue(thief, LAPTOP, key.public_key(), 7, _now())
    chain = certificate_text(forged) + certificate_text(thief.certificate)
    hidden = bundle_of(pki_in(successor), LAPTOP.name, unasked).tls_crypt

    assert _meet(successor)[0]
    has_met, log = _meet(successor, laptop_bundle=Bundle(chain, key_text(key), hidden))

    assert not has_met
    assert "unable to get local issuer certificate" in log


def _begun_under(root: Issuer, path: Path) -> PkiFolder:
    path.mkdir()
    begun = begun_in(path, _now(), root=root)
    add(pki_in(begun), [GATEWAY, LAPTOP], _now(), unasked)
    return begun


def test_a_laptop_with_a_key_of_other_gateways_is_not(folder: PkiFolder) -> None:
    """Its packets are dropped before TLS begins, though its certificate is good."""
    has_met, log = _meet(folder, client_key(new_server_key(), LAPTOP.name))

    assert not has_met
    assert "tls-crypt" in log
