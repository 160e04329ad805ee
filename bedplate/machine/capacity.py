"""`python3 -m bedplate.machine.capacity`: the capacity controller, on each member of the control plane.

Of all members one acts. It starts and ends machines as pods need them.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from bedplate.account.client import open_client
from bedplate.errors import BedplateError
from bedplate.operate.capacity_loop import Outputs, check_cluster, read_plan, run_controller


def log(entry: Mapping[str, object]) -> None:
    """Write an entry to the journal."""
    sys.stdout.write(f"{json.dumps(entry)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bedplate-capacity")
    for option in ("--plan", "--kubeconfig", "--etcd-cluster", "--metrics"):
        parser.add_argument(option, type=Path, required=True)
    given = parser.parse_args()
    try:
        plan = read_plan(given.plan)
        check_cluster(plan, given.etcd_cluster)
        run_controller(plan, open_client(), given.kubeconfig, Outputs(log, sys.stderr.write, metrics=given.metrics))
    except BedplateError as fatal:
        log({"error": fatal.what, "fix": fatal.fix})
        sys.exit(fatal.exit_code)
