"""The command line. A command parses its arguments, calls the packages that do the work, and prints the result.

A command returns its exit status, or nothing for 0. Errors are printed here, in one place.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from traceback import print_exception

import typer

from bedplate.cli.app import GROUPS, command_path, make_app
from bedplate.cli.output import notify
from bedplate.errors import BedplateError, InputError, error_lines
from bedplate.rounds import LATE

INTERRUPTED = 130
"""The exit status that a shell reports for a program killed by SIGINT: 128 + 2."""


def main() -> None:
    """Run the command line and exit with its status."""
    status = run(sys.argv[1:])
    if any(thread.name == LATE for thread in threading.enumerate()):
        # Python would wait for what did not answer in time.
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Raises nothing."""
    try:
        return _invoke(arguments)
    except (BedplateError, typer.TyperException) as error:
        notify(_error_lines(error, arguments))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):  # Abort: at a question
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - operators get an error message, not a traceback
        if "--traceback" in arguments or os.environ.get("BEDPLATE_TRACEBACK") == "1":
            print_exception(error)
        notify(_error_lines(error, arguments))
        return BedplateError.exit_code


def _error_lines(error: Exception, arguments: Sequence[str]) -> Iterable[str]:
    # Both modules import the models of a fleet, which take a quarter of a second.
    from bedplate.load import FleetFaults
    from bedplate.report import diagnostics

    match error:
        case FleetFaults():
            return diagnostics.refusal_lines(error.faults)
        case BedplateError():
            return error_lines(error)
        case typer.TyperException():
            return diagnostics.usage_lines(error.format_message(), command_path(arguments))
    return diagnostics.defect_lines(error)


def _invoke(arguments: Sequence[str]) -> int:
    # The limit of a command includes the import of its modules, which takes seconds on a busy machine.
    began = time.monotonic()
    words = list(arguments) or ["--help"]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    is_group = words == [name for name in GROUPS if name == words[0]]
    # A shell asks for completions by variables; they hold the words so far (typer's completion scripts).
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS")
    app = make_app(typed.split()[1:] if typed and "_BEDPLATE_COMPLETE" in os.environ else words)
    words += ["--help"] if is_group else []
    status: int | None = app(words, prog_name="bedplate", standalone_mode=False, obj=began)
    return InputError.exit_code if is_group else status or 0
