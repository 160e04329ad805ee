"""The commands about an account or a region of AWS: backend init, quotas, image record, catalog refresh."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import (
    AwsClient,
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
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.load import examine
from bedplate.load.fleet import read_fleet
from bedplate.load.source import today
from bedplate.lock import lock_path, read_lock, record_images, renew_images
from bedplate.operate.fleet import open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cost import Granted, QuotaNeed, quota_needs
from bedplate.plan.planner import image_places, unrecorded_images
from bedplate.report.cost import quota_document, quota_lines, renewal_lines, unmet_needs
from bedplate.report.diagnostics import fault_lines
from bedplate.report.plan import image_lines
from bedplate.rules import Fault


def init(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="DIR", help="Keep the state in this folder, secrets by a passphrase."),
    ] = None,
) -> int:
    """Prepare the state of the deployments.

    Creates an S3 bucket for the state and a KMS key for its secrets, records the bucket in Pulumi.yaml, and creates
    the stacks with their settings files. A backend that Pulumi.yaml or PULUMI_BACKEND_URL names is used as it is.

    A second run creates and restores only what is missing, such as the settings file of a stack.
    """
    from bedplate.operate import backend  # slow: Pulumi takes seconds to import

    backend.init(Terminal(fleet), file)
    return 0


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show required and granted quotas.

    The exit status is 3 if a granted quota is too small for the minimum number of machines.
    """
    plan = plan_of(Terminal(fleet))
    required = quota_needs(plan, load_catalog())
    values, status = _granted_quotas(plan, required)
    if json:
        show_document(quota_document(required, values))
    else:
        show(quota_lines(required, values))
    return ViolationError.exit_code if unmet_needs(required, values) else status


def _granted_quotas(plan: FleetPlan, required: tuple[QuotaNeed, ...]) -> tuple[Granted, int]:
    """Return the account's quotas, and 6 if a region did not answer. Without credentials there are none."""
    try:
        client = open_account(plan)
    except InputError:
        raise
    except NoCredentials:
        notify(["no AWS credentials: the account's quotas are unknown"])
        return {}, 0
    except BedplateError as error:
        _print_unknown([error.what], error.fix)
        return {}, PartialError.exit_code
    answers = read_quotas(client, required)
    values = {key: value for quotas in answers.successes.values() for key, value in quotas.items()}
    if answers.failures:
        _print_unknown(failure_lines(answers.failures), next(iter(answers.failures.values())).fix)
        return values, PartialError.exit_code
    return values, 0


def _print_unknown(reasons: Iterable[str], fix: str) -> None:
    notify((*(f"granted quotas unknown: {reason}" for reason in reasons), *((f"  fix  {fix}",) if fix else ())))


def record_image_ids(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    renew: Annotated[bool, typer.Option("--renew", help="Also replace recorded images by the newest.")] = False,
) -> int:
    """Record Ubuntu images in fleet.lock."""
    plan = plan_of(Terminal(fleet))
    places = image_places(plan, load_catalog())
    due = places if renew else unrecorded_images(plan, load_catalog())
    recorded = plan.record.images
    if due:
        images = newest_images(open_account(plan), due)
        record = renew_images if renew else record_images
        recorded = record(lock_path(fleet), plan.name, images).images
    show(image_lines(places, plan.record.images, recorded))
    return 0


def refresh_catalog(
    *,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Ask only this region; repeatable.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if more than a tenth of the known facts disappear.")
    ] = False,
) -> int:
    """Update types, offers, prices and checksums."""
    catalog, client = load_catalog(), open_client()
    for name in region or []:
        check_region(catalog, name)
    account = caller_account(client, catalog.price_region)
    regions = tuple(region or _enabled_regions(client, catalog))
    answers = require_all(ask_regions(regions, lambda name: read_region(client, name)), "nothing was written")
    updated = refreshed(catalog, account, answers, list_prices(client, catalog.price_region))
    differences = tuple(changes(catalog, updated))
    if not force:
        check_whole(differences)
    write_data_files(refreshed_texts({name: read_data_file(name) for name in REFRESHED}, updated, regions, today()))
    show(renewal_lines(differences, () if region else (name for name in catalog.regions if name not in regions)))
    show(fault_lines(_missing_offers(updated)))
    _refresh_checksums(catalog)
    _refresh_keys(catalog)
    return 0


def _refresh_keys(catalog: Catalog) -> None:
    """Replace keys of apt repositories that their vendors have renewed."""
    texts = {name: download(key.address) for name, key in catalog.keys.items()}
    keys = {name: key.renewed(texts[name], read_public_key(texts[name])) for name, key in catalog.keys.items()}
    renewed = {name: texts[name] for name in keys if keys[name] != catalog.keys[name]}
    if renewed:
        write_key_files(keys, renewed, today())
        show([f"renewed: key of {name}, which ends on {keys[name].ends or 'no day'}" for name in renewed])


def _refresh_checksums(catalog: Catalog) -> None:
    """Compare the checksums of the software sets with their sources, and record them with NVIDIA's key."""
    newest = catalog.software_set(None)
    page, key = (download(newest.items[item].source) for item in (EFA_SUM, NVIDIA_KEY_SUM))
    sets = with_published(catalog.software, page, key)
    write_software_files(sets, key, today())
    missing = [f"{item} of software set {name}" for name in sets for item in CHECKSUMS if not sets[name].checksum(item)]
    notify([f"not verified: {', '.join(missing)}"] if missing else [])


def _missing_offers(catalog: Catalog) -> Iterator[Fault]:
    """Yield the faults of ./fleet.yaml and its lock, if it exists, about zones that do not offer a type."""
    fleet = read_fleet(DEFAULT_FLEET, catalog).fleet
    if fleet:
        record = read_lock(lock_path(DEFAULT_FLEET), fleet.name)
        yield from (fault for fault in examine(DEFAULT_FLEET, catalog, record) if fault.code == TYPE_NOT_OFFERED.code)


def _enabled_regions(client: AwsClient, catalog: Catalog) -> tuple[str, ...]:
    enabled = enabled_regions(client, catalog.price_region)
    return tuple(name for name in catalog.regions if name in enabled)
