"""The inventory for plain pyinfra: the permanent machines of the fleet file in BEDPLATE_FLEET, or of fleet.yaml.

ssh must know the names: `bedplate node ssh-config --write FILE` writes their addresses and host keys. Errors in the
fleet file are printed as bedplate prints them, with its exit codes.
"""

import os
import sys
from pathlib import Path

from bedplate.errors import BedplateError, error_lines
from bedplate.load import FleetFaults
from bedplate.report.diagnostics import fault_lines
from roles.catalog import machines

_file = Path(os.environ.get("BEDPLATE_FLEET", "fleet.yaml"))
try:
    _names = tuple(machines(_file))
except BedplateError as _error:
    _lines = fault_lines(_error.faults) if isinstance(_error, FleetFaults) else error_lines(_error)
    sys.stderr.write("".join(f"{line}\n" for line in _lines))
    sys.exit(_error.exit_code)
nodes = [(name, {"fleet": str(_file), "ssh_strict_host_key_checking": "yes", "_sudo": True}) for name in _names]
