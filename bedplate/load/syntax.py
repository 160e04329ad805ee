"""Names the mistake behind an error of the YAML parser: a tab, indentation, a missing space, bracket or quote."""

import re
from dataclasses import dataclass

from ruamel.yaml.error import MarkedYAMLError, StringMark

from bedplate.spec.base import LONGEST, shown

_OPENERS = {"]": "[", "}": "{"}
_CLOSERS = {"[": "]", "{": "}"}
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w-]*)(?P<sign>[:=,]) *(?P<value>[^ #].*?) *(#.*)?")
_FIRST_KEY = re.compile(r" *(- +)?[\w.\"'-]+: +")


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake in the YAML: message, fix, and position, which start at 1."""

    message: str
    fix: str
    line: int
    column: int


def find_slip(text: str, error: MarkedYAMLError) -> Slip:
    """Return the most likely mistake; without one, the words of the parser."""
    mark, start = error.problem_mark or error.context_mark, error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem, context = error.problem or "the text is not YAML", error.context or ""
    lines = Lines(text, min(line, text.count("\n")), column)
    slip = lines.merge_mark() or lines.tab() or lines.reserved(problem) or lines.escape(problem)
    if slip is None and start and "end of stream" in problem:
        slip = lines.open_quote(start)
    if slip is None and start and "flow" in context:
        slip = lines.open_bracket(start, problem)
    slip = slip or lines.stray_quote() or lines.missing_space() or lines.second_colon(problem) or lines.indentation()
    return slip or Slip(": ".join(filter(None, (context, problem))), "", line + 1, column + 1)


class Lines:
    """The lines of a text, and where the parser stopped: `index` and `column` start at 0."""

    def __init__(self, text: str, index: int, column: int) -> None:
        self._lines = text.split("\n")
        self._index, self._column = index, column
        self._line = self._lines[index]
        self._character = self._line[column : column + 1]

    def merge_mark(self) -> Slip | None:
        """Find the first mark of a merge conflict."""
        for index, line in enumerate(self._lines):
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                return Slip("a merge conflict", "keep one side, and delete the marks", index + 1, 1)
        return None

    def tab(self) -> Slip | None:
        """Find a tab in the indentation, up to the error."""
        for index, line in enumerate(self._lines[: self._index + 1]):
            column = len(line) - len(line.lstrip(" "))
            if line[column : column + 1] == "\t":
                return Slip("a tab; YAML indents with spaces", "replace the tab by spaces", index + 1, column + 1)
        if self._character == "\t":
            return self._slip("a tab; YAML separates with spaces", "replace the tab by a space")
        return None

    def reserved(self, problem: str) -> Slip | None:
        """Find a value that starts with a character that YAML reserves."""
        is_alias = "alphabetic or numeric" in problem
        if not is_alias and "cannot start any token" not in problem:
            return None
        column = self._line.rfind("*", 0, self._column + 1) if is_alias else self._column
        value = _plain(self._line, max(column, 0))
        return self._slip(f"an unquoted value cannot start with {value[:1]}", f"quote it: {_quoted(value)}", column)

    def escape(self, problem: str) -> Slip | None:
        """Find a backslash in double quotes that is not an escape sequence."""
        if "escape" not in problem:
            return None
        value = re.search(r'"([^"]*)"', self._line)
        fix = f"write {_quoted(value[1])}" if value else "use single quotes"
        return self._slip("an unknown escape sequence: \\ is special in double quotes", fix)

    def open_quote(self, start: StringMark) -> Slip:
        """Return the mistake of a quote that is not closed."""
        line = self._lines[start.line]
        quote = line[start.column]
        value = f"{line[start.column :].rstrip()}{quote}"
        return Slip(f"the quote {quote} is not closed", f"write {shown(value)}", start.line + 1, start.column + 1)

    def stray_quote(self) -> Slip | None:
        """Find a quote that is not closed in its line, so that the next quote of the file closes it."""
        before = self._line[: self._column].rstrip(" ")
        quote = before[-1:]
        if quote not in ("'", '"') or before.count(quote) % 2 == 0:
            return None
        for index in range(self._index - 1, -1, -1):
            line = self._lines[index].partition(" #")[0].rstrip()
            if line.count(quote) % 2:
                column = line.rfind(quote)
                fix = f"write {shown_code(line[column:] + quote)}"
                return Slip(f"the quote {quote} is not closed", fix, index + 1, column + 1)
        return None

    def open_bracket(self, start: StringMark, problem: str) -> Slip | None:
        """Find the mistake in a list or mapping in brackets."""
        if start.line >= len(self._lines):
            return self._last_bracket()
        line, is_same_line = self._lines[start.line], start.line == self._index
        opener = line[start.column : start.column + 1]
        closer = _CLOSERS.get(opener)
        if closer is None:
            return None
        if is_same_line and self._character in _OPENERS:
            return self._slip(f"{opener} is closed by {self._character}", f"write {closer}")
        if is_same_line and self._character in _CLOSERS:
            value = re.split(r"[\[{,]\s*", line[: self._column])[-1] + _plain(line, self._column, "]" * (opener == "["))
            return self._slip(f"{self._character} inside a value", f"quote the value: {_quoted(value)}")
        if is_same_line and self._character not in ("", ":"):
            return self._slip(f"a comma is missing before {_plain(line, self._column)}", "separate entries with commas")
        if is_same_line and (name := re.search(r"[\w-]+$", line[: self._column])) and "," in problem:
            return self._slip(f"a comma is missing before {name[0]}", f"write `, {name[0]}`", name.start())
        if is_same_line:
            return None
        value = f"{line[start.column :].partition(' #')[0].rstrip()}{closer}"
        return Slip(f"{opener} is not closed", f"write {shown_code(value)}", start.line + 1, start.column + 1)

    def _last_bracket(self) -> Slip | None:
        """Find a bracket at the end of the text: the parser's place is after it."""
        *before, line = "\n".join(self._lines).rstrip().split("\n")
        closer = _CLOSERS.get(line[-1:])
        return (
            Slip(f"{line[-1]} is not closed", f"write {line[-1]}{closer}", len(before) + 1, len(line))
            if closer
            else None
        )

    def missing_space(self) -> Slip | None:
        """Find a key without a space after its colon, or without a colon, at the error or in the line before."""
        if self._character == ":":
            pair = re.search(r"[\w\"'-]+$", self._line[: self._column])
            value = _plain(self._line, self._column + 1)
            address = re.search(r"([0-9]+\.){3}[0-9]+$", self._line[: self._column])
            if address:
                return self._slip("an address without a port is required", f"write {address[0]}", address.start())
            is_tight = self._line[self._column + 1 : self._column + 2] != " "
            entry = re.search(r"([\[{,:]) *([^\[\]{}, ]*)$", self._line[: self._column])
            if (
                pair
                and entry
                and is_tight
                and (entry[1] == ":" or entry[2] != pair[0] or ":" in value or pair[0].isdecimal())
            ):
                text = f"{entry[2]}:{value}"
                return self._slip(f"{text} contains a colon", f"quote it: {_quoted(text)}", entry.start(2))
            if pair and value and is_tight:
                return self._pair(self._index, pair.start(), pair[0], ":", value)
        before = self._line_before()
        if before is not None and re.fullmatch(r" *(- +)?[A-Za-z_][\w-]* *", self._lines[before]):
            key = self._lines[before].strip(" -")
            return Slip(f"no colon after {key}", f"write {key}:", before + 1, _indent(self._lines[before]) + 1)
        for index in filter(None, (before, self._index)):
            text = self._lines[index].lstrip(" ")
            item = text.removeprefix("- ").lstrip(" ")
            pair = _PAIR.fullmatch(item)
            if pair and not item.startswith(f"{pair['key']}: "):
                column = len(self._lines[index]) - len(item)
                return self._pair(index, column, pair["key"], pair["sign"], pair["value"])
        return None

    def _pair(self, index: int, column: int, key: str, sign: str, value: str) -> Slip:
        message = f"no space after the colon of {key}" if sign == ":" else f"{sign} after {key}, not a colon"
        return Slip(message, f"write {key}: {shown_code(value)}", index + 1, column + 1)

    def second_colon(self, problem: str) -> Slip | None:
        """Find a value that contains a colon and a space."""
        key = _FIRST_KEY.match(self._line)
        if "mapping values" not in problem or not key or self._column < key.end():
            return None
        value = _plain(self._line, key.end(), "")
        return self._slip(f"the value {shown_code(value)} contains a colon", f"quote it: {_quoted(value)}", key.end())

    def indentation(self) -> Slip | None:
        """Find a line whose indentation is that of no enclosing level, or deeper than a key with a value."""
        if not self._line.strip():
            return None
        indent, levels = _indent(self._line), self._levels()
        others = [level for level in levels if level != indent]
        if not others or (indent in levels and indent != min(levels)):
            return None
        near = min(others, key=lambda level: (abs(level - indent), -level))
        message = f"indented by {_spaces(indent)}, the lines before it by {_spaces(near)}"
        return self._slip(message, f"indent it by {_spaces(near)}", indent)

    def _levels(self) -> list[int]:
        """Return the indentation of the enclosing levels; for an item of a list, of items."""
        is_item = self._line.lstrip(" ").startswith("- ")
        levels: list[int] = []
        for line in reversed(self._lines[: self._index]):
            is_like = line.lstrip(" ").startswith("- ") or not is_item
            has_content = line.strip(" -") and not line.lstrip(" ").startswith("#")
            if has_content and is_like and (not levels or _indent(line) < levels[-1]):
                levels.append(_indent(line))
        return levels

    def _line_before(self) -> int | None:
        """Return the index of the nearest line above with content."""
        for index in range(self._index - 1, -1, -1):
            if self._lines[index].strip() and not self._lines[index].lstrip().startswith("#"):
                return index
        return None

    def _slip(self, message: str, fix: str, column: int | None = None) -> Slip:
        return Slip(message, fix, self._index + 1, (self._column if column is None else column) + 1)


def _plain(line: str, start: int, end: str = ",]}") -> str:
    """Return the unquoted value that starts in a column, up to a comment or one of the characters `end`."""
    value = line[start:].partition(" #")[0]
    cut = min((value.find(mark) for mark in end if mark in value), default=len(value))
    return value[:cut].strip()


def _quoted(value: str) -> str:
    return f"'{shown_code(value)}'"


def shown_code(value: str) -> str:
    """Return a piece of YAML for a message: as it is if it is printable and short."""
    return value if value.isascii() and value.isprintable() and len(value) <= LONGEST else shown(value)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(count: int) -> str:
    return "1 space" if count == 1 else f"{count} spaces"
