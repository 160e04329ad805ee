"""What `pulumi` runs: the stack's part of the fleet in `fleet.yaml`, or in the file that `bedplate:fleet` names."""

from pathlib import Path

import pulumi

from bedplate.errors import BedplateError
from bedplate.load import FleetFaults
from bedplate.report.diagnostics import error_lines, fault_lines
from stacks.program import declare, order

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Declare the part that the stack's name asks for; what an operator can mend is told without a traceback."""
    fleet_file = ROOT / (pulumi.Config("bedplate").get("fleet") or "fleet.yaml")
    try:
        asked = order(fleet_file, pulumi.get_stack())
        declare(asked.plan, asked.part)
    except FleetFaults as error:
        raise pulumi.RunError("\n".join(fault_lines(error.faults))) from None
    except BedplateError as error:
        # Pulumi puts its own label in front.
        raise pulumi.RunError("\n".join(error_lines(error)).removeprefix("error: ")) from None


if __name__ == "__main__":
    main()
