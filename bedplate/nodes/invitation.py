"""The archive that gives a person access: VPN profile, ssh configuration, host keys and instructions.

The person needs neither a clone of bedplate nor access to AWS. Equal values make equal archives.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from itertools import groupby
from pathlib import Path, PurePosixPath
from string import Template
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from bedplate.catalog.catalog import Catalog
from bedplate.nodes.host_keys import fingerprint, known_hosts
from bedplate.nodes.ssh import FILE_HEADER, Login, NodeLocation, ssh_config
from bedplate.plan.fleet import Access, Account, FleetPlan
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes, pool_nodes

_README = Path(__file__).with_name("invitation.txt")
_HOME, _SCRATCH = "/home", "/scratch"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A person's access: the machines with an account of theirs, and a VPN profile that is valid until a moment."""

    plan: FleetPlan
    person: Account
    machines: tuple[NodePlan, ...]
    profile: str
    until: datetime


def machines_of(plan: FleetPlan, name: str, catalog: Catalog) -> tuple[NodePlan, ...]:
    """Return the machines to which a person may log in."""
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, catalog))
    return tuple(node for node in nodes if any(name == person.name for person in node.accounts.having(Access.LOGIN)))


def invitation_files(invitation: Invitation) -> Mapping[str, str]:
    """Return the files of the archive by path; it is unpacked in ~/.ssh, where ssh finds the host keys."""
    plan, nodes = invitation.plan, invitation.machines
    folder = PurePosixPath(plan.name)
    keys_file = Path("~/.ssh") / folder / "known_hosts"
    config = ssh_config(map(NodeLocation, nodes), keys_file, Login(invitation.person.name))
    return {
        str(folder / "README.txt"): _readme(invitation),
        str(folder / "config"): config.replace(FILE_HEADER, f"# How {invitation.person.name} logs in to {plan.name}."),
        str(folder / "known_hosts"): known_hosts(nodes, plan.record.host_keys),
        str(folder / f"{plan.name}.ovpn"): invitation.profile,
    }


def pack(files: Mapping[str, str]) -> bytes:
    """Return a ZIP archive of text files and their folders, which only their owner can read when unpacked."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for folder in sorted({str(PurePosixPath(path).parent) for path in files}):
            archive.writestr(_entry(f"{folder}/", 0o40700), b"")
        for path, text in sorted(files.items()):
            archive.writestr(_entry(path, 0o100600), text)
    return buffer.getvalue()


def _entry(path: str, mode: int) -> ZipInfo:
    """Return an entry with a fixed date and a Unix mode, in the upper half of its attributes."""
    entry = ZipInfo(path)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = mode << 16
    return entry


def _readme(invitation: Invitation) -> str:
    plan, person = invitation.plan, invitation.person
    work = tuple(node for node in invitation.machines if NodeRole.WORKBENCH in node.roles)
    return Template(_README.read_text(encoding="utf-8")).substitute(
        fleet=plan.name,
        name=person.name,
        owner=plan.owner,
        until=f"{invitation.until:%Y-%m-%d}",
        keys=_indented(f"{fingerprint(key)} {key.partition(' ')[2].partition(' ')[2]}".rstrip() for key in person.keys),
        machines=_indented(_machine_lines(work)),
        folders=_indented(_folder_lines(work, person.name)),
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines) or "    none"


def _machine_lines(nodes: Iterable[NodePlan]) -> Iterator[str]:
    """Yield a line for each machine, or for all machines of a group in a region."""
    for _, group in groupby(nodes, key=lambda node: (node.host.rpartition("-")[0] or node.host, node.place, node.gpus)):
        members = tuple(group)
        names = " to ".join(dict.fromkeys((members[0].name, members[-1].name)))
        gpus = members[0].gpus
        yield f"{names} ({gpus.count} x {gpus.model})" if gpus else names


def _folder_lines(nodes: Iterable[NodePlan], name: str) -> Iterator[str]:
    """Yield a line for each shared folder of a server, with the places of its machines, and for the local disks."""
    places: dict[tuple[str, str], set[str]] = {}
    for node in nodes:
        for mount in node.mounts:
            places.setdefault((mount.path, mount.server), set()).add(node.place)
    for (path, _), of_server in sorted(places.items()):
        what = f"{path}/{name}: your files" if path == _HOME else f"{path}: data of the fleet"
        yield f"{what}, the same on all machines in {', '.join(sorted(of_server))}"
    yield f"{_SCRATCH}/{name}: fast local disks for temporary files; they are lost when a machine ends"
