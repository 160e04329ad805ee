"""The rules of the catalogue as an operator reads them."""

from collections.abc import Iterator, Mapping

from bedplate.checks.rules import Rule
from bedplate.report.columns import aligned, counted


def rule_lines(rule: Rule) -> Iterator[str]:
    """Yield what a rule asks for, why, and what to do about a fault under it."""
    yield f"{rule.code} {rule.name} ({rule.level.value})"
    yield from aligned(
        (
            ("  why", rule.reason),
            ("  fix", rule.fix),
            ("  source", rule.source or "bedplate's own"),
            ("  allow", f"`allow: {{{rule.code}: the reason}}` in the file" if rule.allowable else "never"),
        )
    )


def rules_lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield one line a rule, by code, and how many there are."""
    yield from aligned((code, rules[code].name, rules[code].reason) for code in sorted(rules))
    yield f"{counted(len(rules), 'rule')}; `bedplate check --explain CODE` says more of one"
