"""Texts made from the templates that lie beside the roles; a name that a template does not get is an error."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ROLES = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_ROLES),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  # settings of daemons, not pages
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def rendered(template: str, **values: object) -> str:
    """Return the text of a template, named from here: `baseline/motd.j2`."""
    return _TEMPLATES.get_template(template).render(**values)


def text_of(name: str) -> str:
    """Return the text of a file that is shipped as it lies there, named from here."""
    return (_ROLES / name).read_text(encoding="utf-8")
