"""Bundles of nodes are built, pushed, promoted and compared; `deliver_bundle` is the step of `up`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bedplate.account.bundle import RegionStore
from bedplate.account.client import (
    Answer,
    AwsClient,
    NotThere,
    RegionResults,
    ask_regions,
    failure_lines,
    require_all,
)
from bedplate.account.machines import read_pool_machines
from bedplate.bundle import (
    Bundle,
    BundleTarget,
    Cache,
    CanaryReport,
    NodeStatus,
    RingState,
    build_bundle,
    canary_report,
    contents,
    install,
    next_state,
    read_bundle,
    targets,
    user_cache,
)
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError, error_lines
from bedplate.operate import Operator, Result, open_account, plan_and_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import region_documents
from bedplate.report import bundle as reports
from bedplate.report.bundle import SHORT, Rings
from bedplate.spec.groups import Ring

_PUSH = "push it first: `bedplate bundle push`"


def push(operator: Operator, pythons: Sequence[str]) -> int:
    """Build the bundle, also for these versions of Python, and upload it to all regions; return the exit status."""
    plan, client = plan_and_account(operator)
    errors = push_bundle(operator, plan, client, *_built(pythons))
    return operator.report_errors(errors, _again("bedplate bundle push"))


def promote(operator: Operator, ring: Ring, bundle: str | None) -> int:
    """Let the machines of a ring follow a bundle; return the exit status.

    Raises ViolationError if the bundle failed on a machine of the ring canary.
    """
    plan, client = plan_and_account(operator)
    name = _chosen(plan, client, ring, bundle)
    if ring is Ring.STABLE:
        report = read_canary(plan, client, name)
        operator.notify(reports.canary_lines(report))
        if report.failed:
            raise ViolationError(f"bundle {name[:SHORT]} failed on canary machines", fix="promote another bundle")
    errors = promote_bundle(operator, plan, client, ring, name)
    return operator.report_errors(errors, _again(f"bedplate bundle promote {ring.value} {name}"))


def build(pythons: Sequence[str], report: Callable[[Iterable[str]], None]) -> Result:
    """Build the bundle of this installation, also for these versions of Python, and report what takes minutes."""

    def unpack(target: BundleTarget, lock: Path, folder: Path) -> None:
        report([f"{target.name}: download packages"])
        install(target, lock, folder)
        report([f"{target.name}: pack them"])

    cache = user_cache()
    bundle = build_bundle(cache, targets(tuple(pythons)), unpack=unpack)
    sizes = {name: len(cache.read(name)) for name in bundle.blobs}
    return Result(reports.bundle_lines(bundle, sizes), reports.bundle_document(bundle, sizes))


def list_rings(operator: Operator) -> Result:
    """Return the bundle of each ring, and the errors of regions that do not answer as notes."""
    plan, client = plan_and_account(operator)
    answers = _some(ask_regions(plan.regions_by_name, lambda name: _rings(RegionStore(client, plan, name))))
    rings = {key: state for states in answers.successes.values() for key, state in states.items()}
    lines, document = reports.ring_lines(rings, datetime.now(UTC)), reports.rings_document(rings)
    if not answers.failures:
        return Result(lines, document)
    notes = (*error_lines(*_errors(answers.failures)), _again("bedplate bundle list"))
    return Result(lines, document, PartialError.exit_code, notes)


def differences(operator: Operator, first: str, second: str | None) -> Result:
    """Return the files that differ between two bundles; the second may be that of this installation."""
    plan = plan_of(operator)
    store = RegionStore(open_account(plan), plan, plan.home.name)
    cache = user_cache()
    before = _named(store, first)
    after = _named(store, second) if second else build_bundle(cache)
    return Result(_differences(cache, store, before, after) if before != after else ["no differences"])


def bundle_differences(store: RegionStore, first: str, second: str) -> Iterator[str]:
    """Yield the differences of two pushed bundles. Raises InputError for one that was not pushed."""
    yield from _differences(user_cache(), store, _named(store, first), _named(store, second))


def _differences(cache: Cache, store: RegionStore, before: Bundle, after: Bundle) -> Iterator[str]:
    old, new = ({"code": bundle.code, **bundle.wheels} for bundle in (before, after))
    for part in (part for part in {**old, **new} if old.get(part) != new.get(part)):
        yield from reports.difference_lines(part, *(_files(cache, store, parts.get(part)) for parts in (old, new)))


def _built(pythons: Sequence[str] = ()) -> tuple[Cache, Bundle]:
    cache = user_cache()
    return cache, build_bundle(cache, targets(tuple(pythons)))


def push_bundle(
    operator: Operator, plan: FleetPlan, client: AwsClient, cache: Cache, bundle: Bundle
) -> list[BedplateError]:
    """Upload what is missing of a bundle to each region; return the errors of regions.

    Also write the node documents of rings that follow this bundle or none: the code of another may not read them.
    """

    def upload(region: str) -> int:
        store = RegionStore(client, plan, region)
        missing = _upload(store, cache, bundle)
        for ring in Ring:
            state = store.ring(ring)
            if state is None or state.bundle == bundle.hash:
                _write_documents(store, ring)
        return missing

    answers = _some(ask_regions(plan.regions_by_name, upload))
    short = bundle.hash[:SHORT]
    operator.show(f"{region}: bundle {short}, {count} archives uploaded" for region, count in answers.successes.items())
    return _errors(answers.failures)


def _upload(store: RegionStore, cache: Cache, bundle: Bundle) -> int:
    """Upload what is missing of a bundle to a region; return the number of archives."""
    missing = [name for name in bundle.blobs if not store.has(f"blobs/{name}")]
    for name in missing:
        store.put(f"blobs/{name}", cache.read(name))
    # Last: a manifest in the bucket says that all of its archives are there.
    store.put(f"bundles/{bundle.hash}.json", bundle.text.encode())
    return len(missing)


def deliver_to_new_region(plan: FleetPlan, client: AwsClient, region: str) -> None:
    """Give the rings of a region that name no bundle that of this installation.

    The machines of a new region start with its stack, minutes before all stacks are done, and some stack may fail.
    """
    store, home = RegionStore(client, plan, region), RegionStore(client, plan, plan.home.name)
    rings = [ring for ring in Ring if store.ring(ring) is None]
    if not rings:
        return
    cache, bundle = _built()
    _upload(store, cache, bundle)
    for ring in rings:
        _write_documents(store, ring)
        store.promote(ring, next_state([home.ring(ring)], bundle.hash), None)


def _write_documents(store: RegionStore, ring: Ring) -> None:
    for name, text in region_documents(store.plan, store.region, ring, store.plan.catalog).items():
        store.put(f"nodes/{name}.json", text.encode())


@dataclass(frozen=True, slots=True)
class _RegionState:
    """Whether a region has a bundle, and the state of a ring there."""

    has_bundle: bool
    ring: RingState | None


def promote_bundle(
    operator: Operator, plan: FleetPlan, client: AwsClient, ring: Ring, name: str
) -> list[BedplateError]:
    """Promote a pushed bundle in all regions that answer; return the errors of the others.

    Raises InputError if one of the regions does not have the bundle: then nothing was changed.
    """

    def read(region: str) -> _RegionState:
        store = RegionStore(client, plan, region)
        return _RegionState(store.has(f"bundles/{name}.json"), store.ring(ring))

    answers = _some(ask_regions(plan.regions_by_name, read))
    missing = [region for region, state in answers.successes.items() if not state.has_bundle]
    if missing:
        raise InputError(f"bundle {name[:SHORT]} is not in {', '.join(missing)}", fix=_PUSH)
    target = next_state((state.ring for state in answers.successes.values()), name)

    def write(region: str) -> None:
        store = RegionStore(client, plan, region)
        _write_documents(store, ring)
        store.promote(ring, target, answers.successes[region].ring)

    due = [region for region, state in answers.successes.items() if not target.is_same(state.ring)]
    results = ask_regions(due, write)
    followed = f"{ring.value} follows {name[:SHORT]}, sequence {target.sequence}"
    operator.show(f"{region}: {followed}" for region in results.successes)
    if not due and answers.successes:
        operator.show([f"{ring.value} already follows {name[:SHORT]}: nothing to do"])
    return _errors({**answers.failures, **results.failures})


def read_canary(plan: FleetPlan, client: AwsClient, name: str) -> CanaryReport:
    """Return what the running machines of the ring `canary` report of a bundle. Raises PartialError."""
    pools = [pool for pool in plan.pools if pool.group_spec.ring is Ring.CANARY]
    answers = read_pool_machines(client, plan, pools, ())

    def statuses(region: str) -> Mapping[str, NodeStatus | None]:
        running = [machine.instance for machine in answers.successes[region] if "Terminat" not in machine.state]
        return RegionStore(client, plan, region).statuses(running) if running else {}

    results = ask_regions(answers.successes, statuses)
    failures = {**answers.failures, **results.failures}
    if failures:
        raise PartialError(f"cannot read the status of canary machines: {'; '.join(failure_lines(failures))}")
    return canary_report({key: state for states in results.successes.values() for key, state in states.items()}, name)


def deliver_bundle(operator: Operator, plan: FleetPlan, client: AwsClient) -> list[BedplateError]:
    """Build and push the bundle, promote it to `canary`, and to `stable` once the canary machines have run it.

    Returns the errors. The first bundle goes to `stable` at once: machines there have none.
    """
    try:
        cache, bundle = _built()
        errors = push_bundle(operator, plan, client, cache, bundle)
        errors = errors or promote_bundle(operator, plan, client, Ring.CANARY, bundle.hash)
        if errors:
            return errors
        report = read_canary(plan, client, bundle.hash)
        if report.has_passed or RegionStore(client, plan, plan.home.name).ring(Ring.STABLE) is None:
            return promote_bundle(operator, plan, client, Ring.STABLE, bundle.hash)
    except BedplateError as error:
        return [error]
    later = f"stable keeps its bundle; later: `bedplate bundle promote stable {bundle.hash[:SHORT]}`"
    operator.notify((*reports.canary_lines(report), later))
    return [PartialError(f"bundle {bundle.hash[:SHORT]} failed on canary machines")] if report.failed else []


def _chosen(plan: FleetPlan, client: AwsClient, ring: Ring, bundle: str | None) -> str:
    """Return the bundle to promote: the named one, that of canary machines for `stable`, else this installation's."""
    store = RegionStore(client, plan, plan.home.name)
    if bundle:
        return _resolved(store, bundle)
    if ring is Ring.STABLE and any(pool.group_spec.ring is Ring.CANARY for pool in plan.pools):
        return _of_ring(store, Ring.CANARY)
    return build_bundle(user_cache()).hash


