"""The commands that a page of the documentation tells its reader to type: in blocks of their own, and in its prose."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PROGRAMS = frozenset(
    ("bedplate", "sudo", "nft", "nmcli", "openvpn", "swanctl", "vtysh", "journalctl", "loginctl", "systemctl")
)


def told_commands(page: str) -> list[str]:
    """Return the commands of a page's plain blocks, in order, without their comments."""
    return list(block_commands(page_text(page)))


def told_blocks(page: str) -> tuple[list[str], ...]:
    """Return the commands of each plain block of a page, where blocks are for different fleets."""
    blocks = (f"```{block}```" for block in page_text(page).split("```")[1::2] if block.startswith("\n"))
    return tuple(list(block_commands(block)) for block in blocks)


def told_yaml(page: str, word: str) -> str:
    """Return the part of a fleet file that a page shows, with a word in it; StopIteration where it shows none."""
    blocks = (block for block in page_text(page).split("```")[1::2] if block.startswith("yaml\n"))
    return next(block.removeprefix("yaml\n") for block in blocks if word in block)


def page_text(page: str) -> str:
    """Return a page of the documentation."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def block_commands(text: str) -> Iterator[str]:
    """Yield the commands of a text's plain blocks, in order, without their comments."""
    for block in text.split("```")[1::2]:
        if block.startswith("\n"):
            yield from filter(None, (line.partition("  #")[0].strip() for line in block.splitlines()))


def prose_commands(text: str) -> tuple[str, ...]:
    """Return the whole commands that a text's prose tells; the name of a command that a block has is none."""
    typed = tuple(block_commands(text))
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", "".join(text.split("```")[::2])))
    commands = (span for span in spans if span.split()[0] in _PROGRAMS and " " in span)
    return tuple(dict.fromkeys(each for each in commands if not any(one.startswith(each) for one in typed)))
