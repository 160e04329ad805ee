"""Arrays of runs: their elements by an option or a record, and how they go on."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..elements import codes_of, elements_of, progress, text_of
from .hub import PARTLY, WRONG, BpError, Hub, say
from .places import Place
from .records import find_run, has_run_ended

FORM = r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*(%[1-9][0-9]{0,2})?|"
"""The form of the option: elements, and how many at the same time."""
_PAUSE = 2.0


def read_array(text: str, nodes: int) -> Mapping[str, Any]:
    """Return what the agent gets of the option. Raises BpError."""
    words, _, at_once = text.partition("%")
    try:
        elements = elements_of(words) if words else ()
    except ValueError as error:
        raise BpError(
            f"--array: {error}", "write --array 1-500, or 1-9,12%4 for four at the same time", WRONG
        ) from None
    if elements and nodes > 1:
        raise BpError("an element of an array has one machine", "leave --nodes or --array out", WRONG)
    return {"elements": text_of(elements), "at_once": min(int(at_once or 0), len(elements))}


def set_pace(document: dict[str, Any], place: Place) -> int:
    """Set how many elements of an array run at once: as many as fit on a machine; return how often a run is paid for.

    In the cluster each element has a part of a machine, and the price of all of it.
    """
    count = len(elements_of(document["elements"])) if document["elements"] else 0
    if not count:
        return 1
    name = "gpus" if document["gpus"] else "cpus"
    fitting = int(place.facts[name] or 1) // max(document[name], 1)
    document["at_once"] = document["at_once"] or min(max(fitting, 1), count)
    return count if place.selector else -(-count // document["at_once"])


def array_tags(document: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the tags of an array; nothing for another run."""
    elements = document["elements"]
    return (
        {"array": elements, "elements": len(elements_of(elements)), "at_once": document["at_once"]} if elements else {}
    )


def repeated(run: Mapping[str, Any], elements: str, at_once: str, *, is_failed: bool) -> str:
    """Return the option that repeats all elements of an array, or those that have failed or never ran."""
    wanted = elements
    if is_failed:
        codes = codes_of(run["tags"])
        wanted = text_of([element for element in elements_of(elements) if codes.get(element) != "0"])
        if not wanted:
            raise BpError(f"all elements of {run['name']} have succeeded", "leave --failed out", WRONG)
    return f"{wanted}%{at_once}"


def follow_array(hub: Hub, run: str, look: Callable[[], str]) -> int:
    """Say how the elements of an array end, and why none runs yet; return 0 if all have succeeded."""
    said = ""
    while True:
        try:
            found = find_run(hub, run)
            is_over, text = has_run_ended(found), progress(found["tags"])
            text = text if is_over or codes_of(found["tags"]) else look() or text
        except BpError as error:
            raise BpError(f"{error}: the array goes on", f"`bp show {run}`", PARTLY) from None
        if text != said:
            say(text)
            said = text
        if is_over:
            say(str(found["tags"].get("bedplate.cause", "the cause is unknown")))
            code = str(found["tags"].get("bedplate.code", ""))
            return 0 if found["status"] == "FINISHED" else int(code) if code.isdecimal() and int(code) else 1
        time.sleep(_PAUSE)
