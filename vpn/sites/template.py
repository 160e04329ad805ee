"""The templates beside this file, filled. A value that a template lacks is an error, and nothing is escaped away."""

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("vpn.sites"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701  settings of daemons, not HTML; what fills them was judged when it was loaded
)


def filled(name: str, **values: object) -> str:
    """Return the text of a template with its values."""
    return _TEMPLATES.get_template(name).render(values)
