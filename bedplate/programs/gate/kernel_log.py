"""The kernel's log since boot: errors of GPUs (Xid), of NVSwitches (SXid), of PCIe and of the machine's memory.

A line counts by its number and by its word: Fatal or Non-fatal. errors.txt has the action of both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..program import ProgramError
from .machine import Machine
from .verdict import Action, Finding, by_action, unfinished, unknown

ERRORS = Path(__file__).with_name("errors.txt")
_CHECK = "gpu-errors"
_TIME = re.compile(r"^(\d{9,}\.\d+) ")
_NUMBERED = re.compile(r"\b(S?Xid) \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(.*)")
_BUS_ID = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
# The name of a program is in the line as well, and a person chooses it.
_PROGRAM = re.compile(r"name=.{1,16}?(,|$)")
_FATAL = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)
# Number 154 carries the driver's advice: "changed from 0x0 (None) to 0x1 (GPU Reset Required)".
_ADVICE_NUMBER, _ADVICE = 154, re.compile(r"to 0x\w+ \(([^)]*)\)")
_SEVERITY = {"unknown": 1, "monitor": 0, "reboot": 2, "replace": 3}


@dataclass(frozen=True)
class Rule:
    """A row of errors.txt; `numbers` is None for all, `words` a pattern in place of numbers."""

    kind: str
    numbers: frozenset[int] | None
    words: str
    word: str
    action: str


def read_rules(rows: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules in a table."""
    cells = (row.rstrip("\n").split("\t") for row in rows if row.strip() and not row.startswith("#"))
    return tuple(
        Rule(kind, None if kind == "words" else _numbers(text), text, word, action)
        for kind, text, word, action in cells
    )


def _numbers(text: str) -> frozenset[int] | None:
    if text == "*":
        return None
    ends = (part.partition("-") for part in text.split(","))
    return frozenset(number for first, _, last in ends for number in range(int(first), int(last or first) + 1))


@dataclass
class Entry:
    """An error of a device: how often it is in the log, since when, when last, and with which words."""

    count: int = 0
    since: float = 0.0
    last: float = 0.0
    words: str = ""

    def add(self, time: float, words: str) -> None:
        """Count the error once more."""
        self.count, self.since, self.last, self.words = self.count + 1, self.since or time, time, words

    def __str__(self) -> str:
        times = f"{self.count} times" if self.count > 1 else "once"
        return f"{times} since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.since else times


Key = tuple[str, str, int, str]
"""Kind, device, number and word of an error; the word is the pattern's for an error without a number."""


def check_kernel_log(machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each error of a device that the kernel has logged since boot."""
    options = ("--dmesg", "--boot", "--output=short-unix", "--no-hostname", "--no-pager")
    try:
        result = machine.run("journalctl", *options, attempts=2)
    except ProgramError as error:
        yield unfinished(_CHECK, error)
        return
    if result.error:
        yield unknown(_CHECK, result.error, Action.REPAIR)
    rules = read_rules(ERRORS.read_text(encoding="utf-8").splitlines())
    entries = read_errors(result.text.splitlines(), rules)
    yield from (_finding(key, entry, rules) for key, entry in sorted(entries.items()))
    if not entries and not result.error:
        yield Finding(_CHECK, "no error in the kernel log")


def read_errors(lines: Iterable[str], rules: Iterable[Rule]) -> Mapping[Key, Entry]:
    """Return the errors in lines of the log, with or without a Unix time."""
    entries: dict[Key, Entry] = {}
    add_errors(entries, lines, rules)
    return complete(entries)


def add_errors(entries: MutableMapping[Key, Entry], lines: Iterable[str], rules: Iterable[Rule]) -> None:
    """Add the errors in further lines of the log."""
    patterns = {rule.words: re.compile(rule.words) for rule in rules if rule.kind == "words"}
    device, time = "", 0.0
    for line in lines:
        if match := _TIME.match(line):
            time = float(match[1])
        if numbered := _NUMBERED.search(line):
            kind, where, number, rest = numbered.groups()
            words = _PROGRAM.sub("", rest)
            key = (kind.lower(), where, int(number), "" if int(number) == _ADVICE_NUMBER else _word(words))
            entries.setdefault(key, Entry()).add(time, words)
            continue
        # A message has several lines: the first one names the device.
        device = found[0] if (found := _BUS_ID.search(line)) else device
        for pattern, compiled in patterns.items():
            if compiled.search(line):
                entries.setdefault(("words", device, 0, pattern), Entry()).add(time, line)


def complete(entries: Mapping[Key, Entry]) -> Mapping[Key, Entry]:
    """Return errors without the lines about their details."""
    # Lines with details of an error have its number, but not its word.
    worded = {key[:3] for key in entries if key[3]}
    return {key: entry for key, entry in entries.items() if key[3] or key[:3] not in worded}


def _word(text: str) -> str:
    match = _FATAL.search(text)
    return "" if match is None else "nonfatal" if match[1] else "fatal"


def action_of(key: Key, entry: Entry, rules: Iterable[Rule]) -> str:
    """Return what an error asks for: the worst action of its rules, or what the driver has advised last."""
    kind, _, number, word = key
    if number == _ADVICE_NUMBER and (advice := _ADVICE.search(entry.words)):
        return _advised(advice[1].lower())
    actions = {rule.action for rule in rules if _applies(rule, kind, number, word)}
    return max(actions, key=lambda name: _SEVERITY[name], default="unknown")


def _finding(key: Key, entry: Entry, rules: Iterable[Rule]) -> Finding:
    kind, device, number, word = key
    where = f" on {device}" if device else ""
    if kind == "words":
        match = re.search(word, entry.words)
        name = match[0].strip() if match else word
    else:
        name = " ".join((f"{'SXid' if kind == 'sxid' else 'Xid'} {number}", *filter(None, (word,))))
    text = f"{name}{where}, {entry}"
    if number == _ADVICE_NUMBER and (advice := _ADVICE.search(entry.words)):
        text = f"{text}: {advice[1]}"
    return by_action(_CHECK, text, action_of(key, entry, rules), int(entry.since))


def _applies(rule: Rule, kind: str, number: int, word: str) -> bool:
    if kind == "words":
        return rule.kind == kind and rule.words == word
    return rule.kind == kind and rule.word in {"any", word or "none"} and (not rule.numbers or number in rule.numbers)


def _advised(advice: str) -> str:
    """Return the action that the driver has advised last."""
    if "reset" in advice or "reboot" in advice:
        return "reboot"
    return "monitor" if advice in {"none", "drain p2p"} else "unknown"
