"""Where commands print: what was asked for on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Iterable


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def show_document(document: object) -> None:
    """Print one JSON document on stdout."""
    show([json.dumps(document, indent=2, ensure_ascii=False)])


def tell(lines: Iterable[str]) -> None:
    """Print lines on stderr."""
    sys.stderr.writelines(f"{line}\n" for line in lines)
