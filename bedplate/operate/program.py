"""The Pulumi program of a fleet folder: `pulumi up -s lab.us-west-2` runs it through the folder's `__main__.py`."""

from pathlib import Path

import pulumi

from bedplate.errors import BedplateError, InputError, error_lines
from bedplate.folder.files import settings_file
from bedplate.load import FleetFaults
from bedplate.plan.stacks import FLEET_TEXT
from bedplate.report.diagnostics import fault_lines
from bedplate.rules import Level
from stacks.program import declare, load_stack


def declare_stack(folder: Path) -> None:
    """Declare the part of the fleet that the stack name selects; raise RunError for errors of the operator's input.

    The fleet file is that of `bedplate:fleet` in the settings of the stack. If their file is missing, Pulumi writes one
    without it before it runs the program.
    """
    try:
        fleet_file = folder / _fleet_file(folder)
        stack_run = load_stack(fleet_file, pulumi.get_stack())
        declare(stack_run.plan, stack_run.part)
        pulumi.export(FLEET_TEXT, fleet_file.read_text(encoding="utf-8"))
    except FleetFaults as error:
        errors = [fault for fault in error.faults if fault.level is Level.ERROR]
        raise pulumi.RunError("\n".join(fault_lines(errors))) from None
    except BedplateError as error:
        # Pulumi adds its own label.
        raise pulumi.RunError("\n".join(error_lines(error)).removeprefix("error: ")) from None


def _fleet_file(folder: Path) -> str:
    """Return the path of the fleet file; raise InputError if the settings of the stack were lost."""
    if name := pulumi.Config("bedplate").get("fleet"):
        return name
    stack = pulumi.get_stack()
    settings = settings_file(folder, stack).name
    raise InputError(
        "`bedplate:fleet` is missing: Pulumi has just made this file, or bedplate did not create the stack",
        where=settings,
        fix=f"restore {settings} from git; without a copy, delete it and run `bedplate backend init`. "
        f"For a stack of your own: `pulumi config set bedplate:fleet fleet.yaml -s {stack}`",
    )
