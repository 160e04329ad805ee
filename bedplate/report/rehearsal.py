"""Reports of `rehearse`: a row for each stack, changes, failures, and the next command."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bedplate.plan import FleetPlan
from bedplate.plan.links import API_PORT, api_name, highest_number, ssh_name, ssh_pools
from bedplate.plan.stacks import Origin, unknown_origin
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.kind import ResourceKind, Support
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.rehearse import Phase, Report, StackReport
from bedplate.rehearsal.state import PROTECTED, Failure, Op, Step
from bedplate.report.columns import aligned, counted


def export_lines(stack: StackReport) -> Iterator[str]:
    """Yield the exports of a stack, secrets masked."""
    if stack.exports:
        yield from ("", "exports:")
        yield from aligned((f"  {name}", _export_text(value)) for name, value in sorted(stack.exports.items()))


def _export_text(value: object) -> str:
    """Return a string of one line as it is, and anything else as JSON."""
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)


Exports = Mapping[str, Mapping[str, Any]]


def outlook_lines(plan: FleetPlan, report: Report) -> Iterator[str]:
    """Yield the addresses and names that a real deployment would have."""
    exports = {stack.name: stack.deployed.snapshot.exports for stack in report.stacks if stack.deployed}
    yield from ("", "a deployment would have:")
    yield from aligned((*_networks(plan, exports), *_machines(plan, exports), *_stores(plan, exports)))


def _networks(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    for region in plan.regions:
        if stack := exports.get(f"{plan.name}.{region.name}"):
            addresses = " ".join(stack["nat_addresses"].values())
            internet = f"NAT from {addresses}" if addresses else "no internet access"
            yield (f"  {region.name}", str(region.block), f"{stack['vpc_id']}, {internet}")


def _machines(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    """Yield the ssh command for the first machine of each group, the address of the Kubernetes API and of the hub."""
    for pool in ssh_pools(plan):
        if f"{plan.name}.{pool.region}" in exports:
            last = highest_number(plan, pool)
            more = f", to -{last}" if last > 1 else ""
            yield (f"  {pool.group}", pool.region, f"ssh {ssh_name(plan, pool, 1)}{more}")
    if plan.control_plane and f"{plan.name}.{plan.home.name}" in exports:
        api = f"https://{api_name(plan)}:{API_PORT} (Kubernetes is not installed)"
        yield ("  kubernetes", plan.home.name, api)
    if (hub := plan.hub) and f"{plan.name}.{hub.region}" in exports:
        yield ("  hub", hub.place, f"https://{hub.host} (its programs are not installed)")


def _stores(plan: FleetPlan, exports: Exports) -> Iterator[tuple[str, ...]]:
    files, _, buckets = plan.stores
    for system in files:
        if stack := exports.get(f"{plan.name}.{system.region}"):
            yield (f"  {system.store}", system.region, f"{system.mount} on {stack['files'][system.store]['dns_name']}")
    for bucket in buckets:
        if f"{plan.name}.{bucket.region}" in exports:
            yield (f"  {bucket.store}", bucket.region, f"s3://{bucket.name}")


def type_name(token: str) -> str:
    """Return `aws:ec2:Subnet` for `aws:ec2/subnet:Subnet`."""
    package, module, name = token.split(":")
    return f"{package}:{module.partition('/')[0]}:{name}"


def type_lines(kinds: Mapping[str, ResourceKind]) -> Iterator[str]:
    """Yield one line for each type: how completely it is simulated, and its missing parts; then their number."""
    yield from aligned((type_name(token), kinds[token].support.value, kinds[token].note) for token in sorted(kinds))
    yield f"{counted(len(kinds), 'type')}; a program with a resource of another type is rejected"


def types_document(kinds: Mapping[str, ResourceKind]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the document of `rehearse --types --json`."""
    return {
        "types": {token: {"support": kinds[token].support.value, "note": kinds[token].note} for token in sorted(kinds)}
    }


HEAD = ("stack", "created", "again", "changed", "destroyed", "kept", "time")
FIGURES = (1, 3, 4)
NONE = "-"
# The step `replace` represents these two.
PARTS_OF_REPLACE = {Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED}


def rehearsal_lines(report: Report, origin: Origin = unknown_origin, key: Origin = unknown_origin) -> Iterator[str]:
    """Yield a table of the stacks, then changes, failures, injected faults, resource types and assumptions."""
    yield from aligned([HEAD, *(_row(stack) for stack in report.stacks)], right=FIGURES)
    for stack in report.stacks:
        yield from again_lines(stack)
        yield from change_lines(stack, key)
    for stack in report.stacks:
        yield from failure_lines(stack, origin)
    yield from fault_lines(report)
    yield from _types(report)


def again_lines(stack: StackReport) -> Iterator[str]:
    """Yield the changes of a second run of the unchanged program. There must be none."""
    steps = _distinct(stack.changes(Phase.AGAIN))
    if steps:
        yield from ("", f"error: a second run changes {stack.name}:")
        yield from _step_lines(steps)


def change_lines(stack: StackReport, key: Origin = unknown_origin) -> Iterator[str]:
    """Yield the changes by `--changed`: the resource, its changed inputs, and the key of the fleet file."""
    steps = _changed(stack)
    changes = stack.changes(Phase.CHANGE)
    if any(step.op is Op.CREATE and urns.parse_urn(step.urn).type == urns.STACK_TYPE for step in changes):
        yield from ("", f"{stack.name} is new, with {counted(len(steps), 'resource')}")
    elif steps:
        yield from ("", f"changes to {stack.name}:")
        yield from _step_lines(steps, lambda name: key(stack.name, name))


