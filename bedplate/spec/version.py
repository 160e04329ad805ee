"""The version of the fleet file's format: this bedplate reads one, and never guesses at another."""

from bedplate.spec.base import refusal
from bedplate.spec.shown import shown

VERSION = 1


def check_version(value: object) -> object:
    """Return the version; a refusal says how to migrate from an older or to a newer one."""
    if type(value) is not int:
        raise refusal("E601", f"{shown(value)} is no format version: a whole number is wanted", "write 1")
    if value > VERSION:
        message = f"the file is of format {value}; this bedplate reads format {VERSION}"
        raise refusal("E601", message, "update bedplate; its CHANGELOG says what the newer format changed")
    if value < VERSION:
        message = f"there never was a format {value}; this bedplate reads format {VERSION}"
        raise refusal("E601", message, "compare the file with examples/minimal.yaml, then write 1")
    return value
