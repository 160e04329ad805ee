"""A reader of strongSwan's settings of our own, to look at what was rendered without asking who rendered it."""

from collections.abc import Iterator, Mapping
from typing import Any

Settings = Mapping[str, Any]


def read_settings(text: str) -> Settings:
    """Return sections as mappings and values as text; ValueError where a section is not closed or a line is odd."""
    lines = (line.strip() for line in text.splitlines())
    found, closed = _section(line for line in lines if line and not line.startswith("#"))
    if closed:
        raise ValueError("a section is closed that was never opened")
    return found


def _section(lines: Iterator[str]) -> tuple[dict[str, Any], bool]:
    """Return what a section holds, and whether it was closed."""
    found: dict[str, Any] = {}
    for line in lines:
        if line == "}":
            return found, True
        name, value, is_section = _told(line)
        if name in found:
            raise ValueError(f"{name} is set twice")
        found[name] = value if not is_section else _closed(name, lines)
    return found, False


def _told(line: str) -> tuple[str, str, bool]:
    if line.endswith("{"):
        return line.removesuffix("{").strip(), "", True
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not name:
        raise ValueError(f"not a setting: {line!r}")
    return name, value, False


def _closed(name: str, lines: Iterator[str]) -> dict[str, Any]:
    found, closed = _section(lines)
    if not closed:
        raise ValueError(f"{name} is not closed")
    return found
