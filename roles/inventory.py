"""An inventory that plain pyinfra reads: the machines of the fleet file that BEDPLATE_FLEET names, or of fleet.yaml.

They go by the names of the plan: `bedplate node ssh-config --write` tells ssh where each is, and by which key it is
known. What the fleet file lacks is told as the command line tells it, with its exit status.
"""

import os
import sys
from pathlib import Path

from bedplate.errors import BedplateError
from bedplate.load import FleetFaults
from bedplate.report.diagnostics import error_lines, fault_lines
from roles.catalog import machines

_file = Path(os.environ.get("BEDPLATE_FLEET", "fleet.yaml"))
try:
    _names = tuple(machines(_file))
except BedplateError as _error:
    _lines = fault_lines(_error.faults) if isinstance(_error, FleetFaults) else error_lines(_error)
    sys.stderr.write("".join(f"{line}\n" for line in _lines))
    sys.exit(_error.exit_code)
nodes = [(name, {"fleet": str(_file), "ssh_strict_host_key_checking": "yes", "_sudo": True}) for name in _names]