def _named(store: RegionStore, word: str) -> Bundle:
    """Return the bundle of a ring, or of a hash."""
    name = _of_ring(store, Ring(word)) if word in {*Ring} else _resolved(store, word)
    try:
        return read_bundle(store.get(f"bundles/{name}.json").decode())
    except NotThere:
        raise InputError(f"no bundle {name[:SHORT]} in {store.region}", fix=_PUSH) from None


def _of_ring(store: RegionStore, ring: Ring) -> str:
    state = store.ring(ring)
    if state is None:
        raise InputError(f"{ring.value} has no bundle", fix=f"promote one: `bedplate bundle promote {ring.value}`")
    return state.bundle


def _resolved(store: RegionStore, prefix: str) -> str:
    """Return the full hash of a pushed bundle. Raises InputError for none, or several."""
    if not re.fullmatch("[0-9a-f]+", prefix):
        raise InputError(f"{prefix} is neither a ring nor a hash", fix="write stable, canary or a hash of 0-9 and a-f")
    try:
        names = [Path(key).stem for key in store.keys(f"bundles/{prefix}")]
    except NotThere:
        names = []
    if len(names) != 1:
        what = f"{len(names)} bundles begin with {prefix}" if names else f"no bundle {prefix} in {store.region}"
        raise InputError(what, fix="write more digits of the hash" if names else _PUSH)
    return names[0]


def _files(cache: Cache, store: RegionStore, name: str | None) -> Mapping[str, str]:
    """Return the files of an archive, which is downloaded if the cache does not have it; none without a name."""
    if name is None:
        return {}
    blob = cache.blob(name)
    if blob is None:
        blob = store.blob(name)
        cache.store(blob)
    return contents(blob)


def _rings(store: RegionStore) -> Rings:
    return {(store.region, ring): store.ring(ring) for ring in Ring}


def _some(answers: RegionResults[Answer]) -> RegionResults[Answer]:
    """Return the results of regions. Raises the error of the first region if all of them failed."""
    if not answers.successes:
        require_all(answers, "no region answered")
    return answers


def _errors(failures: Mapping[str, BedplateError]) -> list[BedplateError]:
    """Return an error for each distinct message of regions."""
    fixes = {error.what: error.fix for error in failures.values()}
    return [PartialError(line, fix=fixes[line.partition(": ")[2]]) for line in failure_lines(failures)]


def _again(command: str) -> str:
    return f"partially done: run `{command}` again"
