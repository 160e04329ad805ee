"""What ended a command early, in three lines: what, where, and what to change."""

from bedplate.errors import BedplateError


def error_lines(error: BedplateError) -> tuple[str, ...]:
    """Return the lines for stderr; where and fix are left out when the error knows none."""
    told = (("error: ", error.what), ("  in   ", error.where), ("  fix  ", error.fix))
    return tuple(label + text for label, text in told if text)


def usage_lines(message: str) -> tuple[str, ...]:
    """Return the lines for a command line that cannot be understood."""
    return (
        f"error: {message}",
        "  fix  `bedplate --help` lists the commands, `bedplate COMMAND --help` its options",
    )


def defect_lines(error: Exception) -> tuple[str, ...]:
    """Return the lines for what nobody foresaw."""
    return (
        f"error: a defect in bedplate: {type(error).__name__}: {error}",
        "  fix  please report it with what `BEDPLATE_TRACEBACK=1 bedplate ...` prints",
    )
