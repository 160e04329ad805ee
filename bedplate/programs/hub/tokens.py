"""The text of tokens: a user id, an end, a scope, and a code that only the hub's key makes."""

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

HOUR, LONGEST = 3_600, 60 * 86_400
"""Seconds for which a person's token is valid, and those of runs and studies."""
SCOPE = re.compile("person|run:[0-9a-f]{32}|study:[a-z_][a-z0-9_-]{0,79}")
# One text for each token: no leading zeros, no other alphabet.
_TOKEN = re.compile(rf"([1-9][0-9]{{0,9}})\.([1-9][0-9]{{0,11}})\.({SCOPE.pattern})\.([A-Za-z0-9_-]{{24}})")


class RefusedError(Exception):
    """A request that is refused, with the status of the answer and the reason in words."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Token:
    """A person by user id, until when, and for what: `person`, `run:ID` or `study:NAME`."""

    uid: int
    until: int
    scope: str

    @property
    def kind(self) -> str:
        """The first word of the scope."""
        return self.scope.partition(":")[0]

    @property
    def name(self) -> str:
        """The id of the run, or the name of the study; empty for a person."""
        return self.scope.partition(":")[2]

    @property
    def owned_scope(self) -> str:
        """The scope, that of a study with its person: names of studies of two people can be the same."""
        return f"{self.uid}.{self.scope}" if self.kind == "study" else self.scope


def sign(token: Token, key: bytes) -> str:
    """Return the text of a token."""
    text = f"{token.uid}.{token.until}.{token.scope}"
    return f"{text}.{_code(text, key)}"


def read_token(text: str, keys: Sequence[bytes], now: float) -> Token:
    """Return the token of a text, if one of the keys has signed it, and it is valid now. Raises RefusedError.

    The first key signs. Runs and studies may still use the others.
    """
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise RefusedError(401, "a token of the hub is required")
    token = Token(int(match[1]), int(match[2]), match[3])
    signed = text.rpartition(".")[0]
    accepted = keys[:1] if token.kind == "person" else keys
    # Every key is tried: the time says nothing about them.
    if not sum([hmac.compare_digest(_code(signed, key), match[4]) for key in accepted]):
        raise RefusedError(401, "the token is not signed by the hub's key")
    if token.until <= now:
        raise RefusedError(401, "the token has expired")
    # Made while the clock was wrong by more than a step.
    if token.until > now + LONGEST + HOUR:
        raise RefusedError(401, "the token is valid for longer than the hub allows")
    return token


def _code(text: str, key: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")[:18]).decode()
