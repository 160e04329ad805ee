"""The templates that lie beside: each filled in once, so that what a value says is never read as a template.

A name that a template asks for and nobody gives is a defect of ours, not an empty line.
"""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def filled(template: str, **values: object) -> str:
    """Return the text of a template, `server.conf.j2`, with these values in it."""
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  configuration of a daemon, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
