"""What a message may show of a secret: nothing that could be told from it."""

import pytest

from bedplate.rehearsal.hiding import hidden

PHRASE = "correct horse battery staple"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("value correct horse battery staple is bad", "value [secret] is bad"),
        ("value 'correct horse batt' has 28 characters", "value '[secret]' has 28 characters"),
        ("Effect is horse battery in {}", "Effect is[secret]in {}"),
        ("no horse", "no horse"),
    ],
)
def test_a_secret_is_hidden_whole_and_in_part(message: str, told: str) -> None:
    """A message that quotes a piece of a secret shows no more of it than one that quotes all."""
    assert hidden(message, {PHRASE}) == told


def test_a_short_secret_is_hidden_where_it_stands_whole() -> None:
    """Too short to share a run, it is still never told."""
    assert hidden("key 4711 is too short", {"4711"}) == "key [secret] is too short"