def failure_lines(stack: StackReport, origin: Origin = unknown_origin) -> Iterator[str]:
    """Yield the failures with their origin, and the number of resources skipped because of them.

    Protected resources that are no longer declared are listed together, by their origin.
    """
    failures = [failure for failure in stack.failures if not failure.skipped]
    protected: dict[str, list[str]] = {}
    for failure in failures:
        place = origin(stack.name, urns.parse_urn(failure.urn).name) if failure.urn else ""
        if failure.code == PROTECTED:
            protected.setdefault(place, []).append(failure.urn)
        else:
            yield from _failure(stack.name, failure, place)
    for place, resources in protected.items():
        yield from _protected(stack.name, resources, place)
    skipped = len(stack.failures) - len(failures)
    if skipped:
        yield f"    skipped because of failed dependencies: {counted(skipped, 'resource')}"


def fault_lines(report: Report) -> Iterator[str]:
    """Yield the effect of each injected fault, the missing resources, and the results of the runs after it."""
    if not report.fault_hits:
        return
    yield ""
    for fault, hits in report.fault_hits.items():
        yield f"fault {fault}: {counted(hits, 'request')} failed" + ("" if hits else ", no resource is affected")
    short = [stack for stack in report.stacks if stack.missing]
    yield from (
        f"  {stack.name}: {len(stack.missing):,} of {counted(sum(stack.types.values()), 'resource')} missing"
        for stack in short
    )
    yield from aligned(
        (f"  {group.group}", group.region, f"{group.running:,} of {counted(group.desired, 'instance')} running")
        for group in report.shortages
    )
    for pool in report.abandoned:
        yield f"error: machines of {pool} are abandoned: after the first deployment their region has no bundle"
    if report.real_failures:
        yield "after the faults: resources are missing, see above"
        return
    missing = sum(len(stack.missing) for stack in short)
    created = f"a second run created the {counted(missing, 'missing resource')}" if missing else "nothing was missing"
    again = "a third run changed nothing" if report.is_stable else "error: a third run made more changes"
    yield f"after the faults: {created}, {again}"


def _failure(stack: str, failure: Failure, place: str) -> Iterator[str]:
    yield from ("", f"{stack}  {_subject(failure)}   {failure.code}")
    yield from (f"    {line}".rstrip() for line in failure.message.splitlines())
    yield from _from(place)


def _protected(stack: str, resources: Sequence[str], place: str) -> Iterator[str]:
    """Yield the protected resources that are no longer declared, and how to delete or keep them."""
    source = place.rpartition(" ")[2] or "the program"
    yield from ("", f"{stack}  {counted(len(resources), 'resource')} no longer declared   {PROTECTED}")
    yield f"    {source} no longer declares these protected resources:"
    yield from (f"      {_resource(urn)}" for urn in resources)
    yield "    to delete them, run `pulumi state unprotect URN` for each and retry; to keep them, declare them again"
    yield from _from(place)


def _from(place: str) -> Iterator[str]:
    if place:
        yield f"    from {place}"


def _row(stack: StackReport) -> tuple[str, ...]:
    return (
        stack.name,
        f"{stack.count(Phase.CREATE, Op.CREATE):,}",
        _again(stack),
        f"{len(_changed(stack)):,}" if Phase.CHANGE in stack.runs else NONE,
        f"{stack.count(Phase.DESTROY, Op.DELETE):,}",
        f"{len(stack.kept)} protected" if stack.kept else NONE,
        f"{stack.seconds:.1f} s",
    )


def _changed(stack: StackReport) -> tuple[Step, ...]:
    """Return one step for each AWS resource that the change affects."""
    return tuple(step for step in _distinct(stack.changes(Phase.CHANGE)) if step.is_in_cloud)


def _distinct(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.op not in PARTS_OF_REPLACE)


def _step_lines(steps: Iterable[Step], key: Callable[[str], str] = lambda _: "") -> Iterator[str]:
    yield from aligned(
        (f"  {step.op.value}", _resource(step.urn), ", ".join(step.keys), key(urns.parse_urn(step.urn).name))
        for step in steps
    )


def _again(stack: StackReport) -> str:
    if Phase.AGAIN not in stack.runs:
        return NONE
    changed = len(stack.changes(Phase.AGAIN))
    return counted(changed, "change") if changed else "no change"


def _subject(failure: Failure) -> str:
    return f"{_resource(failure.urn)} {failure.key}".rstrip() if failure.urn else "the program"


def _resource(urn: str) -> str:
    """Return `aws:ec2:Subnet lab-us-west-2a-nodes`."""
    parts = urns.parse_urn(urn)
    return f"{type_name(parts.type)} {parts.name}"


def _types(report: Report) -> Iterator[str]:
    counts = sum((Counter(stack.types) for stack in report.stacks), Counter[str]())
    faked = [token for token in sorted(counts) if KINDS[token].support is Support.FAKED]
    fakes = f", {counted(len(faked), 'type')} faked" if faked else ""
    yield ""
    yield (
        f"{counted(counts.total(), 'resource')} of {counted(len(counts), 'type')} in a simulated AWS{fakes}, "
        f"{report.seconds:.1f} s"
    )
    yield from aligned(("faked:", type_name(token), KINDS[token].note) for token in faked)
    yield from (f"assumed: {image} exists in {region}" for region, image in report.assumed_images)
