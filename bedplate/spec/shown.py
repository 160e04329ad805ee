"""A value as a message may hold it: short, on one line, with nothing that a terminal would act on."""

import re

LONGEST = 60
_PLAIN = re.compile(r"[!-~]+")


def shown(value: object) -> str:
    """Return `value` for a message: bare where it is one plain word, else quoted and escaped, cut at 60 characters.

    A mapping or a list is only named as one.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    cut = text[:LONGEST] + "..." if len(text) > LONGEST else text
    return cut if _PLAIN.fullmatch(cut) else ascii(cut)
