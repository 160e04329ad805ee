"""Words of a fleet file mean what YAML 1.2 says, and are told where a YAML 1.1 reader would mean something else."""

import math

import pytest

from bedplate.load.compose import Composer
from bedplate.load.node import Node, Place
from bedplate.load.scalar import Scalar, meaning_elsewhere, resolve


def composed(text: str) -> Node:
    """Return the tree of a text without faults."""
    composer = Composer(text)
    tree = composer.compose()
    assert composer.faults == []
    return tree


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        *(("true", True), ("False", False), ("null", None), ("~", None), ("", None)),
        *(("0", 0), ("-12", -12), ("+7", 7), ("0o17", 15), ("0xfF", 255)),
        *(("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-.inf", -math.inf), ("5.", 5.0)),
        *(("no", "no"), ("010", "010"), ("10:20", "10:20"), ("1_000", "1_000"), ("tRue", "tRue")),
        *(("2026-01-01", "2026-01-01"), ("10.64.0.0/10", "10.64.0.0/10"), ("+", "+"), (".", ".")),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_an_unquoted_word_has_its_meaning_of_yaml_1_2(word: str, meaning: Scalar) -> None:
    """The core schema decides; what it does not know is text."""
    assert resolve(word) == meaning
    assert type(resolve(word)) is type(meaning)


@pytest.mark.parametrize(
    "word",
    ["no", "YES", "on", "Off", "y", "N", "010", "08", "0b11", "1_000", "10:20", "10:20.5", "2026-01-01", "=", "0_7"],
)
def test_a_word_that_yaml_1_1_reads_differently_is_told(word: str) -> None:
    """Quoting settles it for every reader."""
    composer = Composer(f"a: {word}\nb: '{word}'\n")

    composer.compose()

    assert [(told.code, told.key, told.line) for told in composer.faults] == [("E110", "a", 1)]
    assert f"quote it: '{word}'" in composer.faults[0].fix


@pytest.mark.parametrize("word", ["note", "yes-man", "10.64.0.0/10", "192.168.40.1", "us-west-2", "8.20.30.40", "-"])
def test_a_word_that_all_readers_agree_on_is_not_told(word: str) -> None:
    """Addresses and names stay unquoted."""
    assert meaning_elsewhere(word) is None


def test_every_value_knows_where_it_stands() -> None:
    """Lines and columns count from 1, columns in characters; an item's key stands where the item does."""
    tree = composed("# one\n\u00f6re: {a: [1, two]}\n\nb:\n  - c: |\n      x\n      y\n")
    nodes = {node.key: node for node in tree.walk()}

    assert nodes["'\\xf6re'.a"].named == Place(2, 7)
    assert nodes["'\\xf6re'.a"].place == Place(2, 10)
    assert nodes["'\\xf6re'.a.1"].told_at == Place(2, 14)
    assert nodes["b.0.c"].named == Place(5, 5)
    assert nodes["b.0.c"].value == "x\ny\n"


def test_an_alias_stands_for_the_value_at_its_own_key() -> None:
    """The repeated value is told where the alias stands; what lies in it, where it was written."""
    tree = composed("a: &x {b: 1}\nc: *x\n")
    nodes = {node.key: node for node in tree.walk()}

    assert tree.plain() == {"a": {"b": 1}, "c": {"b": 1}}
    assert nodes["c"].place == Place(2, 4)
    assert nodes["c.b"].place == Place(1, 11)


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    """The fault names both lines, and the rest of the file is read on."""
    composer = Composer("a: 1\nb: 2\na: 3\n")

    tree = composer.compose()

    assert tree.plain() == {"a": 1, "b": 2}
    assert [(told.code, told.line) for told in composer.faults] == [("E018", 3)]
    assert "lines 1 and 3" in composer.faults[0].message
