"""The commands of the Kubernetes cluster."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bedplate.cli.options import By, Json, OnFleetByKeys, OnMachines, Person, Terminal, WithFleet, WithLogin, printed
from bedplate.operate import cluster_machines, cluster_objects, control_plane

Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="MACHINE", help="A member that is away; replace it later. Can be repeated."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: the operator's own, from `kube init`.")
]


def init(operator: OnMachines) -> int:
    """Create the cluster's authorities and start it.

    A member is a machine of the control plane. The command writes the authorities to each member's volume, and waits
    for the API. Then it writes the operator's kubeconfig. It skips what is done. The exit status is 6 if a member
    failed; the same command continues. At the first start all members must answer. The same applies while the lock
    lacks the id of the etcd cluster. Later, a member that is away stops no other.
    """
    return control_plane.init(operator)


def member(
    action: Annotated[
        Literal["replace"],
        typer.Argument(metavar="replace", help="The word `replace`: let a member with a new volume join."),
    ],
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="A member, such as control-2.us-west-2.")],
    operator: Annotated[Terminal, By(("user", "identity", "ssh_config", "passphrase_file"), is_argument=False)],
) -> int:
    """Replace the data of a control plane member.

    Use it after a lost volume, or for data of another cluster. The others must run. They forget the member, which
    gets the authorities and copies their data. A member that only lost its machine restores itself.
    """
    del action  # there is one
    return control_plane.replace_member(operator, name)


def restore(
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[SNAPSHOT]", help="A file, or a key in the bucket. Default: the newest.")
    ] = None,
    *,
    without: Without = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Accept a snapshot that no member has signed.")] = False,
    operator: Annotated[Terminal, By(("yes", "user", "identity", "ssh_config", "passphrase_file"), is_argument=False)],
) -> int:
    """Restore the cluster from a snapshot.

    Every member must answer. Each checks the snapshot before any is stopped; then all restore it, and start. The data
    before is kept on each volume until the next restore. A snapshot must be signed by a member: with --unsigned, who
    made the file can be administrator of the cluster. With --without, the others restore it; `kube member replace` lets
    the missing one join later.
    """
    return control_plane.restore(operator, snapshot, without or (), is_signed=not unsigned)


def join(
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="A machine of a site, such as titan-01.cellar.")],
    operator: WithLogin,
) -> None:
    """Let a machine of a site join the cluster.

    Makes a token on a control-plane member, which is valid for 15 minutes and for this machine only, and sends it to
    the machine over SSH. A machine that is in the cluster is not changed.
    """
    cluster_machines.join(operator, name)


def upgrade(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the steps, and workers to leave alone.")] = False,
    now: Annotated[bool, typer.Option("--now", help="End pods that may not be moved.")] = False,
    max_unavailable: Annotated[
        int | None,
        typer.Option("--max-unavailable", min=1, metavar="N", help="Workers of a group at a time. Default: a tenth."),
    ] = None,
    without: Without = None,
    operator: Annotated[Terminal, By(("yes", "end_machines", "user", "identity", "ssh_config"))],
) -> int:
    """Upgrade Kubernetes and containerd on all machines.

    To the versions of the plan: first the members, one after the other, then workers, all groups at a time. Workers of
    sites are drained and upgraded, instances are drained and replaced. A worker with a pod that may not be moved, or
    that somebody has cordoned, is left alone. After a failure, the same command continues. The exit status is 6 while
    workers are left. With --without, the others remove a member that is away from etcd; replace it later, and run the
    command again.
    """
    return cluster_machines.upgrade(operator, without or (), max_unavailable, check=check, ends_work=now)


def addons(
    action: Annotated[Literal["apply", "pin"], typer.Argument(metavar="ACTION", help="apply, or pin.")],
    *,
    mirror: Annotated[
        Path | None, typer.Option("--mirror", metavar="FOLDER", help="Read files from FOLDER/host/path.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    operator: OnFleetByKeys,
) -> int:
    """Apply the cluster's add-ons, or pin them.

    `apply` verifies upstream's files, applies them with people, rights and volumes, and deletes what an earlier apply
    created and the fleet has no more. `pin` compares checksums with their sources and records digests of images.
    """
    if action == "pin":
        return printed(cluster_objects.pin_addons(operator, mirror))
    return printed(cluster_objects.apply_addons(operator, mirror, kubeconfig))


def status(*, as_json: Json = False, kubeconfig: Kubeconfig = None, operator: OnMachines) -> int:
    """Show the state of the cluster and its faults.

    It covers control plane members, etcd, versions, certificates, nodes by pool, and add-ons. The command asks the
    API server, and each member over SSH. The exit status is 3 if something is wrong.
    """
    return printed(cluster_objects.status(operator, kubeconfig, is_early=not as_json), as_json=as_json)


def access(
    name: Person,
    operator: WithFleet,
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="The kubeconfig. Default: USER.kubeconfig.")
    ] = None,
) -> None:
    """Write the kubeconfig of a person.

    It holds no secret: kubectl gets a token of one hour from the control plane with the person's SSH key.
    """
    cluster_objects.write_access(operator, name, write or Path(f"{name}.kubeconfig"))
