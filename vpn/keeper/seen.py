"""When each laptop was last connected here: a daemon forgets a session that has ended, and this does not.

One small file, written by the timer and by whoever asks; it says nothing about what anybody did.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from .sessions import Session

Seen = dict[str, int]


def seen(file: Path, sessions: Iterable[Session], now: int) -> Seen:
    """Return when each laptop was last connected, in Unix time: now for those that are. A spoilt file tells nothing."""
    return {**_read(file), **{each.name: now for each in sessions}}


def remember(file: Path, known: Mapping[str, int]) -> None:
    """Put it at a path whole."""
    file.parent.mkdir(mode=0o755, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(json.dumps(dict(sorted(known.items()))))
    fresh.replace(file)


def _read(file: Path) -> Seen:
    try:
        told = json.loads(file.read_text())
        return {str(name): int(moment) for name, moment in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
