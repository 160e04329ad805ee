"""An operator's desk for a fleet whose gateways have tunnels to each other: its file with an authority, and they."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.support.gateway_shell import shell_to
from tests.support.gateway_tools import site_gateway_at


def begun_file(folder: Path, text: str) -> Path:
    """Write a fleet's file, record its addresses and begin its authority."""
    file = folder / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["plan", str(file), "--write"]) == 0
    assert run(["vpn", "init", str(file)]) == 0
    return file


def gateways_at(folder: Path, names: Mapping[str, str], patch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Make a gateway of each machine, by its place, with its roles and no tunnel yet; the operator's ssh goes there."""
    shell_to(folder / "hosts", patch)
    return {place: site_gateway_at(folder / "hosts" / name) for place, name in names.items()}


def lose_credentials(patch: pytest.MonkeyPatch) -> None:
    """Remove the credentials that moto sets."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def secrets_on(gateway: Path) -> dict[str, str]:
    """Return the keys that lie on a gateway, by their connection."""
    texts = (each.read_text() for each in gateway.glob("etc/bedplate/ipsec/*/swanctl.conf"))
    return {name: key for text in texts for name, key in re.findall(r"ike-(\S+) {.*?secret = 0x(\w+)", text, re.DOTALL)}


def all_secrets(gateways: Iterable[Path]) -> set[str]:
    """Return every key that lies on some gateways."""
    return {key for gateway in gateways for key in secrets_on(gateway).values()}
