"""The commands about an account or a region of AWS: backend init, quotas, image record, catalog refresh."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.account.backend import StateStore, prepare_store
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
    write_stack_files,
)
from bedplate.catalog.stacks import CHECKSUMS, EFA_SUM, NVIDIA_KEY_SUM, with_published
from bedplate.checks.ladders import TYPE_NOT_OFFERED
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, notify, show, show_document
from bedplate.errors import BedplateError, InputError, MachineError, PartialError, ViolationError
from bedplate.files import os_errors_as_machine_errors
from bedplate.folder.files import PROJECT_FILE, backend_url, file_url, record_backend, secrets_provider
from bedplate.load import examine
from bedplate.load.fleet import read_fleet
from bedplate.load.source import today
from bedplate.lock import lock_path, read_lock, record_images, renew_images
from bedplate.plan import FleetPlan
from bedplate.plan.cost import Granted, QuotaNeed, quota_needs
from bedplate.plan.planner import image_places, unrecorded_images
from bedplate.plan.stacks import parts, stack_name
from bedplate.report.cost import quota_document, quota_lines, renewal_lines, unmet_needs
from bedplate.report.diagnostics import fault_lines
from bedplate.report.plan import image_lines
from bedplate.rules import Fault

if TYPE_CHECKING:
    from bedplate.deploy.engine import Engine  # Pulumi takes seconds to import

_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


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
    changes = []
    for change in _prepare(plan_of(fleet), fleet.absolute().parent, file):
        show([change])
        changes.append(change)
    show(["commit Pulumi.yaml and the files Pulumi.<stack>.yaml" if changes else "nothing to do"])
    return 0


def ensure_backend(plan: FleetPlan, folder: Path, confirm: Callable[[str], None]) -> None:
    """Create the backend of a fleet folder after a confirmation, if Pulumi has none. Raises what `confirm` raises."""
    from bedplate.deploy.engine import open_engine

    if backend_url(folder) or open_engine(folder).has_login():
        return
    store = _store(plan)
    confirm(f"there is no backend for Pulumi's state: create the bucket {store.bucket} and the KMS key {store.alias}?")
    for change in _prepare(plan, folder, None):
        show([change])


def _store(plan: FleetPlan) -> StateStore:
    return StateStore(plan.name, plan.owner, plan.account, plan.home.name)


def _prepare(plan: FleetPlan, folder: Path, file: Path | None) -> Iterator[str]:
    """Prepare backend and stacks; yield each change."""
    from bedplate.deploy.engine import open_engine

    engine, store = open_engine(folder), _store(plan)
    url = file_url(folder, file) if file else store.url
    configured = backend_url(folder)
    if file and configured not in ("", url):
        raise InputError(
            f"the state is in {configured} already",
            fix="omit --file; docs/state.md of bedplate describes how to move a state",
        )
    if not configured:
        _check_unused(engine, plan.name)
    if configured in ("", url):
        yield from _prepare_folder(file) if file else prepare_store(open_account(plan), store)
    if not configured:
        record_backend(folder, url)
        yield f"wrote the backend {url} to {PROJECT_FILE}"
    default = store.secrets_provider if backend_url(folder) == store.url else ""
    provider = secrets_provider(folder, plan.name) or default
    yield from engine.prepare_stacks(plan.name, (stack_name(plan, part) for part in parts(plan)), provider)


def _check_unused(engine: "Engine", fleet: str) -> None:
    """Raise InputError if the fleet is deployed in the backend of `pulumi login`: `up` would create it again."""
    if engine.has_login() and engine.is_deployed(fleet):
        raise InputError(
            f"the state of {fleet} is in the backend of your `pulumi login`",
            fix="write its URL (`pulumi whoami --verbose`) to Pulumi.yaml as `backend: {url: URL}`, then run it again",
        )


def _prepare_folder(folder: Path) -> Iterator[str]:
    if not any(map(os.environ.get, _PASSPHRASES)):
        raise MachineError(
            "the passphrase for the secrets of the state is missing",
            fix=f"set {_PASSPHRASES[0]}, or {_PASSPHRASES[1]} to a file that holds it",
        )
    if not folder.is_dir():
        with os_errors_as_machine_errors(folder):
            folder.mkdir(mode=0o700, parents=True)
        yield f"created the folder {folder}"


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show required and granted quotas.

    The exit status is 3 if a granted quota is too small for the minimum number of machines.
    """
    plan = plan_of(fleet)
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
    plan = plan_of(fleet)
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
    """Compare the checksums of the stack locks with their sources, and record them with NVIDIA's key."""
    newest = catalog.stack(None)
    page, key = (download(newest.items[item].source) for item in (EFA_SUM, NVIDIA_KEY_SUM))
    stacks = with_published(catalog.stacks, page, key)
    write_stack_files(stacks, key, today())
    missing = [f"{item} of stack {name}" for name in stacks for item in CHECKSUMS if not stacks[name].checksum(item)]
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
