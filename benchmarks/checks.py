"""The checks of what stacks hold, on the larger example's graph and on ten of it, beside reading the graph as JSON.

The target is less than 1 ms a resource, and a cost that grows as the resources do.
"""

import json
import re
import sys
from pathlib import Path
from time import process_time
from typing import Any

from bedplate.audit.document import read_graph
from bedplate.audit.run import audit
from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.load import load_fleet
from bedplate.plan import Record, plan_fleet
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.rehearse import create
from bedplate.rehearsal.report import Phase

LAB = Path(__file__).parents[1] / "examples/lab.yaml"
COPIES, MOST_MS = (1, 10), 1.0


def resources() -> list[dict[str, Any]]:
    """Return what the stacks of the larger example hold."""
    catalog = load_catalog()
    plan = plan_fleet(load_fleet(LAB, catalog).fleet, Record({}), catalog)
    made = (stack.runs[Phase.CREATE].snapshot.entries.values() for stack in create(plan.account, waves(plan)).stacks)
    return [node for entries in made for node in graph(entries)]


def copied(text: str, copies: int) -> list[dict[str, Any]]:
    """Return a graph several times over, each time of a fleet of another name and with other ids."""
    found: list[dict[str, Any]] = []
    for number in range(copies):
        found += json.loads(re.sub("-(?=[0-9a-f]{8})", f"-{number}", text.replace("lab", f"lab{number}")))
    return found


def main() -> int:
    """Print a line for each size; return 1 where the target is missed."""
    text = json.dumps(resources())
    worst = 0.0
    for copies in COPIES:
        whole = json.dumps(copied(text, copies))
        started = process_time()
        json.loads(whole)
        parsed = process_time()
        known = read_graph(whole, "the benchmark")
        faults = audit(known)
        took = process_time() - parsed
        each = 1000 * took / len(known.nodes)
        worst = max(worst, each)
        print(f"{len(known.nodes):6,} resources {took:6.2f} s {each:6.3f} ms each", end="  ")
        print(f"{took / (parsed - started):5.1f} x reading the JSON, {len(faults)} faults")
    return 0 if worst < MOST_MS else 1


sys.exit(main())
