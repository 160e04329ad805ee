"""What the compliance checks found as one page of HTML that needs nothing beside itself."""

from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from bedplate.nodes.verdict import Findings, Outcome
from bedplate.report.compliance import is_compliant

_TEMPLATE = Path(__file__).with_name("compliance_page.html.j2")


def compliance_page(fleet: str, day: str, findings: Iterable[Findings]) -> str:
    """Return the page; `day` says when the machines were looked at."""
    told = tuple(findings)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(fleet=fleet, day=day, nodes=told, outcomes=tuple(Outcome), ok=is_compliant(told)) + "\n"
