"""Lines of ours in texts that belong to the distribution."""

import pytest

from roles.texts import Edit, Texts, with_line, with_words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A 1\nB 2\n", "A\t9\nB 2\n"),
        ("#A 1\nB 2\n", "A\t9\nB 2\n"),
        ("B 2\nA 1\nA 3\n", "B 2\nA\t9\n"),
        ("B 2\n", "B 2\nA\t9\n"),
        ("AA 1\n", "AA 1\nA\t9\n"),
        ("", "A\t9\n"),
    ],
    ids=["said", "commented", "twice", "missing", "longer-name", "empty"],
)
def test_a_key_has_one_value(text: str, wanted: str) -> None:
    """A key that is said, commented out, said twice or not said is said once; other keys stay as they are."""
    assert with_words(text, {"A": "9"}) == wanted
    assert with_words(wanted, {"A": "9"}) == wanted


def test_a_line_stands_for_what_it_replaces() -> None:
    """The first line of its kind becomes ours, others of its kind go."""
    assert with_line("x\numask 022\numask 077\n", r"umask\s", "umask 027") == "x\numask 027\n"


def test_texts_are_read_back_as_they_lie_there() -> None:
    """Empty lines and files without lines survive the one question about all."""
    told = ["==bedplate== /a", "one", "", "two", "==bedplate== /b"]

    assert Texts().process(told) == {"/a": "one\n\ntwo\n", "/b": ""}


def test_an_edit_is_a_value() -> None:
    """Two edits of one file by one function are the same."""
    assert Edit("/a", str.upper) == Edit("/a", str.upper)
