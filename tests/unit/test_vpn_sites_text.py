"""The text that a site's gateway runs by: whole, and only its own secrets in it."""

from dataclasses import replace

import pytest

from bedplate.plan import FleetPlan
from bedplate.spec.site import Dials
from tests.conftest import Expect
from tests.support.settings_text import read_settings
from tests.support.site_side import LAB, cellar, ends_of
from vpn.sites.files import files_of
from vpn.sites.gateway import Gateway
from vpn.sites.proof import Papers, SharedKey
from vpn.sites.rendered import PRIVATE


def _whole(gateway: Gateway) -> str:
    return "".join(f"===== {file.path} {file.mode:o}\n{file.text}" for file in files_of(gateway))


def _with_site(dials: Dials) -> FleetPlan:
    return replace(LAB, sites=tuple(replace(site, dials=dials) for site in LAB.sites))


def test_the_text_is_as_expected(expect: Expect) -> None:
    """Every file of the larger example's gateway is known to the letter."""
    expect("vpn/cellar.txt", _whole(cellar()))


def test_a_region_more_changes_nothing_of_the_others() -> None:
    """The connection of one tunnel is the same whether or not the site has tunnels to another region."""
    fewer = replace(LAB, tunnels=tuple(one for one in LAB.tunnels if one.region != "us-west-2"))
    whole, part = _connections(cellar()), _connections(cellar(fewer))

    assert part
    assert part.items() < whole.items()


def _connections(gateway: Gateway) -> dict[str, object]:
    files = {file.path.name: file.text for file in files_of(gateway)}
    return dict(read_settings(files["swanctl.conf"])["connections"])


def test_one_end_dials() -> None:
    """A gateway whose site dials opens its tunnels and keeps them open; one that AWS dials waits, and says so."""
    for dials, action, who in ((Dials.SITE, "start", "dials"), (Dials.AWS, "none", "waits")):
        files = {file.path.name: file.text for file in files_of(cellar(_with_site(dials)))}

        connections = read_settings(files["swanctl.conf"])["connections"]

        assert {one["children"][name]["start_action"] for name, one in connections.items()} == {action}
        assert {one["children"][name]["close_action"] for name, one in connections.items()} == {action}
        assert {line.split()[5] for line in files["table"].splitlines()} == {who}
        assert "/ipsec-watch /etc/bedplate/ipsec/tunnels/table" in files["bedplate-ipsec-tunnels-dial.service"]


def test_keys_are_for_root_alone() -> None:
    """A file that holds a key is for root to read, and no file shows its text, or a value its key, when printed."""
    gateway = cellar()
    keys = {each.proof.text for each in gateway.tunnels if isinstance(each.proof, SharedKey)}

    holding = [file for file in files_of(gateway) if any(key in file.text for key in keys)]

    assert len(holding) == 1
    assert len(keys) == len(gateway.tunnels)
    assert {file.mode for file in holding} == {PRIVATE}
    assert not any(key in repr((gateway, holding, ends_of(LAB))) for key in (*keys, "key.of"))


def test_papers_lie_where_swanctl_looks() -> None:
    """Of certificates, each authority and each list is a file of its own, and all of them are demanded."""
    papers = Papers("mine\n", "key\n", ("issuing\n", "root\n"), ("issued\n", "authorities\n"))
    gateway = cellar()
    (first, *_) = gateway.tunnels
    files = {str(file.path): file for file in files_of(replace(gateway, tunnels=(replace(first, proof=papers),)))}

    folder = "/etc/bedplate/ipsec/tunnels"
    (connection,) = read_settings(files[f"{folder}/swanctl.conf"].text)["connections"].values()

    assert connection["remote"]["cacerts"] == "us-west-2-1-1.crt,us-west-2-1-2.crt"
    assert connection["remote"]["revocation"] == "strict"
    assert files[f"{folder}/x509ca/us-west-2-1-2.crt"].text == "root\n"
    assert files[f"{folder}/x509crl/us-west-2-1-2.crl"].text == "authorities\n"
    assert files[f"{folder}/private/us-west-2-1.key"].mode == PRIVATE
    assert not read_settings(files[f"{folder}/swanctl.conf"].text)["secrets"]


@pytest.mark.parametrize("secret", [b"", b"1", b"seven.7"], ids=["none", "one", "seven"])
def test_a_key_that_is_soon_guessed_is_refused(secret: bytes) -> None:
    """Fewer bytes than AWS takes itself; nothing of the key is told."""
    with pytest.raises(ValueError, match="fewer than 8 bytes") as caught:
        SharedKey(secret)

    assert "seven" not in str(caught.value)
    assert SharedKey(b"eight.ok").text == "0x65696768742e6f6b"


def test_a_charon_that_does_not_start_is_tried_until_it_does() -> None:
    """Or systemd gives up, for good, after five times within ten seconds."""
    (text,) = (file.text for file in files_of(cellar()) if "ExecStart=/usr/sbin/charon-systemd" in file.text)

    assert "\nRestart=always\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text


def test_no_tunnel_stands_without_its_guard() -> None:
    """Where the guard did not load at boot nothing may be led elsewhere, and so no charon starts."""
    texts = [file.text for file in files_of(cellar()) if "ExecStart=/usr/sbin/charon-systemd" in file.text]

    assert texts
    assert all("\nRequires=bedplate-guard.service\n" in text for text in texts)
    assert all(" bedplate-guard.service\n" in line for text in texts for line in _lines(text, "After="))


def _lines(text: str, start: str) -> list[str]:
    return [f"{line}\n" for line in text.splitlines() if line.startswith(start)]
