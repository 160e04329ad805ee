"""The commands that a page of the documentation tells its reader to type."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def told_commands(page: str) -> list[str]:
    """Return the commands of a page's plain blocks, in order, without their comments."""
    blocks = (ROOT / "docs" / page).read_text(encoding="utf-8").split("```")[1::2]
    lines = [
        line.partition("  #")[0].strip() for block in blocks if block.startswith("\n") for line in block.splitlines()
    ]
    return [line for line in lines if line]
