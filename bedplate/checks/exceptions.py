"""Exceptions: rules that a fleet may violate because it names them under `allow`, with a reason."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from bedplate.errors import nearest
from bedplate.rules import Fault, Rule, fault


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
            yield fault(UNUSED_EXCEPTION, f"allow.{code}", f"the file does not violate {code}")


def _exception_faults(code: str, reason: str, rules: Mapping[str, Rule]) -> Iterator[Fault]:
    if code not in rules:
        near = next((rule.code for rule in rules.values() if rule.name == code), None) or nearest(code, rules)
        yield fault(UNKNOWN_RULE, f"allow.{code}", f"no rule has the code {code}", f"write {near}" if near else "")
    elif not rules[code].allowable:
        yield fault(RULE_NOT_ALLOWABLE, f"allow.{code}", f"{code} {rules[code].name} cannot be allowed")
    if not reason.strip():
        yield fault(NO_REASON, f"allow.{code}", "the exception has no reason")


_rule = partial(Rule, section="allow")
UNKNOWN_RULE = _rule(
    "E701",
    "An exception must name an existing rule.",
    "run `bedplate check --explain all` for the list of codes",
    at_key=True,
)
RULE_NOT_ALLOWABLE = _rule(
    "E702", "A fleet that violates this rule does not work.", "delete the exception and fix the violation", at_key=True
)
UNUSED_EXCEPTION = _rule("W703", "The exception has no effect.", "delete the exception", at_key=True)
NO_REASON = _rule("E704", "Reviewers need the reason of an exception.", "write the reason")
