"""The page of all checks says what the code says."""

from pathlib import Path

from bedplate.audit.rules import CATALOGUE
from bedplate.report.page import checks_page

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def test_the_page_is_current() -> None:
    """`make docs` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == checks_page()


def test_every_rule_has_its_row() -> None:
    """With its name, reason and level."""
    page = checks_page()

    assert all(f"| {code} | {rule.name} | {rule.level.value} |" in page for code, rule in CATALOGUE.items())
