"""What has changed in the catalogue since AWS was last asked, in counts."""

from collections.abc import Iterable, Iterator

from bedplate.catalog.renewal import Change
from bedplate.report.columns import aligned

_HEADING = ("", "before", "added", "changed", "dropped")


def renewal_lines(changes: Iterable[Change], skipped: Iterable[str]) -> Iterator[str]:
    """Yield a row a kind of fact that changed; `skipped` are the regions that were not asked."""
    told = [each for each in changes if each.added or each.changed or each.dropped]
    rows = [(each.what, *(f"{count:,}" for count in _counts(each))) for each in told]
    yield from (
        aligned((_HEADING, *rows), right=(1, 2, 3, 4)) if rows else ("AWS tells what the catalogue knew already",)
    )
    if names := ", ".join(skipped):
        yield f"not asked, for the account has not enabled them: {names}"


def _counts(change: Change) -> tuple[int, ...]:
    return change.before, change.added, change.changed, change.dropped
