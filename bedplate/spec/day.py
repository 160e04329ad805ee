"""Days and moments as the fleet file writes them: ISO 8601, quoted, of the calendar that there is."""

from datetime import date, datetime
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bedplate.spec.base import refusal
from bedplate.spec.shown import shown

PERMANENT = "permanent"
_DAY, _MOMENT = "'2027-01-31'", "'2027-01-31T11:30:00Z'"
_DAY_LENGTH, _MOMENT_LENGTH = len("2027-01-31"), len("2027-01-31T11:30:00Z")


def _check_expiry(word: str) -> str:
    if word != PERMANENT and not _is_day(word):
        raise refusal("E318", f"{shown(word)} is neither a day nor {PERMANENT}", f"write {_DAY}, or {PERMANENT}")
    return word


def _check_moment(word: str) -> str:
    if not _is_moment(word):
        raise refusal("E318", f"{shown(word)} is no moment in UTC", f"write {_MOMENT}")
    return word


def _is_day(word: str) -> bool:
    try:
        date.fromisoformat(word)
    except ValueError:
        return False
    return len(word) == _DAY_LENGTH and word.isascii()


def _is_moment(word: str) -> bool:
    try:
        datetime.fromisoformat(word)
    except ValueError:
        return False
    return len(word) == _MOMENT_LENGTH and word.isascii() and word[10] == "T" and word.endswith("Z")


# The day after which machines are not wanted any more, or `permanent`.
Expiry = Annotated[
    str,
    AfterValidator(_check_expiry),
    WithJsonSchema({"type": "string", "examples": ["2027-01-31", PERMANENT]}),
]
# A moment in UTC, to the second.
Moment = Annotated[
    str,
    AfterValidator(_check_moment),
    WithJsonSchema({"type": "string", "examples": ["2027-01-31T11:30:00Z"]}),
]
