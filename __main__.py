"""The Pulumi program: it declares one part of the fleet in `fleet.yaml`, or in the file set by `bedplate:fleet`."""

from pathlib import Path

import pulumi

from bedplate.errors import BedplateError
from bedplate.load import FleetFaults
from bedplate.report.diagnostics import error_lines, fault_lines
from stacks.program import declare, load_stack

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Declare the part of the fleet that the stack name selects; show input errors without a traceback."""
    fleet_file = ROOT / (pulumi.Config("bedplate").get("fleet") or "fleet.yaml")
    try:
        stack_run = load_stack(fleet_file, pulumi.get_stack())
        declare(stack_run.plan, stack_run.part)
    except FleetFaults as error:
        raise pulumi.RunError("\n".join(fault_lines(error.faults))) from None
    except BedplateError as error:
        # Pulumi adds its own label.
        raise pulumi.RunError("\n".join(error_lines(error)).removeprefix("error: ")) from None


if __name__ == "__main__":
    main()
