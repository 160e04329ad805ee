"""Secrets kept out of messages, whole or in part: a message may quote a piece of one, or the start of it."""

from collections.abc import Collection
from itertools import groupby

MARK = "[secret]"
# Characters in a row that a message and a secret do not share by chance.
RUN = 8


def hidden(message: str, secrets: Collection[str]) -> str:
    """Return a message in which every secret is a mark, and so is every run of RUN characters out of one."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = _without_runs(message.replace(secret, MARK), secret)
    return message


def _without_runs(message: str, secret: str) -> str:
    shared: set[int] = set()
    for start in range(len(message) - RUN + 1):
        if message[start : start + RUN] in secret:
            shared.update(range(start, start + RUN))
    if not shared:
        return message
    parts = groupby(enumerate(message), key=lambda each: each[0] in shared)
    return "".join(MARK if hide else "".join(sign for _, sign in part) for hide, part in parts)
