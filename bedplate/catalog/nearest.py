"""Finds the known word that is most similar to a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

_SHORTLIST = 12


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar of `words`, or None; case and order do not matter."""
    by_lower_case = {other.lower(): other for other in words}
    match = _nearest(word.lower(), tuple(sorted(by_lower_case)))
    return by_lower_case[match] if match else None


def nearest_fix(word: str, words: Iterable[str]) -> str:
    """Return the fix for an unknown word: the most similar of `words`, else all of them."""
    names = sorted(words)
    near = nearest(word, names)
    return f"write {near}" if near else f"write one of {', '.join(names)}"


@lru_cache(maxsize=256)
def _nearest(word: str, words: tuple[str, ...]) -> str | None:
    # difflib alone ranks p5.4xlarge above p5.48xlarge for p5.49xlarge, so it only selects candidates. Of equally good
    # ones the longest wins: people omit letters more often than they add them.
    candidates = get_close_matches(word, words, n=_SHORTLIST)
    return min(candidates, key=lambda other: (edits(word, other), -len(other), other), default=None)


def edits(word: str, other: str) -> int:
    """Return the edit distance of two words: letters added, removed or replaced, and neighbours swapped."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        above, before, row = before, row, [i]
        for j, against in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != against)))
            if i > 1 and j > 1 and (letter, against) == (other[j - 2], word[i - 2]):
                row[j] = min(row[j], above[j - 2] + 1)
    return row[-1]
