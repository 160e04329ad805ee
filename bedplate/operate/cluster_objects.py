"""What runs in the cluster: its add-ons, its status, and the access of people."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from bedplate.account.facts import download
from bedplate.catalog import load_catalog
from bedplate.catalog.software import AddonPins
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError, error_lines, nearest_fix
from bedplate.files import write_whole
from bedplate.kubernetes.apply import Key, apply_objects, close_namespace, delete_objects
from bedplate.kubernetes.client import ClusterClient, open_cluster
from bedplate.kubernetes.desired import admit_routers, desired_objects, person_kubeconfig
from bedplate.kubernetes.health import etcd_faults
from bedplate.kubernetes.members import ask_all
from bedplate.kubernetes.members import read_status as read_member
from bedplate.kubernetes.registry import image_digest
from bedplate.kubernetes.status import read_routers, read_status
from bedplate.load.catalog import folder_facts, write_folder_facts
from bedplate.operate import Operator, Result, plan_of
from bedplate.operate.control_plane import admin_kubeconfig, cluster_of, connections, member_nodes
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import PEOPLE, person_name
from bedplate.plan.nodes import permanent_nodes
from bedplate.report.kube import applied_lines, etcd_document, etcd_lines, status_document, status_lines
from bedplate.rounds import ask_each


def apply_addons(operator: Operator, mirror: Path | None, kubeconfig: Path | None) -> Result:
    """Apply the add-ons with people, rights and volumes, and delete what an earlier apply created otherwise."""
    plan = plan_of(operator)
    cluster = cluster_of(plan)
    objects = desired_objects(plan, cluster, plan.catalog.addons, _reader(mirror))
    client = _client(operator, plan, kubeconfig)
    admit_routers(objects, read_routers(client, {node.name for node in permanent_nodes(plan) if node.pod_rules}))
    applied = apply_objects(client, objects, lambda key: operator.show([f"applied {key}"]))
    notes = error_lines(*applied.failures)
    return Result(applied_lines(applied), status=PartialError.exit_code if notes else 0, notes=notes)


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


def pin_addons(operator: Operator, mirror: Path | None) -> Result:
    """Compare and record all checksums and digests; the exit status is 6 while one cannot be read."""
    read, facts = _reader(mirror), folder_facts(operator.fleet)
    errors, pins = list[BedplateError](), list[AddonPins]()
    for addon in facts.over(load_catalog()).addons:
        texts, unread = ask_each((file.address for file in addon.files), read, 1)
        digests, unknown = ask_each(addon.images, image_digest, 1)
        pins.append(addon.pinned(texts, digests))
        errors += [*unread.values(), *unknown.values()]
    write_folder_facts(operator.fleet, replace(facts, addons=tuple(pins)))
    lines = (
        f"{addon.name} {addon.version}: {sum(file.verified for file in addon.files)} of {len(addon.files)} files, "
        f"{sum(map(bool, addon.images.values()))} of {len(addon.images)} images"
        for addon in pins
    )
    return Result(lines, status=PartialError.exit_code if errors else 0, notes=error_lines(*errors))


def _client(operator: Operator, plan: FleetPlan, kubeconfig: Path | None = None) -> ClusterClient:
    return open_cluster(kubeconfig or admin_kubeconfig(operator, plan))


def status(operator: Operator, kubeconfig: Path | None, *, is_early: bool) -> Result:
    """Return the state of the API and of each member over SSH; the exit status is 3 if something is wrong.

    With `is_early` that of the members is shown before the API is asked, which may not answer.
    """
    plan, now = plan_of(operator), datetime.now(UTC)
    cluster = cluster_of(plan)
    with connections(operator, plan, member_nodes(plan)) as members:
        etcd, errors = ask_all(members.values(), read_member)
    wrong = tuple(etcd_faults(cluster, etcd, errors, now))
    lines = (*etcd_lines(etcd, now), *(f"fault: {fault}" for fault in wrong))
    if is_early:
        operator.show(lines)
        lines = ()
    state = read_status(_client(operator, plan, kubeconfig), cluster, now)
    faults = [*wrong, *state.faults]
    document = {**status_document(state), "etcd": etcd_document(etcd), "faults": faults}
    return Result((*lines, *status_lines(state)), document, ViolationError.exit_code if faults else 0)


def write_access(operator: Operator, name: str, file: Path) -> None:
    """Write the kubeconfig of a person, without a secret."""
    plan = plan_of(operator)
    people = plan.accounts.uids
    if name not in people:
        raise InputError(f"no person named {name} in the fleet file", fix=nearest_fix(name, people))
    document = person_kubeconfig(cluster_of(plan), name, plan.record.host_keys)
    write_whole(file, f"{json.dumps(document, indent=1)}\n".encode(), 0o600)
    operator.show([f"wrote {file}: give it to {name}", f"next: export KUBECONFIG={file}; kubectl get pods"])


def remove_person(operator: Operator, plan: FleetPlan, name: str, *, keeps_pods: bool = False) -> None:
    """Delete a person's account in the cluster, and end their work: the cluster refuses their tokens and their pods."""
    client, label = _client(operator, plan), person_name(name)
    account = Key("v1", "ServiceAccount", PEOPLE, label)
    rights = [
        Key("rbac.authorization.k8s.io/v1", "RoleBinding", label, f"bedplate:{name}") for name in ("owner", "search")
    ]
    for key in delete_objects(client, (account, *rights)):
        operator.show([f"deleted {key}: the cluster refuses the tokens of {name}"])
    close_namespace(client, label, ends_pods=not keeps_pods)
    ended = "their pods run until they end" if keeps_pods else "their pods and Secrets are deleted"
    operator.show([f"closed Namespace {label}: nothing starts there, and {ended}"])
