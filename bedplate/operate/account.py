"""What an AWS account has: quotas, Ubuntu images, and the facts of the catalog."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bedplate.account.client import (
    NoCredentials,
    ask_regions,
    caller_account,
    failure_lines,
    open_client,
    require_all,
)
from bedplate.account.facts import (
    download,
    enabled_regions,
    list_prices,
    newest_images,
    read_public_key,
    read_quotas,
    read_region,
)
from bedplate.catalog import Catalog, load_catalog
from bedplate.catalog.catalog import (
    REFRESHED,
    changes,
    check_region,
    check_whole,
    read_data_file,
    refreshed,
    refreshed_texts,
    write_data_files,
    write_key_files,
    write_software_files,
)
from bedplate.catalog.software import CHECKSUMS, EFA_SUM, NVIDIA_KEY_SUM, with_published
from bedplate.checks.ladders import TYPE_NOT_OFFERED
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.load import examine
from bedplate.load.fleet import read_fleet
from bedplate.load.source import today
from bedplate.lock import lock_path, read_lock, record_images, renew_images
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cost import Granted, QuotaNeed, quota_needs
from bedplate.plan.planner import image_places, unrecorded_images
from bedplate.report.cost import quota_document, quota_lines, renewal_lines, unmet_needs
from bedplate.report.diagnostics import fault_lines
from bedplate.report.plan import image_lines
from bedplate.rules import Fault


def quotas(operator: Operator) -> Result:
    """Return required and granted quotas; the exit status is 3 if one is too small for the minimum of machines."""
    plan = plan_of(operator)
    required = quota_needs(plan, load_catalog())
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
    places = image_places(plan, load_catalog())
    due = places if renew else unrecorded_images(plan, load_catalog())
    recorded = plan.record.images
    if due:
        images = newest_images(open_account(plan), due)
        record = renew_images if renew else record_images
        recorded = record(lock_path(operator.fleet), plan.name, images).images
    return Result(image_lines(places, plan.record.images, recorded))


def refresh_catalog(operator: Operator, only: Sequence[str], *, force: bool) -> None:
    """Update types, offers, prices and checksums, from these regions or all that are enabled.

    `force` writes them even if more than a tenth of the known facts disappear. Then name the zones of the operator's
    fleet file, if there is one, that do not offer a type.
    """
    catalog, client = load_catalog(), open_client()
    for name in only:
        check_region(catalog, name)
    account = caller_account(client, catalog.price_region)
    enabled = () if only else enabled_regions(client, catalog.price_region)
    regions = tuple(only or (name for name in catalog.regions if name in enabled))
    answers = require_all(ask_regions(regions, lambda name: read_region(client, name)), "nothing was written")
    updated = refreshed(catalog, account, answers, list_prices(client, catalog.price_region))
    differences = tuple(changes(catalog, updated))
    if not force:
        check_whole(differences)
    write_data_files(refreshed_texts({name: read_data_file(name) for name in REFRESHED}, updated, regions, today()))
    operator.show(renewal_lines(differences, () if only else (name for name in catalog.regions if name not in regions)))
    operator.show(fault_lines(_missing_offers(operator.fleet, updated)))
    _refresh_checksums(operator, catalog)
    _refresh_keys(operator, catalog)


def _refresh_keys(operator: Operator, catalog: Catalog) -> None:
    """Replace keys of apt repositories that their vendors have renewed."""
    texts = {name: download(key.address) for name, key in catalog.keys.items()}
    keys = {name: key.renewed(texts[name], read_public_key(texts[name])) for name, key in catalog.keys.items()}
    renewed = {name: texts[name] for name in keys if keys[name] != catalog.keys[name]}
    if renewed:
        write_key_files(keys, renewed, today())
        operator.show([f"renewed: key of {name}, which ends on {keys[name].ends or 'no day'}" for name in renewed])


def _refresh_checksums(operator: Operator, catalog: Catalog) -> None:
    """Compare the checksums of the software sets with their sources, and record them with NVIDIA's key."""
    newest = catalog.software_set(None)
    page, key = (download(newest.items[item].source) for item in (EFA_SUM, NVIDIA_KEY_SUM))
    sets = with_published(catalog.software, page, key)
    write_software_files(sets, key, today())
    missing = [f"{item} of software set {name}" for name in sets for item in CHECKSUMS if not sets[name].checksum(item)]
    operator.notify([f"not verified: {', '.join(missing)}"] if missing else [])


def _missing_offers(file: Path, catalog: Catalog) -> Iterator[Fault]:
    """Yield the faults of a fleet file and its lock, if it exists, about zones that do not offer a type."""
    fleet = read_fleet(file, catalog).fleet
    if fleet:
        record = read_lock(lock_path(file), fleet.name)
        yield from (fault for fault in examine(file, catalog, record) if fault.code == TYPE_NOT_OFFERED.code)
