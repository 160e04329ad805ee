"""Where instance types are offered, as text: a paragraph a family, a row a region.

    g5 xlarge 2xlarge 48xlarge
      eu-north-1 bc
      us-east-1 abcdf xlarge 2xlarge
      us-east-1 abc 48xlarge

A row without sizes speaks for the whole family. What AWS adds in one region is one changed line.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

Offers = Mapping[str, Mapping[str, str]]


def read_offers(rows: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return zone letters by instance type and region."""
    offers: dict[str, dict[str, str]] = {}
    family: list[str] = []
    for row in rows:
        if not row.startswith(" "):
            prefix, *sizes = row.split(" ")
            family = [f"{prefix}.{size}" for size in sizes]
            offers |= {name: {} for name in family}
            continue
        region, letters, *sizes = row.split()
        for name in [f"{prefix}.{size}" for size in sizes] or family:
            offers[name][region] = letters
    return offers


def write_offers(offers: Offers) -> tuple[str, ...]:
    """Return the paragraphs of all families, by name."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(offers):
        family, _, size = name.partition(".")
        families[family].append(size)
    return tuple(row for family in families for row in _paragraph(family, families[family], offers))


def _paragraph(family: str, sizes: list[str], offers: Offers) -> Iterator[str]:
    yield f"{family} {' '.join(sizes)}"
    for region in sorted({region for size in sizes for region in offers[f"{family}.{size}"]}):
        for letters, alike in sorted(_by_letters(family, sizes, region, offers).items()):
            named = "" if alike == sizes else " " + " ".join(alike)
            yield f"  {region} {letters}{named}"


def _by_letters(family: str, sizes: list[str], region: str, offers: Offers) -> dict[str, list[str]]:
    """Return the sizes of a family by the zones of `region` that offer them."""
    found: dict[str, list[str]] = defaultdict(list)
    for size in sizes:
        if letters := offers[f"{family}.{size}"].get(region):
            found[letters].append(size)
    return found
