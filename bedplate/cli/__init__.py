"""The command line: a command parses, calls one function and prints; what goes wrong is told here, once.

A command returns its exit status, and imports what it needs when it runs: help and checks start at once.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from traceback import print_exception

import typer

from bedplate.cli.app import app
from bedplate.cli.output import tell
from bedplate.errors import BedplateError
from bedplate.report.diagnostics import defect_lines, error_lines, usage_lines

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; nothing is raised."""
    try:
        return _invoke(arguments)
    except BedplateError as error:
        tell(_told(error))
        return error.exit_code
    except typer.TyperException as error:
        tell(usage_lines(error.format_message()))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last net: an operator gets a sentence, not a traceback
        if _is_traced(arguments):
            print_exception(error)
        tell(defect_lines(error))
        return BedplateError.exit_code


def _invoke(arguments: Sequence[str]) -> int:
    words = list(arguments) or ["--help"]
    status: int | None = app(words, prog_name="bedplate", standalone_mode=False)
    return status or 0


def _told(error: BedplateError) -> Iterable[str]:
    from bedplate.load import FleetFaults
    from bedplate.report.diagnostics import refusal_lines

    return refusal_lines(error.faults) if isinstance(error, FleetFaults) else error_lines(error)


def _is_traced(arguments: Sequence[str]) -> bool:
    return "--traceback" in arguments or os.environ.get("BEDPLATE_TRACEBACK") == "1"
