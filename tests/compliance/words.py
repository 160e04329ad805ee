"""What a rule that is violated says, in an operator's words: without pytest's way there, and Python's own objects."""

import re

import pytest

# What pytest knows of Python's own objects on the way to a comparison, and testinfra of its host.
_WAYS = re.compile(
    r" at 0x|<built-in |<class |<generator |^Use -v to get|^assert (not )?(True|False|None)$"
    r"|where \w+ = \.\w+$|re\.MULTILINE = "
)
_HOST = re.compile(r"<testinfra\.host\.Host [^>]*>(, )?")
# What testinfra was asked of a service, a file, a package: `where False = <service chrony>.is_running`.
_ASKED = re.compile(
    r"where (?P<so>True|False) = <(?:service|file|package|socket|user|group) (?P<of>.+)>\.(?P<what>\w+)"
)
# Of a program, whether there is one: `where False = exists('nvtop')`.
_PROGRAM = re.compile(r"where (?P<so>True|False) = (?P<what>exists)\('(?P<of>.+)'\)")


def words_of(report: pytest.TestReport) -> str:
    """Return what is otherwise than promised, or why nobody looked; nothing of a rule that is kept."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return plain((crash.message if crash else str(report.longrepr)).removeprefix("AssertionError: "))


def plain(message: str) -> str:
    """Return a message of pytest's without what says nothing of the machine."""
    lines = (_HOST.sub("", line.rstrip()) for line in message.splitlines())
    told = (_told(line) for line in lines if line.strip() and not _WAYS.search(line.strip(" +")))
    return "\n".join(told)


def _told(line: str) -> str:
    asked = _ASKED.fullmatch(line.strip(" +")) or _PROGRAM.fullmatch(line.strip(" +"))
    if not asked:
        return line
    is_so, what = asked["so"] == "True", asked["what"]
    if what == "exists":
        return f"{asked['of']} is there" if is_so else f"{asked['of']} is not there"
    return f"{asked['of']} is {'' if is_so else 'not '}{what.removeprefix('is_')}"
