"""AWS's ends of a site's tunnels, as Secrets Manager tells them."""

import json

import pytest

from bedplate.account.tunnels import NotMade, TunnelKeys, tunnel_keys
from bedplate.errors import PartError
from tests.support.site_side import LAB
from tests.support.stubbed import StubbedSession, door_of

REGIONS = [region.name for region in LAB.regions]
HOME = LAB.home.name
KEYS = {"198.51.100.7": "first.key", "198.51.100.5": "second.key"}


def _asked(region: str) -> dict[str, str]:
    return {"SecretId": f"lab/tunnels/cellar/{region}"}


def _told(text: str) -> TunnelKeys:
    session = StubbedSession()
    for region in REGIONS:
        session.answers("secretsmanager", HOME, "get_secret_value", {"SecretString": text}, **_asked(region))
    return tunnel_keys(door_of(session), LAB, "cellar")


def test_both_tunnels_of_each_connection_are_told_in_their_order() -> None:
    """The order of the secret is the order of the tunnels, whichever address is the smaller; keys are not shown."""
    told = _told(json.dumps(KEYS))

    assert list(told.ends) == REGIONS
    assert not told.missing
    for pair in told.ends.values():
        assert [(str(one.address), one.key) for one in pair] == list(KEYS.items())
    assert "key'" not in repr(told)
    assert "first.key" not in repr(told)


def test_a_connection_that_was_not_made_yet_is_named() -> None:
    """Without its secret the operator is told which one is missing, and what makes it; the others are told."""
    session = StubbedSession()
    session.refuses("secretsmanager", HOME, "get_secret_value", "ResourceNotFoundException")
    for region in REGIONS[1:]:
        answer = {"SecretString": json.dumps(KEYS)}
        session.answers("secretsmanager", HOME, "get_secret_value", answer, **_asked(region))

    told = tunnel_keys(door_of(session), LAB, "cellar")

    assert list(told.ends) == REGIONS[1:]
    (missing,) = told.missing.values()
    assert isinstance(missing, NotMade)
    assert f"no secret lab/tunnels/cellar/{REGIONS[0]} in {HOME}" in missing.what
    assert "pulumi up -s lab.links" in missing.fix


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not JSON: first.key", id="no-json"),
        pytest.param('["first.key"]', id="a-list"),
        pytest.param('{"198.51.100.7": "first.key"}', id="one-tunnel"),
        pytest.param('{"gate": "first.key", "198.51.100.5": "second.key"}', id="no-address"),
        pytest.param('{"198.51.100.7": "first.key", "198.51.100.5": ""}', id="no-key"),
        pytest.param('{"198.51.100.7": "first.key", "198.51.100.5": 12345678}', id="a-number"),
    ],
)
def test_a_secret_of_another_form_is_refused_without_a_word_of_it(text: str) -> None:
    """What is not two addresses with their keys is no connection's secret, and nothing of it is told."""
    with pytest.raises(PartError, match="holds no two tunnels") as caught:
        _told(text)

    assert "first.key" not in str(caught.value)


def test_a_key_that_is_soon_guessed_is_refused_without_a_word_of_it() -> None:
    """AWS takes eight characters at the least: where the secret holds fewer, somebody wrote it by hand."""
    assert _told(json.dumps(KEYS | {"198.51.100.5": "eight.ok"})).ends

    with pytest.raises(PartError, match=r"the key to 198.51.100.5 in .* has fewer than 8 characters") as caught:
        _told(json.dumps(KEYS | {"198.51.100.5": "seven.7"}))

    assert "seven" not in f"{caught.value} {caught.value.fix}"
