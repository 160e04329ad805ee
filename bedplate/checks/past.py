"""Whether a day or a moment of the fleet file has gone by."""

from datetime import date


def is_past(when: str, today: date) -> bool:
    """Tell whether a day, or the day of a moment in UTC, lies before today."""
    return date.fromisoformat(when[:10]) < today
