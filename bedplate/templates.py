"""Templates of files for machines and of pictures, with one setting of Jinja for all.

An unknown name is an error, and a line with nothing but a statement leaves no empty line.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(folder: Path, *, is_html: bool = False) -> Environment:
    """Return the templates in a folder; values are escaped in HTML, and unchanged in settings of daemons."""
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=is_html,  # noqa: S701  settings of daemons are not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
