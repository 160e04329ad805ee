"""The resource types that a rehearsal has a model of, as an operator reads them and as a program does."""

from collections.abc import Iterator, Mapping

from bedplate.rehearsal.kind import Kind
from bedplate.report.columns import aligned, counted


def type_name(token: str) -> str:
    """Return `aws:ec2:Subnet`: a type without the file that its SDK keeps it in."""
    package, module, name = token.split(":")
    return f"{package}:{module.partition('/')[0]}:{name}"


def type_lines(kinds: Mapping[str, Kind]) -> Iterator[str]:
    """Yield one line a type, with how far its model can be trusted and what it leaves out, and how many there are."""
    yield from aligned((type_name(token), kinds[token].support.value, kinds[token].note) for token in sorted(kinds))
    yield f"{counted(len(kinds), 'type')}; a program that asks for another is refused by its name"


def types_document(kinds: Mapping[str, Kind]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the types, by their full tokens, as `rehearse --types --json` prints them."""
    return {
        "types": {token: {"support": kinds[token].support.value, "note": kinds[token].note} for token in sorted(kinds)}
    }
