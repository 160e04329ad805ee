"""Exceptions: rules that a fleet may violate because it names them under `allow`, with a reason."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from bedplate.checks.diagnostics import Context, Fault, Rule, about, fault
from bedplate.errors import nearest


def without_allowed(
    faults: Iterable[Fault], allow: Mapping[str, str], rules: Mapping[str, Rule], *, is_whole: bool
) -> Iterator[Fault]:
    """Yield the faults that the file does not allow, then the faults of its exceptions.

    An unused exception is reported only if `is_whole`: otherwise the checks have not seen all of the file.
    """
    violated = set()
    for violation in faults:
        violated.add(violation.code)
        if violation.code not in allow or not rules[violation.code].allowable:
            yield violation
    for code, reason in allow.items():
        yield from _exception_faults(code, reason, rules)
        rule = rules.get(code)
        if is_whole and rule and rule.allowable and not rule.late and code not in violated:
            yield fault("W703", f"allow.{code}", f"the file does not violate {code}")


def _exception_faults(code: str, reason: str, rules: Mapping[str, Rule]) -> Iterator[Fault]:
    if code not in rules:
        near = next((rule.code for rule in rules.values() if rule.name == code), None) or nearest(code, rules)
        yield fault("E701", f"allow.{code}", f"no rule has the code {code}", f"write {near}" if near else "")
    elif not rules[code].allowable:
        yield fault("E702", f"allow.{code}", f"{code} {rules[code].name} cannot be allowed")
    if not reason.strip():
        yield fault("E704", f"allow.{code}", "the exception has no reason")


RULES = about(
    "allow",
    Rule(
        "E701",
        "unknown-rule",
        "An exception must name an existing rule.",
        "run `bedplate check --explain all` for the list of codes",
        at_key=True,
    ),
    Rule(
        "E702",
        "rule-not-allowable",
        "A fleet that violates this rule does not work.",
        "delete the exception and fix the violation",
        at_key=True,
    ),
    Rule("W703", "unused-exception", "The exception has no effect.", "delete the exception", at_key=True),
    Rule("E704", "no-reason", "Reviewers need the reason of an exception.", "write the reason"),
)
# Exceptions apply to the result of all other checks.
CHECKS: tuple[Callable[[Context], Iterator[Fault]], ...] = ()
