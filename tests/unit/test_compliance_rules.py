"""The rules of the compliance checks, and the table of their planted defects, without a machine."""

from tests.support.planted import defects, rules


def test_every_rule_has_its_planted_defect() -> None:
    """A rule that nobody has seen fail may be one that cannot."""
    assert set(rules()) - set(defects()) == set()


def test_every_planted_defect_is_of_a_rule() -> None:
    """What is renamed or gone leaves no defect behind that nobody looks for."""
    assert set(defects()) - set(rules()) == set()


def test_every_defect_plants_something() -> None:
    """A defect that changes nothing shows nothing."""
    assert [rule for rule, defect in defects().items() if defect.plant == "true"] == []


def test_rules_have_names_of_their_own() -> None:
    """A report names a rule by its role and its name."""
    assert len(set(rules())) == len(rules())
