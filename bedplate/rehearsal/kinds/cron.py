"""Cron expressions as Auto Scaling takes them: minute, hour, day of the month, month, day of the week.

Source: EC2 Auto Scaling user guide, "Recurring schedules"; an expression is read, never run.
"""

import re

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Each field: what it is called, the least and the most, and the words that stand for its numbers.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"(?P<from>\*|[0-9A-Z]+)(-(?P<to>[0-9A-Z]+))?(/(?P<step>[0-9]+))?")


def cron_fault(expression: str) -> str:
    """Return what is wrong with an expression, or nothing."""
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        return f"{expression!r} has {len(fields)} fields, not {len(_FIELDS)}"
    faults = (_field_fault(text, *field) for text, field in zip(fields, _FIELDS, strict=True))
    return next((fault for fault in faults if fault), "")


def _field_fault(text: str, title: str, least: int, most: int, words: tuple[str, ...]) -> str:
    for item in text.upper().split(","):
        found = _ITEM.fullmatch(item)
        if found is None or found["step"] == "0":
            return f"{text!r} is no {title}"
        ends = [_number(end, least, words) for end in (found["from"], found["to"]) if end and end != "*"]
        if not all(least <= end <= most for end in ends) or ends != sorted(ends):
            return f"{text!r} is no {title}: {least} to {most}, ranges upwards"
    return ""


def _number(text: str, least: int, words: tuple[str, ...]) -> int:
    """Return a field's number; a word that stands for none counts as one below the least."""
    if text.isdecimal():
        return int(text)
    return words.index(text) + least if text in words else least - 1
