"""Allowed exceptions: faults that a fleet may have, since its file says why."""

from collections.abc import Iterable, Iterator, Mapping

from bedplate.catalog.nearest import nearest
from bedplate.checks.fault import Fault
from bedplate.checks.rules import RULES, fault


def excused(faults: Iterable[Fault], allow: Mapping[str, str], *, is_whole: bool) -> Iterator[Fault]:
    """Yield the faults that the file does not allow, and what is wrong with its exceptions.

    An exception that no fault needs is told where the file `is_whole`, so that every check has seen all of it.
    """
    met = set()
    for told in faults:
        met.add(told.code)
        if told.code not in allow or not RULES[told.code].allowable:
            yield told
    for code, reason in allow.items():
        yield from _faults_of(code, reason)
        rule = RULES.get(code)
        if is_whole and rule and rule.allowable and not rule.late and code not in met:
            yield fault("W703", f"allow.{code}", f"nothing in this file breaks {code}")


def _faults_of(code: str, reason: str) -> Iterator[Fault]:
    if code not in RULES:
        near = nearest(code, RULES)
        yield fault("E701", f"allow.{code}", "there is no rule of this code", f"write {near}" if near else "")
    elif not RULES[code].allowable:
        yield fault("E702", f"allow.{code}", f"{code} {RULES[code].name} cannot be allowed")
    if not reason.strip():
        yield fault("E704", f"allow.{code}", "the exception has no reason")
