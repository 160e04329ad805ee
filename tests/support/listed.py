"""Findings of judges that stand in docs/judges.md with a reason: what people read is what the tests hold to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.judged import Finding

PAGE = Path(__file__).parents[2] / "docs" / "judges.md"


@dataclass(frozen=True, slots=True)
class Listed:
    """A finding that is lived with; `where` and `says` are patterns."""

    check: str
    where: str
    says: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this one."""
        told = (finding.where, self.where), (finding.says, self.says)
        return finding.check == self.check and all(fnmatchcase(said, _pattern(form)) for said, form in told)


def _pattern(form: str) -> str:
    """Return a pattern in which the star alone stands for anything."""
    return form.replace("[", "[[]").replace("?", "[?]")


def listed(judge: str, page: str | None = None) -> tuple[Listed, ...]:
    """Return what is listed of a judge."""
    text = PAGE.read_text(encoding="utf-8") if page is None else page
    part = text.partition(f"### {judge}\n")[2]
    rows = re.findall(r"^\|(.+)\|$", part.partition("\n##")[0], re.MULTILINE)
    return tuple(Listed(*(cell.strip().strip("`") for cell in row.split("|"))) for row in rows[2:])


def unlisted(findings: Iterable[Finding], rows: Iterable[Listed]) -> list[Finding]:
    """Return what was found and is not listed."""
    known = tuple(rows)
    return [finding for finding in findings if not any(row.covers(finding) for row in known)]


def unfound(findings: Iterable[Finding], rows: Iterable[Listed]) -> list[Listed]:
    """Return what is listed and was not found."""
    told = tuple(findings)
    return [row for row in rows if not any(row.covers(finding) for finding in told)]
