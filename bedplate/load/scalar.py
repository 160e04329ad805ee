"""What an unquoted word of a YAML file means: the core schema of YAML 1.2 (section 10.3), and where 1.1 differs.

One difference to the core schema: 010 is no number here, since a YAML 1.1 reader takes it for 8.
"""

import re
from collections.abc import Callable, Mapping

Scalar = str | int | float | bool | None

_LONGEST_NUMBER = 40
_CONSTANTS: Mapping[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
# Words that are text here and something else to a YAML 1.1 reader (yaml.org/type), with what they are there.
_ELSEWHERE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i:y|yes|on)"), "true"),
    (re.compile(r"(?i:n|no|off)"), "false"),
    (re.compile(r"[-+]?0[0-7_]+"), "an octal number"),
    (re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?"), "a number"),
    (re.compile(r"[-+]?0b[01_]+"), "a binary number"),
    (re.compile(r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number to the base 60"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "a number"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date"),
    (re.compile(r"="), "a default value"),
)


def resolve(text: str) -> Scalar:
    """Return what the unquoted `text` means."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789":
        return text
    return next((read(text) for pattern, read in _NUMBERS if pattern.fullmatch(text)), text)


def meaning_elsewhere(text: str) -> str | None:
    """Return what a YAML 1.1 reader takes an unquoted word for that is text here; None where it agrees."""
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789=yYnNoO":
        return None
    return next((kind for pattern, kind in _ELSEWHERE if pattern.fullmatch(text)), None)


def plainly(text: str, elsewhere: str) -> str | None:
    """Return how to write a word of two meanings so that it has but the one of a truth or of a decimal number."""
    if elsewhere in ("true", "false"):
        return elsewhere
    digits = text.replace("_", "").lstrip("0")
    return digits if digits.isdecimal() else None
