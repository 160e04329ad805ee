"""The commands on what runs in the cluster: kube addons, status, access; and the end of a person's access."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from bedplate.account.facts import download
from bedplate.catalog.catalog import load_addons, write_addon_file
from bedplate.catalog.stacks import AddonPins
from bedplate.cli.fleet import plan_of
from bedplate.cli.kube_session import admin_kubeconfig, cluster_of, connections, member_nodes
from bedplate.cli.login import SshOptions
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    FleetOption,
    Identity,
    Json,
    PassphraseFile,
    Person,
    SshConfig,
    User,
    notify,
    show,
    show_document,
)
from bedplate.cluster.apply import Key, apply_objects, close_namespace, delete_objects
from bedplate.cluster.client import ClusterClient, open_cluster
from bedplate.cluster.desired import admit_routers, desired_objects, person_kubeconfig
from bedplate.cluster.registry import image_digest
from bedplate.cluster.status import read_routers, read_status
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError, nearest_fix
from bedplate.files import write_whole
from bedplate.kube.health import etcd_faults
from bedplate.kube.members import ask_all
from bedplate.kube.members import read_status as read_member
from bedplate.load.source import today
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import PEOPLE, person_name
from bedplate.plan.nodes import permanent_nodes
from bedplate.report.diagnostics import error_lines
from bedplate.report.kube import applied_lines, etcd_document, etcd_lines, status_document, status_lines
from bedplate.rounds import ask_each

Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: the operator's own, of `kube init`.")
]


def addons(
    action: Annotated[Literal["apply", "pin"], typer.Argument(metavar="ACTION", help="apply, or pin.")],
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    mirror: Annotated[
        Path | None, typer.Option("--mirror", metavar="FOLDER", help="Read files from FOLDER/host/path.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Apply the cluster's add-ons, or pin them.

    `apply` verifies upstream's files, applies them with people, rights and volumes, and deletes what an earlier apply
    created and the fleet has no more. `pin` compares checksums with their sources and records digests of images.
    """
    read = _reader(mirror)
    if action == "pin":
        return _pin(read)
    plan = plan_of(fleet)
    cluster = cluster_of(plan)
    objects = desired_objects(plan, cluster, load_addons(), read)
    client = _client(fleet, plan, kubeconfig, passphrase_file)
    admit_routers(objects, read_routers(client, {node.name for node in permanent_nodes(plan) if node.pod_rules}))
    applied = apply_objects(client, objects, lambda key: show([f"applied {key}"]))
    show(applied_lines(applied))
    notify(line for failure in applied.failures for line in error_lines(failure))
    return PartialError.exit_code if applied.failures else 0


def _reader(mirror: Path | None) -> Callable[[str], bytes]:
    """Return the function that reads an address, from a mirror folder if there is one."""

    def read(address: str) -> bytes:
        if mirror is None:
            return download(address).encode()
        parts = urlsplit(address)
        file = mirror / parts.netloc / parts.path.lstrip("/")
        try:
            return file.read_bytes()
        except OSError as error:
            fix = f"copy {address} there"
            raise InputError(f"cannot read the mirror: {error.strerror}", where=str(file), fix=fix) from None

    return read


def _pin(read: Callable[[str], bytes]) -> int:
    """Compare and record all checksums and digests; the exit status is 6 while one cannot be read."""
    errors, pins = list[BedplateError](), list[AddonPins]()
    for addon in load_addons():
        texts, unread = ask_each((file.address for file in addon.files), read, 1)
        digests, unknown = ask_each(addon.images, image_digest, 1)
        pins.append(addon.pinned(texts, digests))
        errors += [*unread.values(), *unknown.values()]
    write_addon_file(pins, today())
    show(
        f"{addon.name} {addon.version}: {sum(file.verified for file in addon.files)} of {len(addon.files)} files, "
        f"{sum(map(bool, addon.images.values()))} of {len(addon.images)} images"
        for addon in pins
    )
    notify(line for error in errors for line in error_lines(error))
    return PartialError.exit_code if errors else 0


def _client(fleet: Path, plan: FleetPlan, kubeconfig: Path | None, passphrase_file: Path | None) -> ClusterClient:
    return open_cluster(kubeconfig or admin_kubeconfig(fleet, plan, passphrase_file))


def status(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    as_json: Json = False,
    kubeconfig: Kubeconfig = None,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Show members, etcd, versions, certificates, nodes by pool, and add-ons.

    Asks the API, and each member over SSH. The exit status is 3 if something is wrong.
    """
    plan, now = plan_of(fleet), datetime.now(UTC)
    cluster = cluster_of(plan)
    with connections(plan, member_nodes(plan), SshOptions(fleet, user, identity, ssh_config)) as members:
        etcd, errors = ask_all(members.values(), read_member)
    wrong = tuple(etcd_faults(cluster, etcd, errors, now))
    if not as_json:
        # Before the API is asked, which may not answer.
        show(etcd_lines(etcd, now))
        show(f"fault: {fault}" for fault in wrong)
    state = read_status(_client(fleet, plan, kubeconfig, passphrase_file), cluster, now)
    if as_json:
        document = status_document(state)
        show_document({**document, "etcd": etcd_document(etcd), "faults": [*wrong, *state.faults]})
    else:
        show(status_lines(state))
    return ViolationError.exit_code if wrong or state.faults else 0


def access(
    name: Person,
    fleet: FleetOption = DEFAULT_FLEET,
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="The kubeconfig. Default: USER.kubeconfig.")
    ] = None,
) -> int:
    """Write the kubeconfig of a person.

    It holds no secret: kubectl gets a token of one hour from the control plane with the person's SSH key.
    """
    plan = plan_of(fleet)
    people = plan.accounts.uids
    if name not in people:
        raise InputError(f"no person named {name} in the fleet file", fix=nearest_fix(name, people))
    file = write or Path(f"{name}.kubeconfig")
    document = person_kubeconfig(cluster_of(plan), name, plan.record.host_keys)
    write_whole(file, f"{json.dumps(document, indent=1)}\n".encode(), 0o600)
    show([f"wrote {file}: give it to {name}", f"next: export KUBECONFIG={file}; kubectl get pods"])
    return 0


def remove_person(
    fleet: Path, plan: FleetPlan, name: str, passphrase_file: Path | None, *, keeps_pods: bool = False
) -> None:
    """Delete a person's account in the cluster, and end their work: the cluster refuses their tokens and their pods."""
    client, label = _client(fleet, plan, None, passphrase_file), person_name(name)
    account = Key("v1", "ServiceAccount", PEOPLE, label)
    owner = Key("rbac.authorization.k8s.io/v1", "RoleBinding", label, "bedplate:owner")
    for key in delete_objects(client, (account, owner)):
        show([f"deleted {key}: the cluster refuses the tokens of {name}"])
    close_namespace(client, label, ends_pods=not keeps_pods)
    ended = "their pods run until they end" if keeps_pods else "their pods are ended"
    show([f"closed Namespace {label}: nothing starts there, and {ended}"])
