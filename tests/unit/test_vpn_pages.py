"""The pages about the VPN tell no command that no test runs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.page import ROOT, block_commands, page_text, prose_commands, told_commands

PAGES = tuple(sorted(page.name for page in (ROOT / "docs").glob("vpn*.md")))
_FOLLOWS, _RUNS = frozenset(("told_commands", "told_blocks")), "spoken"


@pytest.fixture(scope="module")
def asked() -> frozenset[tuple[str, ...]]:
    """Give what tests ask of pages: each call that follows a page, or takes one command out of its prose."""
    return frozenset(call for file in (ROOT / "tests").rglob("*.py") for call in _calls(file))


def _calls(file: Path) -> Iterator[tuple[str, ...]]:
    text = file.read_text(encoding="utf-8")
    names = {*_FOLLOWS, _RUNS}
    for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node.func.id, *(str(each.value) for each in node.args if isinstance(each, ast.Constant))


def _untried(page: str, text: str, asked: frozenset[tuple[str, ...]]) -> list[str]:
    """Return the commands of a page that no test takes from it; those of blocks are taken together."""
    typed = {command for each in PAGES for command in told_commands(each)}
    blocks = [] if any((name, page) in asked for name in _FOLLOWS) else list(block_commands(text))
    return blocks + [each for each in prose_commands(text) if (_RUNS, page, each) not in asked and each not in typed]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_run_by_a_test(page: str, asked: frozenset[tuple[str, ...]]) -> None:
    """Blocks by a test that follows the page, what the prose tells by one that asks for its very words."""
    assert _untried(page, page_text(page), asked) == []


def test_a_command_that_nobody_runs_is_found(asked: frozenset[tuple[str, ...]]) -> None:
    """In prose on a page that is followed, and in a block on one that nobody follows."""
    text = "Now `nft flush ruleset`.\n\n```\nbedplate vpn nothing\n```\n"

    assert _untried("vpn.md", text, asked) == ["nft flush ruleset"]
    assert _untried("other.md", text, asked) == ["bedplate vpn nothing", "nft flush ruleset"]
