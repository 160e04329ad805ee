"""Reports of `bundle`: archives, rings by region, and differences between two bundles."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from bedplate.bundle import Bundle, CanaryReport, RingState
from bedplate.report.columns import age_since, aligned, changed_rows
from bedplate.spec.groups import Ring

SHORT = 12
"""The digits of a hash that reports show, and that commands accept."""
_DISTRIBUTION = re.compile(r"([^/]+)-([^-/]+)\.dist-info/METADATA")
Rings = Mapping[tuple[str, Ring], RingState | None]
"""The states by region and ring."""


def bundle_lines(bundle: Bundle, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the hash of a bundle, and the size of each archive."""
    yield f"bundle {bundle.hash}"
    rows = (("code", bundle.code), *bundle.wheels.items())
    yield from aligned((f"  {name}", f"{sizes[blob] / 1e6:.1f} MB", blob[:SHORT]) for name, blob in rows)


def bundle_document(bundle: Bundle, sizes: Mapping[str, int]) -> dict[str, object]:
    """Return a bundle as JSON: its hash, and the hash and size of each archive."""
    archives = {"code": bundle.code, **bundle.wheels}
    return {
        "bundle": bundle.hash,
        "archives": {name: {"sha256": blob, "bytes": sizes[blob]} for name, blob in archives.items()},
    }


def ring_lines(rings: Rings, now: datetime) -> Iterator[str]:
    """Yield a table of the rings: the bundle and sequence in each region, and the time since the promotion."""
    rows = [("ring", "region", "bundle", "sequence", "promoted")]
    for (region, ring), state in sorted(rings.items(), key=lambda row: (row[0][1], row[0][0])):
        age = f"{age_since(state.changed, now)} ago" if state and state.changed else ""
        cells = (state.bundle[:SHORT], str(state.sequence), age) if state else ("-", "", "")
        rows.append((ring.value, region, *cells))
    yield from aligned(rows, right=(3,))


def rings_document(rings: Rings) -> dict[str, object]:
    """Return the rings as JSON; `bundle` is null before the first promotion."""
    return {
        "rings": [
            {
                "ring": ring.value,
                "region": region,
                "bundle": state.bundle if state else None,
                "sequence": state.sequence if state else 0,
                "promoted": state.changed.isoformat() if state and state.changed else None,
            }
            for (region, ring), state in sorted(rings.items())
        ]
    }


def canary_lines(report: CanaryReport) -> Iterator[str]:
    """Yield a line for each machine of the ring `canary` that has not passed a bundle."""
    yield from (f"{name} (canary) failed: {sentence}" for name, sentence in report.failed.items())
    if report.pending:
        yield f"not yet run on {', '.join(report.pending)} (canary)"


def difference_lines(part: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences of an archive, from the hash of each file: for wheels, those of versions."""
    if part == "code":
        yield from _differences(before, after)
        return
    changed = [f"{name} {old} -> {new}" for name, old, new in changed_rows(_versions(before), _versions(after))]
    yield from (f"{part}: {line}" for line in changed or _differences(before, after))


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path, *_ in changed_rows(before, after):
        change = "added" if path not in before else "removed" if path not in after else "changed"
        yield f"{change:<9} {path}"


def _versions(files: Iterable[str]) -> dict[str, str]:
    return {match[1]: match[2] for file in files if (match := _DISTRIBUTION.fullmatch(file))}
