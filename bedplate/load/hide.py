"""Secrets that stand in a fleet file: told where they are, and repeated nowhere."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from bedplate.checks.fault import Fault
from bedplate.checks.rules import RULES, fault
from bedplate.checks.secret import Secret, secrets_in
from bedplate.load.node import Node, Place, place_after
from bedplate.spec.shown import shown

HIDDEN = "(hidden)"
_SECRET = frozenset({"E501", "E502"})


@dataclass(frozen=True, slots=True)
class Word:
    """A key or a value of the file; `text` is the whole of it, `secret` the part that must not be told."""

    text: str
    secret: str
    told: Fault


def secret_words(text: str, tree: Node | None, most: int) -> tuple[Word, ...]:
    """Return at most so many words that hold a secret: keys and values of the tree, then comments of the text."""
    inside = tuple(islice(_in_tree(tree), most)) if tree else ()
    known = {word.secret for word in inside}
    return (*inside, *(word for word in islice(_in_text(text), most) if word.secret not in known))


def cover(told: Fault, words: tuple[Word, ...]) -> Fault:
    """Return the fault without any of the secrets in its key, its message or its fix."""
    rule = RULES[told.code]
    if told.code not in _SECRET and any(told.key == word.told.key for word in words if word.told.key):
        told = replace(told, message=f"{HIDDEN} breaks the rule {rule.name}", fix=rule.fix)
    texts = [told.key, told.message, told.fix]
    for word in words:
        for form in (shown(word.text), word.text, shown(word.secret), word.secret):
            texts = [text.replace(form, HIDDEN) for text in texts]
    return replace(told, key=texts[0], message=texts[1], fix=texts[2])


def _in_tree(tree: Node) -> Iterator[Word]:
    """Look through all keys and values at once: one after the other, a large file would take seconds."""
    spots = tuple(_spots(tree))
    starts = tuple(accumulate((len(text) + 1 for text, _, _ in spots), initial=0))
    joined = "\n".join(text for text, _, _ in spots)
    for secret in secrets_in(joined):
        text, key, place = spots[bisect_right(starts, secret.start) - 1]
        yield Word(text, joined[secret.start : secret.end], place.of(_fault(secret, key)))


def _spots(tree: Node) -> Iterator[tuple[str, str, Place]]:
    for node in tree.walk():
        if isinstance(node.value, str):
            yield node.value, node.key, node.place
        for name, child in zip(node.names, node.children, strict=True):
            if isinstance(name, str):
                yield name, child.key, child.named


def _in_text(text: str) -> Iterator[Word]:
    for secret in secrets_in(text):
        found = text[secret.start : secret.end]
        yield Word(found, found, place_after(text[: secret.start]).of(_fault(secret, "")))


def _fault(secret: Secret, key: str) -> Fault:
    return fault(secret.code, key, f"this looks like {secret.kind}")
