"""The Pulumi program of a fleet folder: `pulumi up -s lab.us-west-2` runs it through the folder's `__main__.py`."""

from pathlib import Path

import pulumi

from bedplate.checks.diagnostics import Level
from bedplate.errors import BedplateError
from bedplate.folder.files import FLEET_FILE
from bedplate.load import FleetFaults
from bedplate.report.diagnostics import error_lines, fault_lines
from stacks.program import declare, load_stack


def declare_stack(folder: Path) -> None:
    """Declare the part of the fleet that the stack name selects; raise RunError for errors of the operator's input.

    The fleet file is `fleet.yaml` in the folder, or the file set by `bedplate:fleet`.
    """
    fleet_file = folder / (pulumi.Config("bedplate").get("fleet") or FLEET_FILE)
    try:
        stack_run = load_stack(fleet_file, pulumi.get_stack())
        declare(stack_run.plan, stack_run.part)
    except FleetFaults as error:
        errors = [fault for fault in error.faults if fault.level is Level.ERROR]
        raise pulumi.RunError("\n".join(fault_lines(errors))) from None
    except BedplateError as error:
        # Pulumi adds its own label.
        raise pulumi.RunError("\n".join(error_lines(error)).removeprefix("error: ")) from None
