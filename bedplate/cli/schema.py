"""`bedplate schema`: what the fleet file may hold, for editors."""

from bedplate.cli.output import show_document


def schema() -> int:
    """Print the fleet file's JSON Schema, for editors."""
    from bedplate.report.schema import schema_document

    show_document(schema_document())
    return 0
