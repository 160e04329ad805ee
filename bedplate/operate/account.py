"""What an AWS account has: quotas, Ubuntu images, and the facts of the catalog."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bedplate.account.client import (
    NoCredentials,
    ask_regions,
    check_account,
    failure_lines,
    open_client,
    require_all,
)
from bedplate.account.facts import (
    download,
    list_prices,
    newest_images,
    read_public_key,
    read_quotas,
    read_region,
)
from bedplate.catalog import load_catalog
from bedplate.catalog.catalog import changes, check_region, check_whole
from bedplate.catalog.folder import NAME, FolderFacts
from bedplate.catalog.software import CHECKSUMS, EFA_SUM, NVIDIA_KEY_SUM, with_published
from bedplate.checks.ladders import TYPE_NOT_OFFERED
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.load import FleetFaults, examine
from bedplate.load.catalog import fleet_catalog, folder_facts, write_folder_facts
from bedplate.load.fleet import read_fleet
from bedplate.load.source import today
from bedplate.lock import lock_path, read_lock, record_images, renew_images
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.permissions import length, role_policies
from bedplate.plan import FleetPlan
from bedplate.plan.cost import Granted, QuotaNeed, quota_needs
from bedplate.plan.planner import image_places, unrecorded_images
from bedplate.report.cost import quota_document, quota_lines, renewal_lines, unmet_needs
from bedplate.report.diagnostics import fault_lines
from bedplate.report.plan import image_lines


def quotas(operator: Operator) -> Result:
    """Return required and granted quotas; the exit status is 3 if one is too small for the minimum of machines."""
    plan = plan_of(operator)
    policies = max((length(texts) for _, texts in role_policies(plan)), default=0)
    limit = plan.catalog.quotas["characters of a role's policies"]
    needs = (*quota_needs(plan, plan.catalog), QuotaNeed(plan.home.name, limit, policies, policies))
    required = tuple(sorted(needs, key=lambda need: [*plan.regions_by_name].index(need.region)))
    values, status = _granted_quotas(operator, plan, required)
    if unmet_needs(required, values):
        status = ViolationError.exit_code
    return Result(quota_lines(required, values), quota_document(required, values), status)


def _granted_quotas(operator: Operator, plan: FleetPlan, required: tuple[QuotaNeed, ...]) -> tuple[Granted, int]:
    """Return the account's quotas, and 6 if a region did not answer. Without credentials there are none."""
    try:
        client = open_account(plan)
    except InputError:
        raise
    except NoCredentials:
        operator.notify(["no AWS credentials: the account's quotas are unknown"])
        return {}, 0
    except BedplateError as error:
        _report_unknown(operator, [error.what], error.fix)
        return {}, PartialError.exit_code
    answers = read_quotas(client, required)
    values = {key: value for quotas in answers.successes.values() for key, value in quotas.items()}
    if answers.failures:
        _report_unknown(operator, failure_lines(answers.failures), next(iter(answers.failures.values())).fix)
        return values, PartialError.exit_code
    return values, 0


def _report_unknown(operator: Operator, reasons: Iterable[str], fix: str) -> None:
    operator.notify(
        (*(f"granted quotas unknown: {reason}" for reason in reasons), *((f"  fix  {fix}",) if fix else ()))
    )


def record_images_of_ubuntu(operator: Operator, *, renew: bool) -> Result:
    """Record Ubuntu images in the lock; `renew` also replaces recorded images."""
    plan = plan_of(operator)
    places = image_places(plan, plan.catalog)
    due = places if renew else unrecorded_images(plan, plan.catalog)
    recorded = plan.record.images
    if due:
        images = newest_images(open_account(plan), due)
        record = renew_images if renew else record_images
        recorded = record(lock_path(operator.fleet), plan.name, images).images
    return Result(image_lines(places, plan.record.images, recorded))


def refresh_catalog(operator: Operator, only: Sequence[str], *, force: bool) -> None:
    """Record types, offers, prices and checksums in `fleet.catalog`, from these regions or all of the fleet.

    `force` records them even if more than a tenth of the known facts disappear. Then name the zones of the fleet that
    do not offer a type.
    """
    reading = read_fleet(operator.fleet, load_catalog())
    if reading.fleet is None:
        raise FleetFaults(reading.faults)
    fleet, client = reading.fleet, open_client()
    catalog, facts = fleet_catalog(operator.fleet), folder_facts(operator.fleet)
    for name in only:
        check_region(catalog, name)
    regions = tuple(only or fleet.regions)
    operator.notify([f"asks AWS in {regions[0]} for the account"])
    check_account(client, fleet.account, regions[0])
    operator.notify([f"asks EC2 in {', '.join(regions)}, and the price list"])
    answers = require_all(ask_regions(regions, lambda name: read_region(client, name)), "nothing was written")
    prices = list_prices(client, catalog.price_region)
    facts = facts.with_answers(fleet.account, answers, prices, today())
    updated = facts.over(load_catalog())
    differences = tuple(changes(catalog, updated))
    if not force:
        check_whole(differences)
    write_folder_facts(operator.fleet, facts)
    operator.show(renewal_lines(differences))
    record = read_lock(lock_path(operator.fleet), fleet.name)
    missing = (fault for fault in examine(operator.fleet, updated, record) if fault.code == TYPE_NOT_OFFERED.code)
    operator.show(fault_lines(missing))
    operator.notify(["asks vendors for their keys and checksums"])
    write_folder_facts(operator.fleet, _with_keys(operator, _with_checksums(operator, facts)))
    operator.show([f"recorded in {NAME}: commit it"])


def _with_keys(operator: Operator, facts: FolderFacts) -> FolderFacts:
    """Return the facts with keys of apt repositories that their vendors have renewed."""
    known = facts.over(load_catalog()).keys
    texts = {name: download(key.address) for name, key in known.items()}
    keys = {name: key.renewed(texts[name], read_public_key(texts[name])) for name, key in known.items()}
    renewed = {name: key for name, key in keys.items() if key != known[name]}
    operator.show(f"renewed: key of {name}, which ends on {key.ends or 'no day'}" for name, key in renewed.items())
    return replace(facts, keys={**facts.keys, **renewed})


def _with_checksums(operator: Operator, facts: FolderFacts) -> FolderFacts:
    """Return the facts with the checksums of the software sets at their sources, and NVIDIA's key."""
    catalog = facts.over(load_catalog())
    newest = catalog.software_set(None)
    page, key = (download(newest.items[item].source) for item in (EFA_SUM, NVIDIA_KEY_SUM))
    sets = with_published(catalog.software, page, key)
    missing = [f"{item} of software set {name}" for name in sets for item in CHECKSUMS if not sets[name].checksum(item)]
    operator.notify([f"not verified: {', '.join(missing)}"] if missing else [])
    return replace(facts, software={name: software.confirmed for name, software in sets.items()}, nvidia_key=key)
