"""How runs have ended, and the elements of an array, which are numbers: as text, and their ends by tags of a record."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

MOST = 2_000
"""Elements of an array: the record has two tags for each."""
ENDS = {"FINISHED": "", "FAILED": "failed", "KILLED": "was stopped"}
"""What has happened to a run that has ended, by its status in MLflow; nothing if it has succeeded."""
# A tag of MLflow has 5,000 characters.
_LONGEST = 4_500
_EXIT = re.compile(r"(?:bedplate\.)?exit\.0\.([0-9]{1,6})")


def elements_of(text: str) -> Sequence[int]:
    """Return the elements of a text such as `1-9,12` in their order, each once. Raises ValueError."""
    elements = set[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        if start > end:
            raise ValueError(f"{part} has no elements: {start} is above {end}")
        # Not all of them: 0-999999 a hundred times would need minutes.
        elements.update(range(start, min(end, start + MOST) + 1))
        if len(elements) > MOST:
            raise ValueError(f"an array has at most {MOST:,} elements")
    if len(text_of(elements)) > _LONGEST:
        raise ValueError(f"the list of elements has more than {_LONGEST:,} characters: number them in a row")
    return sorted(elements)


def element_of_pod(variables: Mapping[str, str]) -> "int | None":
    """Return the element of a pod of an array; None in others."""
    text = variables.get("BEDPLATE_ELEMENTS")
    return elements_of(text)[int(variables["BEDPLATE_INDEX"])] if text else None


def text_of(elements: Collection[int]) -> str:
    """Return elements as a text, as short as it can be."""
    return ",".join(_spans(sorted(elements)))


def _spans(elements: Sequence[int]) -> Iterator[str]:
    for at, element in enumerate(elements):
        if not at or elements[at - 1] != element - 1:
            start = element
        if elements[at + 1 : at + 2] != [element + 1]:
            yield str(start) if start == element else f"{start}-{element}"


def codes_of(tags: Mapping[str, object]) -> Mapping[int, str]:
    """Return the exit codes of the elements that have ended."""
    found = ((_EXIT.fullmatch(key), str(value)) for key, value in tags.items())
    return {int(match[1]): code for match, code in found if match}


def end_of(elements: Sequence[int], codes: Mapping[int, str]) -> tuple[int, str]:
    """Return the exit code of an array, and its cause: which elements have failed or never ran."""
    failed = [element for element in elements if codes.get(element) != "0"]
    cause = f"{len(failed)} of {len(elements)} elements have not succeeded: {text_of(failed)}"
    return (1, cause) if failed else (0, f"all {len(elements)} elements have succeeded")


def progress(tags: Mapping[str, object]) -> str:
    """Return how many elements of an array have ended; nothing for another run."""
    codes, count = codes_of(tags), tags.get("bedplate.elements")
    return f"{len(codes)} of {count} ended, {sum(code != '0' for code in codes.values())} failed" if count else ""
