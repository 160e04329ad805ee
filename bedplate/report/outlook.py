"""What an operator would have after a real run: networks, machines, stores, and what to type for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.plan import FleetPlan
from bedplate.plan.hostnames import API_PORT, api_name, highest, ssh_name, ssh_pools
from bedplate.rehearsal.report import Phase, Report
from bedplate.report.columns import aligned

Exports = Mapping[str, Mapping[str, Any]]


def outlook_lines(plan: FleetPlan, report: Report) -> Iterator[str]:
    """Yield the addresses and names of what the rehearsed stacks export."""
    created = (stack for stack in report.stacks if Phase.CREATE in stack.runs)
    exports = {stack.name: stack.runs[Phase.CREATE].snapshot.exports for stack in created}
    yield from ("", "what you would have:")
    yield from aligned((*_networks(plan, exports), *_machines(plan, exports), *_stores(plan, exports)))


def next_line(plan: FleetPlan, report: Report) -> str:
    """Return the first commands of a real run, and the stacks that follow."""
    first, *rest = (stack.name for stack in report.stacks if Phase.CREATE in stack.runs)
    then = f", then {', '.join(rest)}" if rest else ""
    record = "`bedplate plan --write` to record the addresses, then " if plan.news else ""
    return f"next: {record}`pulumi up -s {first}`{then}"


def _networks(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    for region in plan.regions:
        if made := exports.get(f"{plan.name}.{region.name}"):
            out = " ".join(("out by", *made["nat_addresses"].values())) if made["nat_addresses"] else "no way out"
            yield (f"  {region.name}", str(region.block), f"{made['vpc_id']}, {out}")


def _machines(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    """Yield how to log in to the first machine of each group, and where the Kubernetes API answers."""
    for pool in ssh_pools(plan):
        if f"{plan.name}.{pool.region}" in exports:
            last = highest(plan, pool)
            more = f", to -{last}" if last > 1 else ""
            yield (f"  {pool.group}", pool.region, f"ssh {ssh_name(plan, pool, 1)}{more}")
    if plan.control_plane and f"{plan.name}.{plan.home.name}" in exports:
        yield ("  kubernetes", plan.home.name, f"https://{api_name(plan)}:{API_PORT}")


def _stores(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    for files in plan.files:
        if made := exports.get(f"{plan.name}.{files.region}"):
            yield (f"  {files.store}", files.region, f"{files.mount} on {made['files'][files.store]['dns_name']}")
    for bucket in plan.buckets:
        if f"{plan.name}.{bucket.region}" in exports:
            yield (f"  {bucket.store}", bucket.region, f"s3://{bucket.name}")
