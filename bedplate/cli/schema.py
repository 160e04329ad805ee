"""`bedplate schema`: what the fleet file may hold, for editors."""

from bedplate.cli.output import show_document


def schema() -> int:
    """Print the fleet file's JSON Schema, for editors."""
    from bedplate.spec.schema import fleet_schema

    show_document(fleet_schema())
    return 0
