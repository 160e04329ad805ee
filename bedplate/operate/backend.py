"""The backend of the deployments: its bucket and key, the fleet folder that names it, and the stacks in it."""

import os
from collections.abc import Iterator
from pathlib import Path

from bedplate.account.backend import StateStore, prepare_store
from bedplate.deploy.engine import Engine, open_engine
from bedplate.errors import InputError, MachineError
from bedplate.files import os_errors_as_machine_errors
from bedplate.folder.files import PROJECT_FILE, backend_url, file_url, record_backend, secrets_provider
from bedplate.operate import Operator
from bedplate.operate.fleet import open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.stacks import parts, stack_name

_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


def init(operator: Operator, file: Path | None) -> None:
    """Prepare backend and stacks, with the state in this folder, or in a bucket."""
    changes = []
    for change in _prepare(plan_of(operator), operator.fleet.absolute().parent, file):
        operator.show([change])
        changes.append(change)
    operator.show(["commit Pulumi.yaml and the files Pulumi.<stack>.yaml" if changes else "nothing to do"])


def ensure_backend(operator: Operator, plan: FleetPlan) -> None:
    """Create the backend of a fleet folder after a confirmation, if Pulumi has none."""
    folder = operator.fleet.absolute().parent
    if backend_url(folder) or open_engine(folder).has_login():
        return
    store = _store(plan)
    what = f"create the bucket {store.bucket} and the KMS key {store.alias}"
    operator.confirm(f"there is no backend for Pulumi's state: {what}?")
    for change in _prepare(plan, folder, None):
        operator.show([change])


def _store(plan: FleetPlan) -> StateStore:
    return StateStore(plan.name, plan.owner, plan.account, plan.home.name)


def _prepare(plan: FleetPlan, folder: Path, file: Path | None) -> Iterator[str]:
    """Prepare backend and stacks; yield each change."""
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


def _check_unused(engine: Engine, fleet: str) -> None:
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
